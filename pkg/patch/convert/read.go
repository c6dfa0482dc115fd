// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// reader takes objects apart and collects what it cannot understand.
type reader struct {
	errs field.ErrorList
}

// object reads a JSON object and refuses fields other than the known ones. A null is an
// object without fields.
func (r *reader) object(path *field.Path, value any, known ...string) object {
	if value == nil {
		return nil
	}
	fields, ok := value.(object)
	if !ok {
		r.errs = append(r.errs, field.TypeInvalid(path, field.OmitValueType{}, "it must be an object"))
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if fields[key] != nil && !slices.Contains(known, key) {
			r.errs = append(r.errs, field.Forbidden(path.Child(key), fmt.Sprintf(
				"a patch has only %s here: remove it", strings.Join(known, ", "))))
		}
	}
	return fields
}

// anything reads a JSON object with whatever fields.
func (r *reader) anything(path *field.Path, value any) object {
	fields, ok := value.(object)
	if !ok && value != nil {
		r.errs = append(r.errs, field.TypeInvalid(path, field.OmitValueType{}, "it must be an object"))
	}
	return fields
}

func (r *reader) list(path *field.Path, value any) []any {
	items, ok := value.([]any)
	if !ok && value != nil {
		r.errs = append(r.errs, field.TypeInvalid(path, field.OmitValueType{}, "it must be a list"))
	}
	return items
}

func (r *reader) text(path *field.Path, value any) string {
	s, ok := value.(string)
	if !ok && value != nil {
		r.errs = append(r.errs, field.TypeInvalid(path, field.OmitValueType{}, "it must be a string"))
	}
	return s
}

// metadata reads labels and annotations, the only metadata that any generation patches.
// Those without an item are left out.
func (r *reader) metadata(path *field.Path, value any) object {
	fields := r.object(path, value, "labels", "annotations")
	metadata := object{}
	for _, key := range []string{"labels", "annotations"} {
		if items := r.texts(path.Child(key), fields[key]); len(items) > 0 {
			metadata[key] = items
		}
	}
	return metadata
}

// texts reads a map of strings.
func (r *reader) texts(path *field.Path, value any) object {
	items := r.anything(path, value)
	for _, key := range slices.Sorted(maps.Keys(items)) {
		if _, ok := items[key].(string); !ok {
			r.errs = append(r.errs, field.TypeInvalid(path.Key(key), field.OmitValueType{}, "it must be a string"))
		}
	}
	return items
}

// targetJobs reads the names of replicated jobs.
func (r *reader) targetJobs(path *field.Path, value any) []string {
	var names []string
	for i, item := range r.list(path, value) {
		fields := r.object(path.Index(i), item, "name")
		name := r.text(path.Index(i).Child("name"), fields["name"])
		if name == "" {
			r.errs = append(r.errs, field.Required(path.Index(i).Child("name"), "name a replicated job of the runtime"))
			continue
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// podOverride reads an override of pods into one layer per replicated job.
func (r *reader) podOverride(path *field.Path, fields object, manager string) []layer {
	jobs := r.targetJobs(path.Child("targetJobs"), fields["targetJobs"])
	if saysNothing(fields["targetJobs"]) {
		r.errs = append(r.errs, field.Required(path.Child("targetJobs"), "it is for no job and so has no effect: name one, or remove the override"))
	}
	common := layer{
		path: path, manager: manager, time: r.text(path.Child("time"), fields["time"]),
		metadata: r.metadata(path.Child("metadata"), fields["metadata"]),
		podSpec:  r.anything(path.Child("spec"), fields["spec"]),
	}
	return perJob(common, jobs)
}

// jobOverride reads an override of Jobs; without target jobs it is for the JobSet.
func (r *reader) jobOverride(path *field.Path, fields object, manager string) []layer {
	common := layer{
		path: path, manager: manager, time: r.text(path.Child("time"), fields["time"]),
		metadata: r.metadata(path.Child("metadata"), fields["metadata"]),
		ofJob:    true,
	}
	jobs := r.targetJobs(path.Child("targetJobs"), fields["targetJobs"])
	if len(jobs) == 0 {
		common.ofJob = false
		return []layer{common}
	}
	return perJob(common, jobs)
}

func perJob(common layer, jobs []string) []layer {
	layers := make([]layer, 0, len(jobs))
	for _, job := range jobs {
		l := common
		l.job = job
		layers = append(layers, l)
	}
	return layers
}

// owner reads the manager of an override, of which there must be one.
func (r *reader) owner(path *field.Path, fields object) string {
	manager := r.text(path.Child("manager"), fields["manager"])
	if manager == "" {
		r.errs = append(r.errs, field.Required(path.Child("manager"), "name who owns the overrides, such as example.com/team"))
	}
	return manager
}

// podTemplateOverrides reads the list of Trainer 2.1, and the flat entries with a
// manager and a time that were proposed after it. Entries without a manager belong to
// owner; what our mark says is for claimed and withoutOurs to heed.
func (r *reader) podTemplateOverrides(path *field.Path, value any, owner string) []layer {
	var layers []layer
	for i, item := range r.list(path, value) {
		at := path.Index(i)
		fields := r.object(at, item, "targetJobs", "metadata", "spec", "manager", "time")
		manager := owner
		if fields["manager"] != nil {
			manager = r.owner(at, fields)
		}
		ours := marked(fields)
		for _, l := range r.podOverride(at, fields, manager) {
			l.ours = ours
			layers = append(layers, l)
		}
	}
	return layers
}

// jobTemplateOverrides reads the flat entries for Jobs of the proposal.
func (r *reader) jobTemplateOverrides(path *field.Path, value any) []layer {
	var layers []layer
	for i, item := range r.list(path, value) {
		at := path.Index(i)
		fields := r.object(at, item, "targetJobs", "metadata", "manager", "time")
		layers = append(layers, r.jobOverride(at, fields, r.owner(at, fields))...)
	}
	return layers
}

// templateOverrides reads the proposal's entries, each with a manager: either lists of
// overrides for jobs and pods, or one override of pods that stands in the entry itself.
func (r *reader) templateOverrides(path *field.Path, value any) []layer {
	var layers []layer
	for i, item := range r.list(path, value) {
		at := path.Index(i)
		entry := r.anything(at, item)
		manager := r.owner(at, entry)
		if entry["job"] == nil && entry["pod"] == nil {
			fields := r.object(at, item, "targetJobs", "metadata", "spec", "manager", "time")
			layers = append(layers, r.podOverride(at, fields, manager)...)
			continue
		}
		r.object(at, item, "manager", "job", "pod")
		for j, item := range r.list(at.Child("job"), entry["job"]) {
			in := at.Child("job").Index(j)
			layers = append(layers, r.jobOverride(in, r.object(in, item, "time", "targetJobs", "metadata"), manager)...)
		}
		for j, item := range r.list(at.Child("pod"), entry["pod"]) {
			in := at.Child("pod").Index(j)
			layers = append(layers, r.podOverride(in, r.object(in, item, "time", "targetJobs", "metadata", "spec"), manager)...)
		}
	}
	return layers
}

// decode reads a value with its numbers as they are written.
func (r *reader) decode(path *field.Path, data json.RawMessage) any {
	if len(data) == 0 {
		return nil
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	err := decoder.Decode(&value)
	if err != nil {
		r.errs = append(r.errs, field.Invalid(path, field.OmitValueType{}, "it is not JSON: "+err.Error()))
	}
	return value
}
