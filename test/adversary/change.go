// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"
	mergepatch "gopkg.in/evanphx/json-patch.v4"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/spec"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
)

// change sets a field of an object, or takes it away. A list is changed as a whole.
type change struct {
	path    []string
	value   any
	removed bool
}

// drawer draws changes at random: fields from the schema, values from what other objects have there.
type drawer struct {
	*rand.Rand
	schemas *schemas
	// live are the objects of the cluster that the tenant may have seen.
	live []*unstructured.Unstructured
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }
func (d *drawer) one(n int) bool           { return d.IntN(n) == 0 }

// change draws one of an object, below one of its sections: "metadata", "spec", "status" or another.
func (d *drawer) change(obj *unstructured.Unstructured, section string) (change, bool) {
	if section == "metadata" {
		return d.metadata(obj), true
	}
	of := d.schemas.field(d.schemas.kinds[obj.GroupVersionKind()], section)
	value, there := obj.Object[section]
	if !there && of == nil {
		return change{}, false
	}
	return d.below([]string{section}, value, of), true
}

func (d *drawer) below(path []string, value any, of *spec.Schema) change {
	of = d.schemas.resolve(of)
	switch value := value.(type) {
	case map[string]any:
		if path[len(path)-1] == "metadata" && !d.one(3) {
			// Of the pods that a template is for.
			return d.labelOrAnnotation(path, pick(d.Rand, []string{"labels", "annotations"}))
		}
		if key, ok := d.key(value, of); ok && !d.one(8) {
			return d.below(append(slices.Clone(path), key), value[key], d.schemas.field(of, key))
		}
	case []any:
		if list, ok := d.list(value, d.schemas.items(of)); ok {
			return change{path: path, value: list}
		}
	}
	if value != nil && d.one(4) {
		return change{path: path, removed: true}
	}
	return change{path: path, value: d.value(path[len(path)-1], value, of, 0)}
}

// key picks a field, one that is set more often than not.
func (d *drawer) key(value map[string]any, of *spec.Schema) (string, bool) {
	set, known := slices.Sorted(maps.Keys(value)), d.schemas.fields(of)
	switch {
	case len(set) > 0 && (len(known) == 0 || !d.one(3)):
		return pick(d.Rand, set), true
	case len(known) > 0:
		return pick(d.Rand, known), true
	}
	return "", false
}

// list draws another list: an item less, an item twice, one more, or one that is changed.
func (d *drawer) list(value []any, of *spec.Schema) ([]any, bool) {
	list := runtime.DeepCopyJSONValue(value).([]any)
	if len(list) == 0 {
		return nil, false
	}
	at := d.IntN(len(list))
	switch d.IntN(6) {
	case 0:
		return slices.Delete(list, at, at+1), true
	case 1:
		return append(list, runtime.DeepCopyJSONValue(list[at])), true
	case 2:
		return append(list, d.value("", nil, of, 0)), true
	}
	item, isMap := list[at].(map[string]any)
	if !isMap {
		list[at] = d.value("", list[at], of, 0)
		return list, true
	}
	d.below([]string{"item"}, item, of).applyTo(map[string]any{"item": item})
	return list, true
}

// most are limits of what is drawn. By more replicas, which its webhook takes, JobSet runs out of memory.
var most = map[string]int64{"replicas": 100}

// value draws a value of a field, within its limit.
func (d *drawer) value(field string, now any, of *spec.Schema, depth int) any {
	value := d.unlimited(field, now, of, depth)
	if number, ok := value.(int64); ok && most[field] > 0 {
		return min(number, most[field])
	}
	return value
}

// unlimited draws another object's value, the same doubled, a huge one, or any.
func (d *drawer) unlimited(field string, now any, of *spec.Schema, depth int) any {
	of = d.schemas.resolve(of)
	if others := d.others(field); len(others) > 0 && d.one(2) {
		return runtime.DeepCopyJSONValue(pick(d.Rand, others))
	}
	switch now := now.(type) {
	case int64:
		return pick(d.Rand, []any{now * 2, now + 1, int64(0), int64(-1), int64(math.MaxInt32)})
	case bool:
		return !now
	case string:
		return d.text(now)
	}
	return d.any(of, depth)
}

func (d *drawer) text(now string) any {
	if amount, err := apiresource.ParseQuantity(now); err == nil {
		twice := amount.DeepCopy()
		twice.Add(amount)
		return pick(d.Rand, []any{twice.String(), "0", "1", "1Ei"})
	}
	return pick(d.Rand, []any{"", now + now, now + "-x", strings.Repeat("x", 1<<d.IntN(18))})
}

// any draws what a schema allows, as far as its types say.
func (d *drawer) any(of *spec.Schema, depth int) any {
	if len(of.Enum) > 0 {
		return pick(d.Rand, of.Enum)
	}
	switch strings.Join(of.Type, " ") {
	case "integer", "number":
		return pick(d.Rand, []any{int64(0), int64(1), int64(2), int64(-1), int64(math.MaxInt32)})
	case "boolean":
		return d.one(2)
	case "array":
		if depth > 4 {
			return []any{}
		}
		return []any{d.value("", nil, d.schemas.items(of), depth+1)}
	case "object":
		return d.object(of, depth)
	}
	if either, _ := of.Extensions.GetBool("x-kubernetes-int-or-string"); either || of.Format == "int-or-string" {
		return pick(d.Rand, []any{"1", "8", int64(1)})
	}
	return pick(d.Rand, []any{"a", "true", "1"})
}

func (d *drawer) object(of *spec.Schema, depth int) any {
	out := map[string]any{}
	for _, name := range of.Required {
		out[name] = d.value(name, nil, d.schemas.field(of, name), depth+1)
	}
	known := d.schemas.fields(of)
	for range 2 {
		if len(known) > 0 && depth < 4 {
			name := pick(d.Rand, known)
			out[name] = d.value(name, nil, d.schemas.field(of, name), depth+1)
		}
	}
	return out
}

// others returns the values that a field of that name has in an object of the cluster.
func (d *drawer) others(field string) []any {
	if field == "" || len(d.live) == 0 {
		return nil
	}
	var found []any
	var find func(value any)
	find = func(value any) {
		switch value := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(value)) {
				if key == "managedFields" {
					continue
				}
				if key == field {
					found = append(found, value[key])
				}
				find(value[key])
			}
		case []any:
			for _, item := range value {
				find(item)
			}
		}
	}
	for range 3 {
		find(pick(d.Rand, d.live).Object)
	}
	return found
}

func (c change) applyTo(obj map[string]any) {
	if c.removed {
		unstructured.RemoveNestedField(obj, c.path...)
		return
	}
	// Where a parent is no object, there is nothing to set; the API server has the object as it is.
	_ = unstructured.SetNestedField(obj, runtime.DeepCopyJSONValue(c.value), c.path...)
}

// patches returns the change of an object as a merge patch, the one that takes it back, and as a JSON patch.
func (c change) patches(obj map[string]any) (merge, back, operations string, err error) {
	before := []byte(encode(obj))
	changed := runtime.DeepCopyJSON(obj)
	c.applyTo(changed)
	after := []byte(encode(changed))
	merged, errMerge := mergepatch.CreateMergePatch(before, after)
	unmerged, errBack := mergepatch.CreateMergePatch(after, before)
	ops, errOps := jsonpatch.CreatePatch(before, after)
	return string(merged), string(unmerged), encode(ops), errors.Join(errMerge, errBack, errOps)
}

// readKeys are labels and annotations that controllers read, beside those which objects have.
var readKeys = []string{
	constants.QueueLabel, constants.PrebuiltWorkloadLabel, constants.WorkloadPriorityClassLabel, constants.MaxExecTimeSecondsLabel,
	kueueconstants.PodSetLabel, kueue.WorkloadAnnotation, kueue.MultiKueueOriginLabel, kueue.PodSetRequiredTopologyAnnotation,
	jobsetapi.JobSetNameKey, jobsetapi.JobSetUIDKey, jobsetapi.ExclusiveKey, patch.GatedLabel, placeholder.Label,
}

// keepers are finalizers that Kubernetes knows, and one of the tenant's own.
var keepers = []string{"foregroundDeletion", "orphan", "example.com/mine"}

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
	if d.one(4) {
		// The API server takes kinds that there are not, and many controllers look at the UID alone.
		ref["apiVersion"], ref["kind"] = "example.com/v1", pick(d.Rand, []string{"X", other.GetKind()})
	}
	if d.one(2) {
		return append(now, ref)
	}
	return []any{ref}
}

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
