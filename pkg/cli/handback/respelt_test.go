// SPDX-License-Identifier: Apache-2.0

package handback

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestRespelt(t *testing.T) {
	for name, tc := range map[string]struct {
		trainer string
		want    bool
	}{
		"an amount that is a number": {trainer: `{"resourcesPerNode":{"limits":{"nvidia.com/gpu":8}}}`, want: true},
		"one that is text":           {trainer: `{"numNodes":4,"resourcesPerNode":{"limits":{"nvidia.com/gpu":"8"}}}`},
		"text in another spelling":   {trainer: `{"resourcesPerNode":{"limits":{"cpu":"1000m"}}}`, want: true},
		"no amount":                  {trainer: `{"numNodes":4,"image":"train:1","args":["a"]}`},
		"nothing":                    {trainer: `null`},
	} {
		t.Run(name, func(t *testing.T) {
			job := &unstructured.Unstructured{Object: map[string]any{
				"metadata": map[string]any{"namespace": "ns", "name": "llm", "uid": "a"},
				"spec":     map[string]any{"trainer": expect.FromJSON[any](t, tc.trainer)},
			}}
			job.SetGroupVersionKind(trainjob.GVK)
			scheme := runtime.NewScheme()
			scheme.AddKnownTypeWithName(trainjob.GVK, &unstructured.Unstructured{})
			scheme.AddKnownTypeWithName(trainjob.GVK.GroupVersion().WithKind("TrainJobList"), &unstructured.UnstructuredList{})
			c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(job).Build()
			found, err := respelt(t.Context(), c, "ns")
			expect.NoError(t, err)
			expect.Same(t, "Unexpected respelt", tc.want, found[types.UID("a")])
		})
	}
}
