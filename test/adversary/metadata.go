// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
)

// readKeys are labels and annotations that controllers read, beside those which objects have.
var readKeys = []string{
	constants.QueueLabel, constants.PrebuiltWorkloadLabel, constants.WorkloadPriorityClassLabel, constants.MaxExecTimeSecondsLabel,
	kueueconstants.PodSetLabel, kueue.WorkloadAnnotation, kueue.MultiKueueOriginLabel, kueue.PodSetRequiredTopologyAnnotation,
	jobsetapi.JobSetNameKey, jobsetapi.JobSetUIDKey, jobsetapi.ExclusiveKey, patch.GatedLabel, placeholder.Label,
}

// keepers are finalizers that Kubernetes knows, and one of the tenant's own.
var keepers = []string{"foregroundDeletion", "orphan", "example.com/mine"}

// metadata draws a change of labels, annotations, owners or finalizers.
func (d *drawer) metadata(obj *unstructured.Unstructured) change {
	switch d.IntN(6) {
	case 0:
		return d.labelOrAnnotation([]string{"metadata"}, "labels")
	case 1:
		return d.labelOrAnnotation([]string{"metadata"}, "annotations")
	case 2, 3:
		return change{path: []string{"metadata", "ownerReferences"}, value: d.owners(obj)}
	}
	return change{path: []string{"metadata", "finalizers"}, value: d.finalizers(obj)}
}

// labelOrAnnotation sets or takes away a label or annotation, of those that are in use, in the metadata at a path.
func (d *drawer) labelOrAnnotation(at []string, field string) change {
	known := slices.Clone(readKeys)
	values := map[string][]any{}
	for _, obj := range d.live {
		for _, of := range []map[string]string{obj.GetLabels(), obj.GetAnnotations()} {
			for _, key := range slices.Sorted(maps.Keys(of)) {
				known, values[key] = append(known, key), append(values[key], of[key])
			}
		}
	}
	slices.Sort(known)
	key := pick(d.Rand, slices.Compact(known))
	path := append(slices.Clone(at), field, key)
	if d.one(3) {
		return change{path: path, removed: true}
	}
	if of := values[key]; len(of) > 0 && !d.one(3) {
		return change{path: path, value: pick(d.Rand, of)}
	}
	return change{path: path, value: pick(d.Rand, []any{"", "true", d.name(), strings.Repeat("x", 1<<d.IntN(18))})}
}

// name is one of an object of the namespace.
func (d *drawer) name() string {
	if len(d.live) == 0 {
		return "a"
	}
	return pick(d.Rand, d.live).GetName()
}

// owners draws other owners: those of another object, another object itself, or none.
func (d *drawer) owners(obj *unstructured.Unstructured) []any {
	now, _, _ := unstructured.NestedSlice(obj.Object, "metadata", "ownerReferences")
	if len(d.live) == 0 || len(now) > 0 && d.one(4) {
		return []any{}
	}
	other := pick(d.Rand, d.live)
	theirs, _, _ := unstructured.NestedSlice(other.Object, "metadata", "ownerReferences")
	if len(theirs) > 0 && d.one(2) {
		return theirs
	}
	ref := map[string]any{
		"apiVersion": other.GetAPIVersion(), "kind": other.GetKind(), "name": other.GetName(), "uid": string(other.GetUID()),
		"controller": d.one(2), "blockOwnerDeletion": d.one(2),
	}
	if d.one(2) {
		return append(now, ref)
	}
	return []any{ref}
}

// finalizers draws one more, one less or none.
func (d *drawer) finalizers(obj *unstructured.Unstructured) []any {
	var now []any
	for _, f := range obj.GetFinalizers() {
		now = append(now, f)
	}
	switch {
	case len(now) > 0 && d.one(2):
		at := d.IntN(len(now))
		return slices.Delete(now, at, at+1)
	case len(now) > 0 && d.one(3):
		return []any{}
	}
	return append(now, pick(d.Rand, keepers))
}
