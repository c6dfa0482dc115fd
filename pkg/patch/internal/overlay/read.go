// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Reader takes objects apart and collects what it cannot understand.
type Reader struct {
	Errs field.ErrorList
	// Left tells of what is left out, because it is ours.
	Left []string
}

// read returns value if it is of the type that what describes; null is that type's zero.
func read[T any](r *Reader, path *field.Path, value any, what string) T {
	typed, ok := value.(T)
	if !ok && value != nil {
		r.Errs = append(r.Errs, field.TypeInvalid(path, field.OmitValueType{}, "it must be "+what))
	}
	return typed
}

// Anything reads a JSON object with whatever fields.
func (r *Reader) Anything(path *field.Path, value any) Object {
	return read[Object](r, path, value, "an object")
}

// List reads a list.
func (r *Reader) List(path *field.Path, value any) []any {
	return read[[]any](r, path, value, "a list")
}

func (r *Reader) text(path *field.Path, value any) string {
	return read[string](r, path, value, "a string")
}

// Object reads a JSON object and refuses fields other than the known ones.
func (r *Reader) Object(path *field.Path, value any, known ...string) Object {
	fields := r.Anything(path, value)
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if fields[key] != nil && !slices.Contains(known, key) {
			r.Errs = append(r.Errs, field.Forbidden(path.Child(key), fmt.Sprintf(
				"a patch has only %s here: remove it", strings.Join(known, ", "))))
		}
	}
	return fields
}

// Child reads the object under a key, and refuses fields in it other than the known ones.
func (r *Reader) Child(path *field.Path, parent Object, key string, known ...string) (*field.Path, Object) {
	path = path.Child(key)
	return path, r.Object(path, parent[key], known...)
}

// Metadata reads an object's metadata: labels and annotations alone, since no generation patches any other.
func (r *Reader) Metadata(path *field.Path, parent Object) Object {
	return r.LabelsAndAnnotations(r.Child(path, parent, "metadata", "labels", "annotations"))
}

// LabelsAndAnnotations leaves those out that have no item.
func (r *Reader) LabelsAndAnnotations(path *field.Path, fields Object) Object {
	metadata := Object{}
	for _, key := range []string{"labels", "annotations"} {
		if items := r.texts(path.Child(key), fields[key]); len(items) > 0 {
			metadata[key] = items
		}
	}
	return metadata
}

func (r *Reader) texts(path *field.Path, value any) Object {
	items := r.Anything(path, value)
	for _, key := range slices.Sorted(maps.Keys(items)) {
		if _, ok := items[key].(string); !ok {
			r.Errs = append(r.Errs, field.TypeInvalid(path.Key(key), field.OmitValueType{}, "it must be a string"))
		}
	}
	return items
}

// Job reads the name of a replicated job, of which there must be one.
func (r *Reader) Job(path *field.Path, fields Object) string {
	return r.required(path.Child("name"), fields["name"], "name a replicated job of the runtime")
}

// required reads a string that must not be empty.
func (r *Reader) required(path *field.Path, value any, remedy string) string {
	text := r.text(path, value)
	if text == "" {
		r.Errs = append(r.Errs, field.Required(path, remedy))
	}
	return text
}

// override reads one of Jobs, or of pods, into one layer per replicated job. One of pods has to have
// any; one of Jobs without them is for the JobSet.
func (r *Reader) override(path *field.Path, fields Object, manager string, ofJob bool) []Layer {
	var jobs []string
	at := path.Child("targetJobs")
	for i, item := range r.List(at, fields["targetJobs"]) {
		if job := r.Job(at.Index(i), r.Object(at.Index(i), item, "name")); !slices.Contains(jobs, job) {
			jobs = append(jobs, job)
		}
	}
	switch {
	case ofJob && len(jobs) == 0:
		jobs, ofJob = []string{""}, false
	case saysNothing(fields["targetJobs"]):
		r.Errs = append(r.Errs, field.Required(at, "it is for no job and so has no effect: name one, or remove the override"))
	}
	l := Layer{
		Path: path, Manager: manager, time: r.text(path.Child("time"), fields["time"]), target: target{ofJob: ofJob},
		Metadata: r.Metadata(path, fields),
		podSpec:  r.Anything(path.Child("spec"), fields["spec"]),
	}
	var layers []Layer
	for _, job := range jobs {
		l.job = job
		layers = append(layers, l)
	}
	return layers
}

// Owner reads the manager of an override, of which there must be one.
func (r *Reader) Owner(path *field.Path, fields Object) string {
	return r.required(path.Child("manager"), fields["manager"], "name who owns the overrides, such as example.com/team")
}

// Leave tells that what stands at path is ours, and left out.
func (r *Reader) Leave(path *field.Path) {
	r.Left = append(r.Left, fmt.Sprintf("%s: it is left out, as kueue-trainer wrote it for a queue and for one cluster; "+
		"the webhook adds what the TrainJob needs where it is created", path))
}

// PodTemplateOverrides reads the list of Trainer 2.1, and the flat entries with a
// manager and a time that were proposed after it. Entries without a manager belong to
// owner; those that carry our mark are left out.
func (r *Reader) PodTemplateOverrides(path *field.Path, value any, owner string) []Layer {
	var layers []Layer
	for i, item := range r.List(path, value) {
		at := path.Index(i)
		fields := r.Object(at, item, "targetJobs", "metadata", "spec", "manager", "time")
		if Text(Child(fields, "metadata", "annotations")[trainjob.ManagerAnnotation]) == trainjob.Manager {
			r.Leave(at)
			continue
		}
		manager := owner
		if fields["manager"] != nil {
			manager = r.Owner(at, fields)
		}
		layers = append(layers, r.override(at, fields, manager, false)...)
	}
	return layers
}

// JobTemplateOverrides reads the flat entries for Jobs of the proposal.
func (r *Reader) JobTemplateOverrides(path *field.Path, value any) []Layer {
	var layers []Layer
	for i, item := range r.List(path, value) {
		at := path.Index(i)
		fields := r.Object(at, item, "targetJobs", "metadata", "manager", "time")
		layers = append(layers, r.override(at, fields, r.Owner(at, fields), true)...)
	}
	return layers
}

// TemplateOverrides reads the proposal's entries, each with a manager: either lists of
// overrides for jobs and pods, or one override of pods that stands in the entry itself.
func (r *Reader) TemplateOverrides(path *field.Path, value any) []Layer {
	var layers []Layer
	for i, item := range r.List(path, value) {
		at := path.Index(i)
		entry := r.Anything(at, item)
		manager := r.Owner(at, entry)
		if entry["job"] == nil && entry["pod"] == nil {
			fields := r.Object(at, item, "targetJobs", "metadata", "spec", "manager", "time")
			layers = append(layers, r.override(at, fields, manager, false)...)
			continue
		}
		r.Object(at, item, "manager", "job", "pod")
		for j, item := range r.List(at.Child("job"), entry["job"]) {
			in := at.Child("job").Index(j)
			layers = append(layers, r.override(in, r.Object(in, item, "time", "targetJobs", "metadata"), manager, true)...)
		}
		for j, item := range r.List(at.Child("pod"), entry["pod"]) {
			in := at.Child("pod").Index(j)
			layers = append(layers, r.override(in, r.Object(in, item, "time", "targetJobs", "metadata", "spec"), manager, false)...)
		}
	}
	return layers
}
