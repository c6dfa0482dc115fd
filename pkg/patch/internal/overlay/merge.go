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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// Object is a JSON object with its numbers as they were written.
type Object = map[string]any

// podSpecSchema tells how the Kubernetes API merges the lists of a pod spec.
var podSpecSchema = schema{strategicpatch.PatchMetaFromStruct{T: reflect.TypeFor[corev1.PodSpec]()}}

// schema takes fields that the Kubernetes types do not know as well: objects are merged, lists are replaced.
type schema struct{ strategicpatch.LookupPatchMeta }

func (s schema) LookupPatchMetadataForStruct(key string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	return orUnknown(s.LookupPatchMeta.LookupPatchMetadataForStruct(key))
}

func (s schema) LookupPatchMetadataForSlice(key string) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	return orUnknown(s.LookupPatchMeta.LookupPatchMetadataForSlice(key))
}

func orUnknown(of strategicpatch.LookupPatchMeta, meta strategicpatch.PatchMeta, err error) (strategicpatch.LookupPatchMeta, strategicpatch.PatchMeta, error) {
	if err != nil {
		return schema{strategicpatch.PatchMetaFromStruct{T: reflect.TypeFor[struct{}]()}}, strategicpatch.PatchMeta{}, nil
	}
	return schema{of}, meta, nil
}

// mergePodSpecs returns the one patch that does what base and then over do, by the strategic merge that Trainer
// does. What its types drop when it reads over ("", false, [] of most fields) is dropped here, too.
// The error is of a pod spec that Trainer cannot read either.
func mergePodSpecs(base, over Object) (Object, error) {
	kept, err := whatTrainerKeeps(over)
	if err != nil || len(base) == 0 {
		return maps.Clone(over), err // other jobs may share it
	}
	over = runtime.DeepCopyJSON(over)
	podSpecSchema.dropNothing(over, kept)
	return strategicpatch.MergeStrategicMergeMapPatchUsingLookupPatchMeta(podSpecSchema, runtime.DeepCopyJSON(base), over)
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

// dropNothing takes out what says nothing and is not kept, of the fields that the Kubernetes types know.
func (s schema) dropNothing(object, kept Object) {
	for key, value := range object {
		keptValue, isKept := kept[key]
		of, _, unknown := s.LookupPatchMeta.LookupPatchMetadataForStruct(key)
		switch value := value.(type) {
		case Object:
			if keptObject, ok := keptValue.(Object); ok && unknown == nil {
				schema{of}.dropNothing(value, keptObject)
			}
		case []any:
			items, _, unknown := s.LookupPatchMeta.LookupPatchMetadataForSlice(key)
			keptItems, _ := keptValue.([]any)
			for i, item := range value[:min(len(value), len(keptItems))] {
				item, _ := item.(Object)
				if keptItem, ok := keptItems[i].(Object); ok && unknown == nil {
					schema{items}.dropNothing(item, keptItem)
				}
			}
		}
		if !isKept && unknown == nil && saysNothing(value) {
			delete(object, key)
		}
	}
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

// MergeMetadata merges labels and annotations, which are all that metadata holds here.
func MergeMetadata(into, over Object) {
	for key, items := range over {
		maps.Copy(At(into, key), items.(Object))
	}
}

// ambiguousOrder names the lists of the pod specs whose order after Trainer applied
// one patch and then the other depends on the runtime, so that one merged patch may
// put them in another one: containers, and variables that refer to each other.
func ambiguousOrder(base, over Object) []string {
	var lists []string
	for _, name := range []string{"initContainers", "containers"} {
		before, after := Items(base[name]), Items(over[name])
		if !partOf(before, after) && !partOf(after, before) {
			lists = append(lists, name)
		}
		for _, container := range after {
			at := slices.IndexFunc(before, func(c Object) bool { return Text(c["name"]) == Text(container["name"]) })
			if at >= 0 && variablesClash(Items(before[at]["env"]), Items(container["env"])) {
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

// partOf reports whether the items of a list are in another one, in the same order.
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

// Child goes down through objects; nil where there is none.
func Child(value Object, keys ...string) Object {
	for _, key := range keys {
		value, _ = value[key].(Object)
	}
	return value
}

// Items returns the items of a list, with an empty one for each that is no object.
func Items(value any) []Object {
	list, _ := value.([]any)
	items := make([]Object, 0, len(list))
	for _, item := range list {
		item, _ := item.(Object)
		items = append(items, item)
	}
	return items
}

// Text returns value if it is a string, or nothing.
func Text(value any) string {
	s, _ := value.(string)
	return s
}
