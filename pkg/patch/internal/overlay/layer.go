// SPDX-License-Identifier: Apache-2.0

// Package overlay reads the ways in which TrainJobs patch their runtime as layers (read.go), merges
// these as Trainer 2.1 does (merge.go), and makes entries of the newest Trainer of them (layer.go).
package overlay

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Layer is what one override says about one replicated job. Layers come in the order
// of their precedence, the strongest last.
type Layer struct {
	Path    *field.Path
	Manager string
	// time is when the override was written, as it was written; empty when that is not known.
	time string
	target
	// Metadata has labels and annotations only.
	Metadata Object
	// podSpec is nil when the override says nothing of it.
	podSpec Object
}

// target is what a layer patches.
type target struct {
	// job is the replicated job; empty for the JobSet itself, of which only metadata can be patched.
	job string
	// ofJob is for the Job itself and not for its pods.
	ofJob bool
}

// Entries puts the layers into one entry per manager. An error tells of layers that
// no order of whole entries can express.
func Entries(layers []Layer) (entries []*Entry, warnings []string, errs field.ErrorList) {
	managers, errs := precedence(layers)
	byManager := make(map[string]*Entry, len(managers))
	for _, manager := range managers {
		e := &Entry{Manager: manager, Spec: Object{}}
		byManager[manager], entries = e, append(entries, e)
	}
	for _, l := range layers {
		warned, err := byManager[l.Manager].add(l)
		warnings = append(warnings, warned...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	return entries, warnings, errs
}

// precedence orders the managers so that those with layers for the same target stand
// as their layers do, and as they first appear otherwise. An error tells of a manager
// that patches a target both before and after another one.
func precedence(layers []Layer) (managers []string, errs field.ErrorList) {
	order := precedes{}
	latest := map[target]Layer{}
	for _, l := range layers {
		if order[l.Manager] == nil {
			managers, order[l.Manager] = append(managers, l.Manager), sets.New[string]()
		}
		last, found := latest[l.target]
		latest[l.target] = l
		if !found || last.Manager == l.Manager || order[last.Manager].Has(l.Manager) {
			continue
		}
		if order[l.Manager].Has(last.Manager) {
			errs = append(errs, field.Invalid(l.Path, l.Manager, fmt.Sprintf(
				"it wins over %s of manager %q, and another override of manager %q has to lose; one entry per manager cannot be both: put the overrides of a manager beside each other, or give this one another manager",
				last.Path, last.Manager, l.Manager)))
			continue
		}
		order.add(last.Manager, l.Manager)
	}
	return order.sorted(managers), errs
}

// precedes holds, for each manager, those that must come after it, by any way.
type precedes map[string]sets.Set[string]

// add has a manager and all behind it come after another one, and after all before that.
func (p precedes) add(before, after string) {
	behind := p[after].Clone().Insert(after)
	for manager, later := range p {
		if manager == before || later.Has(before) {
			p[manager] = later.Union(behind)
		}
	}
}

// sorted takes, again and again, the first manager that need not come after another one.
func (p precedes) sorted(managers []string) []string {
	rest, ordered := slices.Clone(managers), make([]string, 0, len(managers))
	for len(rest) > 0 {
		at := slices.IndexFunc(rest, func(manager string) bool {
			return !slices.ContainsFunc(rest, func(other string) bool { return p[other].Has(manager) })
		})
		ordered, rest = append(ordered, rest[at]), slices.Delete(rest, at, at+1)
	}
	return ordered
}

// Entry is one element of spec.runtimePatches in the making.
type Entry struct {
	Manager string `json:"manager"`
	Time    string `json:"time,omitempty"`
	Spec    Object `json:"trainingRuntimeSpec,omitempty"`
}

// At returns the object at a path below another, which is made where it is missing.
func At(object Object, path ...string) Object {
	for _, key := range path {
		next, ok := object[key].(Object)
		if !ok {
			next = Object{}
			object[key] = next
		}
		object = next
	}
	return object
}

// add merges a layer into the entry; it wins over what is there.
func (e *Entry) add(l Layer) (warnings []string, err *field.Error) {
	if warnings, err = e.stamp(l); err != nil {
		return nil, err
	}
	switch {
	case l.job == "" && len(l.Metadata) > 0:
		MergeMetadata(At(e.Spec, "template", "metadata"), l.Metadata)
	case l.job == "":
	case l.ofJob && len(l.Metadata) > 0:
		MergeMetadata(At(e.Job(l.job), "template", "metadata"), l.Metadata)
	case !l.ofJob && (len(l.Metadata) > 0 || l.podSpec != nil):
		warned, err := addToPod(At(e.Job(l.job), podTemplate...), l)
		return append(warnings, warned...), err
	default:
		e.Job(l.job)
	}
	return warnings, nil
}

func addToPod(pod Object, l Layer) (warnings []string, err *field.Error) {
	if len(l.Metadata) > 0 {
		MergeMetadata(At(pod, "metadata"), l.Metadata)
	}
	if len(l.podSpec) == 0 {
		return nil, nil
	}
	base := At(pod, "spec")
	for _, list := range ambiguousOrder(base, l.podSpec) {
		warnings = append(warnings, fmt.Sprintf(
			"%s: several overrides of replicated job %q patch %s; in the one patch made of them its order may differ from the one they gave", l.Path, l.job, list))
	}
	merged, mergeErr := mergePodSpecs(base, l.podSpec)
	if mergeErr != nil {
		return nil, field.Invalid(l.Path.Child("spec"), field.OmitValueType{}, "it is no patch of a pod spec: "+mergeErr.Error())
	}
	pod["spec"] = merged
	return warnings, nil
}

// stamp keeps the latest time of a manager's overrides.
func (e *Entry) stamp(l Layer) ([]string, *field.Error) {
	if l.time == "" {
		return nil, nil
	}
	now, err := time.Parse(time.RFC3339, l.time)
	if err != nil {
		return nil, field.Invalid(l.Path.Child("time"), l.time, "it must be a time like 2026-02-17T10:00:00Z")
	}
	if before, err := time.Parse(time.RFC3339, e.Time); err == nil && now.Before(before) {
		return []string{fmt.Sprintf("%s: it is older than the override before it; their places in the list decide, not their times", l.Path.Child("time"))}, nil
	}
	e.Time = l.time
	return nil, nil
}

// podTemplate leads from a replicated job to its pods, PodSpec to what these run.
var (
	podTemplate = []string{"template", "spec", "template"}
	PodSpec     = []string{"template", "spec", "template", "spec"}
)

// Jobs are the replicated jobs that the entry has a part for.
func (e *Entry) Jobs() []Object {
	return Items(Child(e.Spec, "template", "spec")["replicatedJobs"])
}

// Job returns the part of a replicated job, which is made where it is missing.
func (e *Entry) Job(name string) Object {
	jobs := e.Jobs()
	if at := slices.IndexFunc(jobs, func(job Object) bool { return job["name"] == name }); at >= 0 {
		return jobs[at]
	}
	js, job := At(e.Spec, "template", "spec"), Object{"name": name}
	list, _ := js["replicatedJobs"].([]any)
	js["replicatedJobs"] = append(list, job)
	return job
}

// DefaultOwner is the manager of what nobody is named as the owner of. It is that of
// the SDK, as in Trainer's migration guide.
const DefaultOwner = "trainer.kubeflow.org/kubeflow-sdk"

// Rendered returns what the newest Trainer's library renders as Trainer 2.1 does the
// overrides, whoever they belong to. It need not be what an API server takes. Trainer 2.1 makes
// something of overrides for some job, and of their metadata labels and annotations. Its CRD and its
// webhook take the rest as well, so a TrainJob that has it is there and has to be described;
// conversion, whose users can fix what they convert, refuses it.
func Rendered(overrides []trainjob.RuntimePatch) ([]trainjob.RuntimePatch, error) {
	r, layers := &Reader{}, []Layer{}
	for i, o := range overrides {
		path := field.NewPath("spec", "podTemplateOverrides").Index(i)
		fields := r.Object(path, o.Fields(), "targetJobs", "metadata", "spec")
		if metadata, ok := fields["metadata"].(Object); ok {
			maps.DeleteFunc(metadata, func(key string, _ any) bool { return key != "labels" && key != "annotations" })
		}
		if len(o.TargetJobs) > 0 {
			layers = append(layers, r.override(path, fields, DefaultOwner, false)...)
		}
	}
	entries, _, errs := Entries(layers)
	if errs = append(r.Errs, errs...); len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	return trainjob.NewRuntimePatches(entries), nil
}
