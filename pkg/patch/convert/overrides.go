// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/internal/overlay"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// override is one element of spec.podTemplateOverrides in the making.
type override struct {
	TargetJobs []targetJob    `json:"targetJobs"`
	Metadata   overlay.Object `json:"metadata,omitempty"`
	Spec       overlay.Object `json:"spec,omitempty"`
}

type targetJob struct {
	Name string `json:"name"`
}

// older is what Trainer 2.1 has in the place of spec.runtimePatches.
type older struct {
	// metadata becomes spec.labels and spec.annotations, which are for the JobSet.
	metadata  overlay.Object
	overrides []trainjob.RuntimePatch
	// managers are those of the entries.
	managers []string
}

// olderOf makes overrides of entries, and has the rules look at them. Our entry is left out.
func olderOf(r *overlay.Reader, value any) (made older, warnings []string, errs field.ErrorList) {
	made.metadata = overlay.Object{}
	for i, item := range r.List(patchesPath, value) {
		made.add(r, patchesPath.Index(i), item)
	}
	if len(r.Errs) > 0 {
		return made, nil, r.Errs
	}
	if len(made.managers) > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"%s: overrides have no owners and no times: those of %s are lost", patchesPath, strings.Join(made.managers, ", ")))
	}
	told, errs := judged(rules.Create(trainjob.Trainer21, nil, &trainjob.Spec{PodTemplateOverrides: made.overrides}))
	return made, append(warnings, told...), errs
}

// add reads an entry of Trainer 2.2 and later.
func (made *older) add(r *overlay.Reader, path *field.Path, value any) {
	fields := r.Object(path, value, "manager", "time", "trainingRuntimeSpec")
	manager := r.Owner(path, fields)
	if manager == trainjob.Manager {
		r.Leave(path)
		return
	}
	made.managers = append(made.managers, manager)
	path, spec := r.Child(path, fields, "trainingRuntimeSpec", "template")
	path, template := r.Child(path, spec, "template", "metadata", "spec")
	metadata := r.Metadata(path, template)
	path, jobSet := r.Child(path, template, "spec", "replicatedJobs")
	path = path.Child("replicatedJobs")
	for i, item := range r.List(path, jobSet["replicatedJobs"]) {
		made.overrides = append(made.overrides, trainjob.NewRuntimePatch(replicatedJob(r, path.Index(i), item)))
	}
	overlay.MergeMetadata(made.metadata, metadata)
}

func replicatedJob(r *overlay.Reader, path *field.Path, value any) override {
	fields := r.Object(path, value, "name", "template")
	name := r.Job(path, fields)
	path, template := r.Child(path, fields, "template", "metadata", "spec")
	if len(r.Metadata(path, template)) > 0 {
		r.Errs = append(r.Errs, field.Forbidden(path.Child("metadata"),
			"pod template overrides reach pods only, not the Job: move the labels and annotations into the metadata of its pod template"))
	}
	path, spec := r.Child(path, template, "spec", "template")
	path, pod := r.Child(path, spec, "template", "metadata", "spec")
	return override{
		TargetJobs: []targetJob{{Name: name}},
		Metadata:   r.Metadata(path, pod),
		Spec:       podSpec(r, path.Child("spec"), pod["spec"]),
	}
}

// podSpec reads a pod spec and refuses what Trainer patches since 2.2 and cannot override in
// 2.1 (PodTemplateSpecOverride and ContainerOverride there).
func podSpec(r *overlay.Reader, path *field.Path, value any) overlay.Object {
	spec := r.Anything(path, value)
	refuse(r, path, spec, "securityContext", "terminationGracePeriodSeconds")
	for _, list := range []string{"initContainers", "containers"} {
		items, _ := spec[list].([]any)
		for i, item := range items {
			container, _ := item.(overlay.Object)
			refuse(r, path.Child(list).Index(i), container, "securityContext")
		}
	}
	return spec
}

func refuse(r *overlay.Reader, path *field.Path, fields overlay.Object, keys ...string) {
	for _, key := range keys {
		if fields[key] != nil {
			r.Errs = append(r.Errs, field.Forbidden(path.Child(key), "Trainer 2.1 cannot override it: set it in a runtime of the TrainJob's own, or remove it"))
		}
	}
}
