// SPDX-License-Identifier: Apache-2.0

package handback

import (
	"context"
	"fmt"
	"reflect"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// respelt returns the TrainJobs whose spec.trainer or spec.initializer the in-tree integration would write in another
// spelling, such as nvidia.com/gpu: 8. It updates a TrainJob whole when it starts or stops it (RunWithPodSetsInfo and Stop),
// and the API server takes that for a change of a field that is immutable since Trainer 2.2.
func respelt(ctx context.Context, c client.Reader, namespace string) (map[types.UID]bool, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(trainjob.GVK)
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing TrainJobs: %w", err)
	}
	found := map[types.UID]bool{}
	for i := range list.Items {
		found[list.Items[i].GetUID()] = respells(list.Items[i].Object, "trainer", &trainer.Trainer{}) ||
			respells(list.Items[i].Object, "initializer", &trainer.Initializer{})
	}
	return found, nil
}

// respells reports whether a field of the spec looks otherwise when it was decoded as typed and encoded again.
func respells(job map[string]any, name string, typed any) bool {
	stored, is, err := unstructured.NestedMap(job, "spec", name)
	if !is || err != nil {
		return false
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored, typed); err != nil {
		return true
	}
	written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	return err != nil || !reflect.DeepEqual(stored, written)
}
