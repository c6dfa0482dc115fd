// SPDX-License-Identifier: Apache-2.0

package handback

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// guarded are the fields of an entry's pods that nobody may change, but leave out.
var guarded = []string{"serviceAccountName", "volumes", "initContainers", "containers", "imagePullSecrets", "securityContext"}

// respelt names, by TrainJob, what the in-tree integration would write in another spelling of what is immutable since
// Trainer 2.2, such as nvidia.com/gpu: 8. It updates a TrainJob whole when it starts or stops it (RunWithPodSetsInfo and
// Stop), and the API server takes that for a change.
func respelt(ctx context.Context, c client.Reader, namespace string) (map[types.UID]string, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(trainjob.GVK)
	if err := c.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing TrainJobs: %w", err)
	}
	found := map[types.UID]string{}
	for i := range list.Items {
		found[list.Items[i].GetUID()] = respeltField(list.Items[i].Object)
	}
	return found, nil
}

// respeltField is where a TrainJob has that, or empty.
func respeltField(job map[string]any) string {
	spec, _ := job["spec"].(map[string]any)
	switch {
	case respells(spec["trainer"], &trainer.Trainer{}):
		return "spec.trainer"
	case respells(spec["initializer"], &trainer.Initializer{}):
		return "spec.initializer"
	}
	for _, entry := range itemsOf(spec, "runtimePatches") {
		for _, rj := range itemsOf(entry, "trainingRuntimeSpec", "template", "spec", "replicatedJobs") {
			pods, _, _ := unstructured.NestedMap(rj, "template", "spec", "template", "spec")
			maps.DeleteFunc(pods, func(name string, value any) bool {
				list, isList := value.([]any)
				return !slices.Contains(guarded, name) || isList && len(list) == 0 // An empty one is left out, which is no change.
			})
			if respells(pods, &trainer.PodSpecPatch{}) {
				return fmt.Sprintf("the entry of %v in spec.runtimePatches", entry["manager"])
			}
		}
	}
	return ""
}

// itemsOf are the objects of a list.
func itemsOf(object map[string]any, path ...string) (items []map[string]any) {
	list, _, _ := unstructured.NestedSlice(object, path...)
	for _, item := range list {
		object, _ := item.(map[string]any)
		items = append(items, object)
	}
	return items
}

// respells reports whether an object looks otherwise when it was decoded as typed and encoded again.
func respells(stored, typed any) bool {
	object, is := stored.(map[string]any)
	if !is {
		return false
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, typed); err != nil {
		return true
	}
	written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	return err != nil || len(object)+len(written) > 0 && !reflect.DeepEqual(object, written)
}
