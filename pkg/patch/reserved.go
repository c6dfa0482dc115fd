// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/mark"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// kueueGates is the domain of the gates that Kueue sets and takes off.
const kueueGates = "kueue.x-k8s.io/"

// ReservedGate reports whether only the manager or Kueue may set a scheduling gate: they
// take it off the pods for an admission, where nobody else had it in the first place.
func ReservedGate(name string) bool {
	return name == AdmissionGate || strings.HasPrefix(name, kueueGates)
}

// ReservedByOthers implements Field.
func (runtimePatches) ReservedByOthers(spec *trainjob.Spec) []*field.Path {
	var paths []*field.Path
	for _, p := range Others(spec.RuntimePatches) {
		paths = append(paths, reservedIn(Path.Key(p.Manager), p)...)
	}
	return paths
}

// ReservedByOthers implements Field.
func (f podTemplateOverrides) ReservedByOthers(spec *trainjob.Spec) []*field.Path {
	var paths []*field.Path
	for i, o := range spec.PodTemplateOverrides {
		if !mark.Override(o) {
			paths = append(paths, reservedIn(f.Path().Index(i), o)...)
		}
	}
	return paths
}

// reservedIn looks through the bytes of a patch. One that cannot be read says nothing.
func reservedIn(path *field.Path, p json.Marshaler) []*field.Path {
	var value any
	if data, err := p.MarshalJSON(); err != nil || json.Unmarshal(data, &value) != nil {
		return nil
	}
	return reservedPaths(path, "", value)
}

// reservedPaths returns the places of reserved gates and labels in a value, which stands
// under a key. Items of a list stand under that of the list.
func reservedPaths(path *field.Path, key string, value any) []*field.Path {
	var paths []*field.Path
	switch value := value.(type) {
	case map[string]any:
		if name, _ := value["name"].(string); key == "schedulingGates" && ReservedGate(name) {
			paths = append(paths, path.Child("name"))
		}
		if _, ok := value[GatedLabel]; ok && key == "labels" {
			paths = append(paths, path.Key(GatedLabel))
		}
		for _, k := range slices.Sorted(maps.Keys(value)) {
			paths = append(paths, reservedPaths(path.Child(k), k, value[k])...)
		}
	case []any:
		for i := range value {
			paths = append(paths, reservedPaths(path.Index(i), key, value[i])...)
		}
	}
	return paths
}
