// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// maxEntries is how many entries spec.runtimePatches may have (TrainJob CRD).
const maxEntries = 16

// Full returns an error where the entries of others leave ours no room.
func (f Field) Full(spec *trainjob.Spec) field.ErrorList {
	_, others := f.split(spec)
	if f != runtimePatches || len(others) < maxEntries {
		return nil
	}
	err := field.TooMany(f.Path(), len(others), maxEntries-1)
	err.Detail += fmt.Sprintf(" in a queue, where one of %d is the manager's", maxEntries)
	return field.ErrorList{err}
}

// maxUnknown bounds the replicated jobs that one answer tells of, and maxNames the bytes of the names that a runtime has:
// nothing else does.
const maxUnknown, maxNames = 10, 1 << 10

// UnknownJobs returns an error for the first patches of others of replicated jobs that the runtime
// does not have. A merge would add such a job, with nothing in it.
func (f Field) UnknownJobs(spec *trainjob.Spec, runtimeJobs []string) field.ErrorList {
	var errs field.ErrorList
	names := strings.Join(runtimeJobs, ", ")
	if len(names) > maxNames {
		names = names[:maxNames] + "…"
	}
	for i, p := range *f.entries(spec) {
		if p.Ours() {
			continue
		}
		jobs, err := f.jobsOf(p)
		if err != nil {
			errs = append(errs, field.Invalid(f.at(i, p), p.Manager, err.Error()))
			continue
		}
		for j, job := range jobs {
			if !slices.Contains(runtimeJobs, job.name) && len(errs) < maxUnknown {
				errs = append(errs, field.Invalid(f.jobAt(f.at(i, p), j), job.name,
					"the runtime has no replicated job of this name; it has: "+names))
			}
		}
	}
	return errs
}

// Changed returns an error when our part is not what it has to be after an update by anyone
// but the manager itself: what it was before or, where there was none, what it is in
// allowed, which is what the manager's webhook puts there.
func Changed(f Field, before, after, allowed *trainjob.Spec) field.ErrorList {
	want := before
	if !f.Has(before) {
		want = allowed
	}
	if !f.Has(after) || (want != nil && f.Same(want, after)) {
		return nil
	}
	if f == podTemplateOverrides {
		return field.ErrorList{field.Forbidden(f.Path(), "the overrides with the annotation "+ManagerAnnotation+
			" belong to the manager of queued TrainJobs; put your changes into other overrides")}
	}
	return field.ErrorList{field.Forbidden(f.Path().Key(Manager),
		"this entry belongs to the manager of queued TrainJobs; put your changes into an entry with another manager name")}
}

// ReservedGate reports whether only the manager or Kueue may set a scheduling gate: they
// take it off the pods for an admission, where nobody else had it in the first place.
func ReservedGate(name string) bool {
	return name == AdmissionGate || strings.HasPrefix(name, "kueue.x-k8s.io/")
}

// ReservedByOthers returns the places where patches of others set what only the manager
// or Kueue may: their scheduling gates, and the label of gated pods.
func (f Field) ReservedByOthers(spec *trainjob.Spec) []*field.Path {
	var paths []*field.Path
	for i, p := range *f.entries(spec) {
		if !p.Ours() {
			paths = append(paths, reservedPaths(f.at(i, p), "", p.Fields())...)
		}
	}
	return paths
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

// Surplus warns of what our overrides say and no placement can, which is lost with the next Set
// or Drop. A user wrote it: the mark is an annotation, which is copied as easily as the rest. Who
// writes an entry under the manager's name means the manager's entry.
func (f Field) Surplus(spec *trainjob.Spec) (warnings []string) {
	if f != podTemplateOverrides {
		return nil
	}
	for i, p := range spec.PodTemplateOverrides {
		if !p.Ours() {
			continue
		}
		for _, lost := range surplusOf(f.at(i, p), p) {
			warnings = append(warnings, fmt.Sprintf("%s is dropped: the annotation %s makes the override the manager's; put it into one without", lost, ManagerAnnotation))
		}
	}
	return warnings
}

func surplusOf(path *field.Path, p trainjob.RuntimePatch) []*field.Path {
	var ours override
	if p.DecodeInto(&ours) != nil {
		return []*field.Path{path}
	}
	return notIn(path, p.Fields(), trainjob.NewRuntimePatch(ours).Fields())
}

// notIn returns the fields of an object that another one does not have, objects in them
// included. Empty ones say nothing.
func notIn(path *field.Path, all, kept map[string]any) []*field.Path {
	var missing []*field.Path
	for _, key := range slices.Sorted(maps.Keys(all)) {
		inner, isObject := all[key].(map[string]any)
		list, isList := all[key].([]any)
		_, isKept := kept[key]
		switch {
		case isObject:
			keptInner, _ := kept[key].(map[string]any)
			missing = append(missing, notIn(path.Child(key), inner, keptInner)...)
		case !isKept && all[key] != nil && !(isList && len(list) == 0):
			missing = append(missing, path.Child(key))
		}
	}
	return missing
}
