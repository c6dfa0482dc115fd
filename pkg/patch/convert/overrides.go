// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/internal/overlay"
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
	TargetJobs []targetJob    `json:"targetJobs"`
	Metadata   overlay.Object `json:"metadata,omitempty"`
	Spec       overlay.Object `json:"spec,omitempty"`
}

type targetJob struct {
	Name string `json:"name"`
}

// patch is an entry of spec.runtimePatches as it is read.
type patch struct {
	path    *field.Path
	manager string
	// metadata is for the JobSet.
	metadata  overlay.Object
	overrides []override
}

// overridesOf makes overrides of the entries, and has the rules look at them.
func overridesOf(r *overlay.Reader, patches []patch) (overrides []trainjob.RuntimePatch, metadata Metadata, warnings []string, errs field.ErrorList) {
	var managers []string
	for _, p := range patches {
		metadata.add(p.metadata)
		managers = append(managers, p.manager)
		for _, o := range p.overrides {
			overrides = append(overrides, o.raw())
		}
	}
	if len(r.Errs) > 0 {
		return nil, Metadata{}, nil, r.Errs
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
func (o override) raw() (raw trainjob.RuntimePatch) {
	data, _ := json.Marshal(o)
	_ = raw.UnmarshalJSON(data)
	return raw
}

// runtimePatches reads the entries of Trainer 2.2 and later.
func runtimePatches(r *overlay.Reader, path *field.Path, value any) []patch {
	var patches []patch
	for i, item := range r.List(path, value) {
		patches = append(patches, runtimePatch(r, path.Index(i), item))
	}
	return patches
}

func runtimePatch(r *overlay.Reader, path *field.Path, value any) patch {
	fields := r.Object(path, value, "manager", "time", "trainingRuntimeSpec")
	p := patch{path: path, manager: r.Owner(path, fields)}
	path = path.Child("trainingRuntimeSpec")
	spec := r.Object(path, fields["trainingRuntimeSpec"], "template")
	path = path.Child("template")
	template := r.Object(path, spec["template"], "metadata", "spec")
	p.metadata = r.Metadata(path.Child("metadata"), template["metadata"])
	path = path.Child("spec")
	jobSet := r.Object(path, template["spec"], "replicatedJobs")
	path = path.Child("replicatedJobs")
	for i, item := range r.List(path, jobSet["replicatedJobs"]) {
		p.overrides = append(p.overrides, replicatedJob(r, path.Index(i), item))
	}
	return p
}

// add merges metadata of a later entry.
func (m *Metadata) add(metadata overlay.Object) {
	merge := func(into *map[string]string, value any) {
		items, _ := value.(overlay.Object)
		for key, value := range items {
			if *into == nil {
				*into = map[string]string{}
			}
			(*into)[key] = overlay.Text(value)
		}
	}
	merge(&m.Labels, metadata["labels"])
	merge(&m.Annotations, metadata["annotations"])
}

// replicatedJob reads the patch of one replicated job.
func replicatedJob(r *overlay.Reader, path *field.Path, value any) override {
	fields := r.Object(path, value, "name", "template")
	name := r.Text(path.Child("name"), fields["name"])
	if name == "" {
		r.Errs = append(r.Errs, field.Required(path.Child("name"), "name a replicated job of the runtime"))
	}
	path = path.Child("template")
	template := r.Object(path, fields["template"], "metadata", "spec")
	if len(r.Metadata(path.Child("metadata"), template["metadata"])) > 0 {
		r.Errs = append(r.Errs, field.Forbidden(path.Child("metadata"),
			"pod template overrides reach pods only, not the Job: move the labels and annotations into the metadata of its pod template"))
	}
	path = path.Child("spec")
	spec := r.Object(path, template["spec"], "template")
	path = path.Child("template")
	pod := r.Object(path, spec["template"], "metadata", "spec")
	return override{
		TargetJobs: []targetJob{{Name: name}},
		Metadata:   r.Metadata(path.Child("metadata"), pod["metadata"]),
		Spec:       podSpec(r, path.Child("spec"), pod["spec"]),
	}
}

// Fields that Trainer patches since 2.2 and cannot override in 2.1 (PodTemplateSpecOverride
// and ContainerOverride there).
var (
	newInPods       = []string{"securityContext", "terminationGracePeriodSeconds"}
	newInContainers = []string{"securityContext"}
)

// podSpec reads a pod spec and refuses what Trainer 2.1 cannot override.
func podSpec(r *overlay.Reader, path *field.Path, value any) overlay.Object {
	spec := r.Anything(path, value)
	refuse(r, path, spec, newInPods)
	for _, list := range []string{"initContainers", "containers"} {
		items, _ := spec[list].([]any)
		for i, item := range items {
			container, _ := item.(overlay.Object)
			refuse(r, path.Child(list).Index(i), container, newInContainers)
		}
	}
	return spec
}

func refuse(r *overlay.Reader, path *field.Path, fields overlay.Object, keys []string) {
	for _, key := range keys {
		if fields[key] != nil {
			r.Errs = append(r.Errs, field.Forbidden(path.Child(key), "Trainer 2.1 cannot override it: set it in a runtime of the TrainJob's own, or remove it"))
		}
	}
}

// mentions reports whether any of the keys is set.
func mentions(fields overlay.Object, keys ...string) bool {
	return slices.ContainsFunc(keys, func(key string) bool { return fields[key] != nil })
}
