// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/mark"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Metadata is what a TrainJob gives its JobSet: spec.labels and spec.annotations of
// Trainer 2.1, template.metadata of runtime patches.
type Metadata struct {
	Labels, Annotations map[string]string
}

// override is one element of spec.podTemplateOverrides in the making.
type override struct {
	TargetJobs []targetJob `json:"targetJobs"`
	Metadata   object      `json:"metadata,omitempty"`
	Spec       object      `json:"spec,omitempty"`
}

type targetJob struct {
	Name string `json:"name"`
}

// ToPodTemplateOverrides spreads the entries over one override for each replicated job
// that one of them patches, in their order. Those of our entry carry our mark. Metadata of
// the JobSet comes back for the TrainJob's spec, where Trainer 2.1 has it.
func ToPodTemplateOverrides(patches []trainjob.RuntimePatch) (overrides []trainjob.PodTemplateOverride, metadata Metadata, warnings []string, errs field.ErrorList) {
	r := &reader{}
	data, err := json.Marshal(patches)
	if err != nil {
		return nil, Metadata{}, nil, field.ErrorList{field.InternalError(patchesPath, err)}
	}
	return overridesOf(r, r.runtimePatches(patchesPath, r.decode(patchesPath, data)))
}

// patch is an entry of spec.runtimePatches as it is read.
type patch struct {
	path    *field.Path
	manager string
	// metadata is for the JobSet.
	metadata  object
	overrides []override
}

// overridesOf makes overrides of the entries, and has the rules look at them.
func overridesOf(r *reader, patches []patch) (overrides []trainjob.PodTemplateOverride, metadata Metadata, warnings []string, errs field.ErrorList) {
	var managers []string
	for _, p := range patches {
		metadata.add(p.metadata)
		if p.manager != mark.Manager {
			managers = append(managers, p.manager)
		}
		for _, o := range p.overrides {
			if p.manager == mark.Manager {
				o.mark()
			}
			overrides = append(overrides, o.raw())
		}
	}
	if len(r.errs) > 0 {
		return nil, Metadata{}, nil, r.errs
	}
	if len(managers) > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"%s: overrides have no owners and no times: those of %s are lost", patchesPath, strings.Join(managers, ", ")))
	}
	told, errs := judged(rules.Create(trainjob.Trainer21, nil, rules.TrainJob{Overrides: overrides}))
	if len(errs) > 0 {
		return nil, Metadata{}, nil, errs
	}
	return overrides, metadata, append(warnings, told...), nil
}

// raw encodes what was decoded from JSON, which cannot fail.
func (o override) raw() (raw trainjob.PodTemplateOverride) {
	data, _ := json.Marshal(o)
	_ = raw.UnmarshalJSON(data)
	return raw
}

// runtimePatches reads the entries of Trainer 2.2 and later.
func (r *reader) runtimePatches(path *field.Path, value any) []patch {
	var patches []patch
	for i, item := range r.list(path, value) {
		patches = append(patches, r.runtimePatch(path.Index(i), item))
	}
	return patches
}

func (r *reader) runtimePatch(path *field.Path, value any) patch {
	fields := r.object(path, value, "manager", "time", "trainingRuntimeSpec")
	p := patch{path: path, manager: r.owner(path, fields)}
	path = path.Child("trainingRuntimeSpec")
	spec := r.object(path, fields["trainingRuntimeSpec"], "template")
	path = path.Child("template")
	template := r.object(path, spec["template"], "metadata", "spec")
	p.metadata = r.metadata(path.Child("metadata"), template["metadata"])
	path = path.Child("spec")
	jobSet := r.object(path, template["spec"], "replicatedJobs")
	path = path.Child("replicatedJobs")
	for i, item := range r.list(path, jobSet["replicatedJobs"]) {
		p.overrides = append(p.overrides, r.replicatedJob(path.Index(i), item))
	}
	return p
}

// add merges metadata of a later entry.
func (m *Metadata) add(metadata object) {
	merge := func(into *map[string]string, value any) {
		items, _ := value.(object)
		for key, value := range items {
			if *into == nil {
				*into = map[string]string{}
			}
			(*into)[key] = text(value)
		}
	}
	merge(&m.Labels, metadata["labels"])
	merge(&m.Annotations, metadata["annotations"])
}

// replicatedJob reads the patch of one replicated job.
func (r *reader) replicatedJob(path *field.Path, value any) override {
	fields := r.object(path, value, "name", "template")
	name := r.text(path.Child("name"), fields["name"])
	if name == "" {
		r.errs = append(r.errs, field.Required(path.Child("name"), "name a replicated job of the runtime"))
	}
	path = path.Child("template")
	template := r.object(path, fields["template"], "metadata", "spec")
	if len(r.metadata(path.Child("metadata"), template["metadata"])) > 0 {
		r.errs = append(r.errs, field.Forbidden(path.Child("metadata"),
			"pod template overrides reach pods only, not the Job: move the labels and annotations into the metadata of its pod template"))
	}
	path = path.Child("spec")
	spec := r.object(path, template["spec"], "template")
	path = path.Child("template")
	pod := r.object(path, spec["template"], "metadata", "spec")
	return override{
		TargetJobs: []targetJob{{Name: name}},
		Metadata:   r.metadata(path.Child("metadata"), pod["metadata"]),
		Spec:       r.podSpec(path.Child("spec"), pod["spec"]),
	}
}

// Fields that Trainer patches since 2.2 and cannot override in 2.1 (PodTemplateSpecOverride
// and ContainerOverride there).
var (
	newInPods       = []string{"securityContext", "terminationGracePeriodSeconds"}
	newInContainers = []string{"securityContext"}
)

// podSpec reads a pod spec and refuses what Trainer 2.1 cannot override.
func (r *reader) podSpec(path *field.Path, value any) object {
	spec := r.anything(path, value)
	r.refuse(path, spec, newInPods)
	for _, list := range []string{"initContainers", "containers"} {
		items, _ := spec[list].([]any)
		for i, item := range items {
			container, _ := item.(object)
			r.refuse(path.Child(list).Index(i), container, newInContainers)
		}
	}
	return spec
}

func (r *reader) refuse(path *field.Path, fields object, keys []string) {
	for _, key := range keys {
		if fields[key] != nil {
			r.errs = append(r.errs, field.Forbidden(path.Child(key), "Trainer 2.1 cannot override it: set it in a runtime of the TrainJob's own, or remove it"))
		}
	}
}

// mentions reports whether any of the keys is set.
func mentions(fields object, keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return fields[key] != nil })
}
