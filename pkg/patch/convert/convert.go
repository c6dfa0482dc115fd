// SPDX-License-Identifier: Apache-2.0

// Package convert turns the three ways in which TrainJobs patch their runtime into
// each other: podTemplateOverrides (Trainer 2.1), runtimePatches (2.2 and later), and
// templateOverrides, which were proposed between the two and never released.
//
// Conversions are pure. They change what they have to and carry everything else along,
// fields that nobody knows included. What the other way cannot express is an error that
// names the field; what it says with less precision is a warning. The pods that Trainer
// makes of a converted TrainJob are those that it made of the original, our part aside: a
// manifest loses it, as it is of one admission in one cluster.
package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/internal/overlay"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// DefaultOwner is the manager of what nobody is named as the owner of. It is that of
// the SDK, as in Trainer's migration guide.
const DefaultOwner = overlay.DefaultOwner

// patchesOf makes entries of the layers, and has the rules look at them.
func patchesOf(r *overlay.Reader, layers []overlay.Layer) (patches []trainjob.RuntimePatch, warnings []string, errs field.ErrorList) {
	entries, warnings, errs := overlay.Entries(layers)
	if errs = append(r.Errs, errs...); len(errs) > 0 {
		return nil, nil, errs
	}
	entries, spread := spreadMounts(entries)
	patches = trainjob.NewRuntimePatches(entries)
	told, errs := judged(rules.Create(trainjob.Trainer23, nil, &trainjob.Spec{RuntimePatches: patches}))
	if len(errs) > 0 {
		return nil, nil, errs
	}
	return patches, slices.Concat(warnings, spread, told), nil
}

// judged tells errors, of what the API server or Trainer's webhook would refuse, from fields
// that nobody knows, as in the original: the API server drops them.
func judged(verdict rules.Verdict) (warnings []string, errs field.ErrorList) {
	for _, err := range verdict.Errors {
		if err.Type == field.ErrorTypeForbidden && err.Origin != rules.OriginWebhook {
			warnings = append(warnings, err.Error())
			continue
		}
		err.Detail += "; the API server would refuse this part of what the conversion makes"
		errs = append(errs, err)
	}
	return warnings, errs
}

// override is one element of spec.podTemplateOverrides in the making.
type override struct {
	TargetJobs []overlay.Object `json:"targetJobs"`
	Metadata   overlay.Object   `json:"metadata,omitempty"`
	Spec       overlay.Object   `json:"spec,omitempty"`
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
		TargetJobs: []overlay.Object{{"name": name}},
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
		for i, container := range overlay.Items(spec[list]) {
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

// spreadMounts makes room for volumes that a container mounts more than once. To Trainer
// 2.1 and to every merge a mount is its path, but the list in an entry is keyed by the
// volume, so an entry has one mount of each. The others go into entries right behind it,
// of managers with a number: as their paths differ, none wins over another.
func spreadMounts(entries []*overlay.Entry) (spread []*overlay.Entry, warnings []string) {
	taken := sets.New[string]()
	for _, e := range entries {
		taken.Insert(e.Manager)
	}
	for _, e := range entries {
		spread = append(spread, e)
		for rest := takeSecondMounts(e); rest != nil; rest = takeSecondMounts(rest) {
			rest.Manager, rest.Time = numbered(e.Manager, taken), e.Time
			spread = append(spread, rest)
			warnings = append(warnings, fmt.Sprintf(
				"%s: an entry has one mount of a volume in a container: more of them are in an entry of manager %q", patchesPath, rest.Manager))
		}
	}
	return spread, warnings
}

// numbered returns and takes a manager's name that is not taken.
func numbered(manager string, taken sets.Set[string]) string {
	for n := 2; ; n++ {
		name := fmt.Sprintf("%s-%d", manager, n)
		if !taken.Has(name) {
			taken.Insert(name)
			return name
		}
	}
}

// takeSecondMounts takes every mount but the first of each volume out of the entry, into
// one that has nothing else; nil when there are none.
func takeSecondMounts(e *overlay.Entry) *overlay.Entry {
	var taken *overlay.Entry
	for _, job := range e.Jobs() {
		pod := overlay.Child(job, overlay.PodSpec...)
		for _, list := range []string{"initContainers", "containers"} {
			kept, second := splitContainers(pod[list])
			if len(second) == 0 {
				continue
			}
			pod[list] = kept
			if taken == nil {
				taken = &overlay.Entry{Spec: overlay.Object{}}
			}
			overlay.At(taken.Job(overlay.Text(job["name"])), overlay.PodSpec...)[list] = second
		}
	}
	return taken
}

// splitContainers leaves the list and its containers, which other jobs may share, as they are.
func splitContainers(list any) (kept, second []any) {
	containers, _ := list.([]any)
	kept = slices.Clone(containers)
	for i, c := range containers {
		c, _ := c.(overlay.Object)
		first, rest := splitMounts(c["volumeMounts"])
		if len(rest) == 0 {
			continue
		}
		without := maps.Clone(c)
		without["volumeMounts"] = first
		kept[i] = without
		second = append(second, overlay.Object{"name": c["name"], "volumeMounts": rest})
	}
	return kept, second
}

func splitMounts(list any) (first, rest []any) {
	seen := map[string]bool{}
	for _, m := range overlay.Items(list) {
		name := overlay.Text(m["name"])
		if seen[name] {
			rest = append(rest, m)
		} else {
			first = append(first, m)
		}
		seen[name] = true
	}
	return first, rest
}
