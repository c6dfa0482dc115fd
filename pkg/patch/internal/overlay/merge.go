// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Object is a JSON object with its numbers as they were written.
type Object = map[string]any

// podSpecSchema tells how the Kubernetes API merges the lists of a pod spec.
var podSpecSchema strategicpatch.LookupPatchMeta = strategicpatch.PatchMetaFromStruct{T: reflect.TypeFor[corev1.PodSpec]()}

// mergePodSpecs returns the one patch that does what base and then over do. It is a
// strategic merge like Trainer's, with two differences: fields that the Kubernetes
// types do not know are carried along, and what those types drop when Trainer reads
// over ("", false, [] of most fields) is dropped here, too, where base says more.
// The error is of a pod spec that Trainer cannot read either.
func mergePodSpecs(base, over Object) (Object, error) {
	kept, err := whatTrainerKeeps(over)
	if err != nil {
		return nil, err
	}
	return mergeObjects(base, over, kept, podSpecSchema), nil
}

// whatTrainerKeeps passes a pod spec through Trainer's types.
func whatTrainerKeeps(podSpec Object) (Object, error) {
	data, err := json.Marshal(podSpec)
	if err != nil {
		return nil, err
	}
	var typed trainer.PodSpecPatch
	if err := json.Unmarshal(data, &typed); err != nil {
		return nil, err
	}
	if data, err = json.Marshal(typed); err != nil {
		return nil, err
	}
	var kept Object
	err = json.Unmarshal(data, &kept)
	return kept, err
}

// mergeObjects leaves base and over as they are. kept is over as Trainer reads it,
// schema is nil below fields that the Kubernetes types do not know.
func mergeObjects(base, over, kept Object, schema strategicpatch.LookupPatchMeta) Object {
	merged := make(Object, len(base)+len(over))
	maps.Copy(merged, base)
	for key, value := range over {
		old, had := merged[key]
		keptValue, isKept := kept[key]
		switch {
		case !had:
			merged[key] = value
		case isKept || !saysNothing(value):
			merged[key] = mergeValues(old, value, keptValue, key, schema)
		}
	}
	return merged
}

// saysNothing reports whether the Kubernetes types may leave a value out.
func saysNothing(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case bool:
		return !value
	case string:
		return value == ""
	case json.Number:
		number, err := value.Float64()
		return err == nil && number == 0
	case []any:
		return len(value) == 0
	case Object:
		return len(value) == 0
	}
	return false
}

// mergeValues merges the values of one key, both present.
func mergeValues(base, over, kept any, key string, schema strategicpatch.LookupPatchMeta) any {
	switch over := over.(type) {
	case Object:
		if base, ok := base.(Object); ok {
			kept, _ := kept.(Object)
			return mergeObjects(base, over, kept, schemaOfField(schema, key))
		}
	case []any:
		if base, ok := base.([]any); ok {
			kept, _ := kept.([]any)
			return mergeLists(base, over, kept, key, schema)
		}
	}
	return over
}

func schemaOfField(schema strategicpatch.LookupPatchMeta, key string) strategicpatch.LookupPatchMeta {
	if schema == nil {
		return nil
	}
	field, _, err := schema.LookupPatchMetadataForStruct(key)
	if err != nil {
		return nil
	}
	return field
}

// mergeLists merges a list by the key that the Kubernetes API merges it by, and
// replaces it where there is none.
func mergeLists(base, over, kept []any, key string, schema strategicpatch.LookupPatchMeta) []any {
	if schema == nil {
		return over
	}
	items, meta, err := schema.LookupPatchMetadataForSlice(key)
	if err != nil || !slices.Contains(meta.GetPatchStrategies(), "merge") {
		return over
	}
	mergeKey := meta.GetPatchMergeKey()
	merged, places := slices.Clone(base), placesOf(base, mergeKey)
	for i, item := range over {
		at, found := places[identity(item, mergeKey)]
		if !found {
			places[identity(item, mergeKey)] = len(merged)
			merged = append(merged, item)
			continue
		}
		old, oldOK := merged[at].(Object)
		now, nowOK := item.(Object)
		if !oldOK || !nowOK {
			continue
		}
		var keptItem Object
		if i < len(kept) {
			keptItem, _ = kept[i].(Object)
		}
		merged[at] = mergeObjects(old, now, keptItem, items)
	}
	return inOrder(merged, placesOf(base, mergeKey), placesOf(over, mergeKey), mergeKey)
}

// identity is what makes two list items the same one: the value of the merge key or,
// without one, the item.
func identity(item any, mergeKey string) string {
	if fields, ok := item.(Object); ok && mergeKey != "" {
		item = fields[mergeKey]
	}
	data, _ := json.Marshal(item) // What was decoded from JSON can be encoded.
	return string(data)
}

// placesOf returns the place of each item, the first of several same ones.
func placesOf(list []any, mergeKey string) map[string]int {
	places := make(map[string]int, len(list))
	for i, item := range list {
		if _, found := places[identity(item, mergeKey)]; !found {
			places[identity(item, mergeKey)] = i
		}
	}
	return places
}

// inOrder sorts a merged list as Trainer's merge does: the items of over keep their
// order, those only in base keep theirs, and one of base goes before one of over
// only where it did in base.
func inOrder(merged []any, base, over map[string]int, mergeKey string) []any {
	var left, right []any
	for _, item := range merged {
		if _, found := over[identity(item, mergeKey)]; found {
			right = append(right, item)
		} else {
			left = append(left, item)
		}
	}
	slices.SortStableFunc(right, func(a, b any) int { return over[identity(a, mergeKey)] - over[identity(b, mergeKey)] })
	ordered := make([]any, 0, len(merged))
	for len(left) > 0 && len(right) > 0 {
		at, found := base[identity(right[0], mergeKey)]
		if found && base[identity(left[0], mergeKey)] < at {
			ordered, left = append(ordered, left[0]), left[1:]
		} else {
			ordered, right = append(ordered, right[0]), right[1:]
		}
	}
	return append(append(ordered, left...), right...)
}

// mergeMetadata merges labels and annotations, which are all that metadata holds here.
func mergeMetadata(into, over Object) {
	maps.Copy(into, mergeObjects(into, over, over, nil))
}

// ambiguousOrder names the lists of the pod specs whose order after Trainer applied
// one patch and then the other depends on the runtime, so that one merged patch may
// put them in another one: containers, and variables that refer to each other.
func ambiguousOrder(base, over Object) []string {
	var lists []string
	for _, name := range []string{"initContainers", "containers"} {
		before, after := named(base[name]), named(over[name])
		if ambiguous(before, after) {
			lists = append(lists, name)
		}
		for _, container := range after {
			at := slices.IndexFunc(before, func(c Object) bool { return Text(c["name"]) == Text(container["name"]) })
			if at >= 0 && variablesClash(named(before[at]["env"]), named(container["env"])) {
				lists = append(lists, name+"["+Text(container["name"])+"].env")
			}
		}
	}
	return lists
}

func variablesClash(before, after []Object) bool {
	refers := func(v Object) bool { return strings.Contains(Text(v["value"]), "$(") }
	return (slices.ContainsFunc(before, refers) || slices.ContainsFunc(after, refers)) && len(before) > 0 && len(after) > 0
}

// ambiguous reports whether neither list is a part of the other in the same order.
func ambiguous(a, b []Object) bool {
	return !partOf(a, b) && !partOf(b, a)
}

func partOf(part, whole []Object) bool {
	for _, item := range part {
		at := slices.IndexFunc(whole, func(o Object) bool { return Text(o["name"]) == Text(item["name"]) })
		if at < 0 {
			return false
		}
		whole = whole[at+1:]
	}
	return true
}

// named returns the objects of a list.
func named(list any) []Object {
	var items []Object
	all, _ := list.([]any)
	for _, item := range all {
		if item, ok := item.(Object); ok {
			items = append(items, item)
		}
	}
	return items
}

// Text returns value if it is a string, or nothing.
func Text(value any) string {
	s, _ := value.(string)
	return s
}
