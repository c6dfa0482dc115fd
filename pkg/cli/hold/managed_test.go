// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"context"
	"errors"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestManaged(t *testing.T) {
	for name, tc := range map[string]struct {
		suspends bool
		fails    error
		resumes  bool
		want     string
	}{
		"a queued job is suspended":           {suspends: true},
		"it starts at once":                   {want: `{"spec":{"suspend":true}}`},
		"it starts at once, and is to resume": {resumes: true, want: `{"spec":{"suspend":false}}`},
		"nobody answers":                      {fails: errors.New("failed calling webhook")},
	} {
		t.Run(name, func(t *testing.T) {
			torch := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}}
			c := kit.Fake(kit.Scheme(trainjob.AddToScheme), torch).WithInterceptorFuncs(interceptor.Funcs{
				Create: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.CreateOption) error {
					obj.(*trainjob.TrainJob).Spec.Suspend = ptr.To(tc.suspends)
					return tc.fails
				},
			}).Build()
			expect.Says(t, managed(t.Context(), c, "team", !tc.resumes), tc.want)
		})
	}
}
