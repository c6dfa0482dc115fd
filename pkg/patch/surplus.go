// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/mark"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Surplus tells of marked overrides that a user wrote, or went on writing: the mark is an
// annotation, which is copied as easily as the rest.
func (f podTemplateOverrides) Surplus(spec *trainjob.Spec) (warnings []string) {
	for i, o := range spec.PodTemplateOverrides {
		if !mark.Override(o) {
			continue
		}
		for _, lost := range surplusOf(f.Path().Index(i), o) {
			warnings = append(warnings, fmt.Sprintf("%s is dropped: the annotation %s makes the override the manager's; put it into one without", lost, ManagerAnnotation))
		}
	}
	return warnings
}

func surplusOf(path *field.Path, o trainjob.PodTemplateOverride) []*field.Path {
	var all map[string]any
	var ours override
	if o.Decode(&all) != nil || o.Decode(&ours) != nil {
		return []*field.Path{path}
	}
	data, err := json.Marshal(ours)
	if err != nil {
		return []*field.Path{path}
	}
	var kept map[string]any
	// What was encoded just now can be decoded.
	_ = json.Unmarshal(data, &kept)
	return notIn(path, all, kept)
}

// notIn returns the fields of an object that another one does not have, objects in them
// included. Empty ones say nothing.
func notIn(path *field.Path, all, kept map[string]any) []*field.Path {
	var missing []*field.Path
	for _, key := range slices.Sorted(maps.Keys(all)) {
		inner, isObject := all[key].(map[string]any)
		keptInner, _ := kept[key].(map[string]any)
		_, isKept := kept[key]
		switch {
		case isObject:
			missing = append(missing, notIn(path.Child(key), inner, keptInner)...)
		case !isKept && !saysNothing(all[key]):
			missing = append(missing, path.Child(key))
		}
	}
	return missing
}

func saysNothing(value any) bool {
	list, isList := value.([]any)
	return value == nil || isList && len(list) == 0
}
