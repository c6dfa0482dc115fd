// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Reader takes objects apart and collects what it cannot understand.
type Reader struct {
	Errs field.ErrorList
}

// Object reads a JSON object and refuses fields other than the known ones. A null is an
// object without fields.
func (r *Reader) Object(path *field.Path, value any, known ...string) Object {
	if value == nil {
		return nil
	}
	fields, ok := value.(Object)
	if !ok {
		r.Errs = append(r.Errs, field.TypeInvalid(path, field.OmitValueType{}, "it must be an object"))
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if fields[key] != nil && !slices.Contains(known, key) {
			r.Errs = append(r.Errs, field.Forbidden(path.Child(key), fmt.Sprintf(
				"a patch has only %s here: remove it", strings.Join(known, ", "))))
		}
	}
	return fields
}

// Anything reads a JSON object with whatever fields.
func (r *Reader) Anything(path *field.Path, value any) Object {
	fields, ok := value.(Object)
	if !ok && value != nil {
		r.Errs = append(r.Errs, field.TypeInvalid(path, field.OmitValueType{}, "it must be an object"))
	}
	return fields
}

// List returns value if it is a list; anything else is an error at path.
func (r *Reader) List(path *field.Path, value any) []any {
	items, ok := value.([]any)
	if !ok && value != nil {
		r.Errs = append(r.Errs, field.TypeInvalid(path, field.OmitValueType{}, "it must be a list"))
	}
	return items
}

// Text returns value if it is a string; anything else is an error at path.
func (r *Reader) Text(path *field.Path, value any) string {
	s, ok := value.(string)
	if !ok && value != nil {
		r.Errs = append(r.Errs, field.TypeInvalid(path, field.OmitValueType{}, "it must be a string"))
	}
	return s
}

// Metadata reads labels and annotations, the only metadata that any generation patches.
// Those without an item are left out.
func (r *Reader) Metadata(path *field.Path, value any) Object {
	fields := r.Object(path, value, "labels", "annotations")
	metadata := Object{}
	for _, key := range []string{"labels", "annotations"} {
		if items := r.Texts(path.Child(key), fields[key]); len(items) > 0 {
			metadata[key] = items
		}
	}
	return metadata
}

// Texts reads a map of strings.
func (r *Reader) Texts(path *field.Path, value any) Object {
	items := r.Anything(path, value)
	for _, key := range slices.Sorted(maps.Keys(items)) {
		if _, ok := items[key].(string); !ok {
			r.Errs = append(r.Errs, field.TypeInvalid(path.Key(key), field.OmitValueType{}, "it must be a string"))
		}
	}
	return items
}

// targetJobs reads the names of replicated jobs.
func (r *Reader) targetJobs(path *field.Path, value any) []string {
	var names []string
	for i, item := range r.List(path, value) {
		fields := r.Object(path.Index(i), item, "name")
		name := r.Text(path.Index(i).Child("name"), fields["name"])
		if name == "" {
			r.Errs = append(r.Errs, field.Required(path.Index(i).Child("name"), "name a replicated job of the runtime"))
			continue
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// podOverride reads an override of pods into one layer per replicated job.
func (r *Reader) podOverride(path *field.Path, fields Object, manager string) []Layer {
	jobs := r.targetJobs(path.Child("targetJobs"), fields["targetJobs"])
	if saysNothing(fields["targetJobs"]) {
		r.Errs = append(r.Errs, field.Required(path.Child("targetJobs"), "it is for no job and so has no effect: name one, or remove the override"))
	}
	common := Layer{
		Path: path, Manager: manager, time: r.Text(path.Child("time"), fields["time"]),
		Metadata: r.Metadata(path.Child("metadata"), fields["metadata"]),
		podSpec:  r.Anything(path.Child("spec"), fields["spec"]),
	}
	return perJob(common, jobs)
}

// jobOverride reads an override of Jobs; without target jobs it is for the JobSet.
func (r *Reader) jobOverride(path *field.Path, fields Object, manager string) []Layer {
	common := Layer{
		Path: path, Manager: manager, time: r.Text(path.Child("time"), fields["time"]),
		Metadata: r.Metadata(path.Child("metadata"), fields["metadata"]),
		ofJob:    true,
	}
	jobs := r.targetJobs(path.Child("targetJobs"), fields["targetJobs"])
	if len(jobs) == 0 {
		common.ofJob = false
		return []Layer{common}
	}
	return perJob(common, jobs)
}

func perJob(common Layer, jobs []string) []Layer {
	layers := make([]Layer, 0, len(jobs))
	for _, job := range jobs {
		l := common
		l.job = job
		layers = append(layers, l)
	}
	return layers
}

// Owner reads the manager of an override, of which there must be one.
func (r *Reader) Owner(path *field.Path, fields Object) string {
	manager := r.Text(path.Child("manager"), fields["manager"])
	if manager == "" {
		r.Errs = append(r.Errs, field.Required(path.Child("manager"), "name who owns the overrides, such as example.com/team"))
	}
	return manager
}

// PodTemplateOverrides reads the list of Trainer 2.1, and the flat entries with a
// manager and a time that were proposed after it. Entries without a manager belong to
// owner; what our mark says is for withoutOurs to heed.
func (r *Reader) PodTemplateOverrides(path *field.Path, value any, owner string) []Layer {
	var layers []Layer
	for i, item := range r.List(path, value) {
		at := path.Index(i)
		fields := r.Object(at, item, "targetJobs", "metadata", "spec", "manager", "time")
		manager := owner
		if fields["manager"] != nil {
			manager = r.Owner(at, fields)
		}
		mark, _, _ := unstructured.NestedString(fields, "metadata", "annotations", trainjob.ManagerAnnotation)
		for _, l := range r.podOverride(at, fields, manager) {
			l.Ours = mark == trainjob.Manager
			layers = append(layers, l)
		}
	}
	return layers
}

// JobTemplateOverrides reads the flat entries for Jobs of the proposal.
func (r *Reader) JobTemplateOverrides(path *field.Path, value any) []Layer {
	var layers []Layer
	for i, item := range r.List(path, value) {
		at := path.Index(i)
		fields := r.Object(at, item, "targetJobs", "metadata", "manager", "time")
		layers = append(layers, r.jobOverride(at, fields, r.Owner(at, fields))...)
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
			layers = append(layers, r.podOverride(at, fields, manager)...)
			continue
		}
		r.Object(at, item, "manager", "job", "pod")
		for j, item := range r.List(at.Child("job"), entry["job"]) {
			in := at.Child("job").Index(j)
			layers = append(layers, r.jobOverride(in, r.Object(in, item, "time", "targetJobs", "metadata"), manager)...)
		}
		for j, item := range r.List(at.Child("pod"), entry["pod"]) {
			in := at.Child("pod").Index(j)
			layers = append(layers, r.podOverride(in, r.Object(in, item, "time", "targetJobs", "metadata", "spec"), manager)...)
		}
	}
	return layers
}

// Decode reads a value with its numbers as they are written.
func (r *Reader) Decode(path *field.Path, data json.RawMessage) any {
	if len(data) == 0 {
		return nil
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	err := decoder.Decode(&value)
	if err != nil {
		r.Errs = append(r.Errs, field.Invalid(path, field.OmitValueType{}, "it is not JSON: "+err.Error()))
	}
	return value
}
