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

// respelt returns the TrainJobs whose spec.trainer the in-tree integration would write in another spelling, such as
// nvidia.com/gpu: 8. It writes a TrainJob whole when it starts it (clientutil.Patch in its Reconcile), and the API server
// takes that for a change of a field that is immutable.
func respelt(ctx context.Context, c client.Reader, namespace string) (map[types.UID]bool, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(trainjob.GVK)
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing TrainJobs: %w", err)
	}
	found := map[types.UID]bool{}
	for i := range list.Items {
		stored, is, err := unstructured.NestedMap(list.Items[i].Object, "spec", "trainer")
		if !is || err != nil {
			continue
		}
		var typed trainer.Trainer
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(stored, &typed); err != nil {
			found[list.Items[i].GetUID()] = true
			continue
		}
		written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&typed)
		found[list.Items[i].GetUID()] = err != nil || !reflect.DeepEqual(stored, written)
	}
	return found, nil
}
