// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// layer is what one override says about one replicated job. Layers come in the order
// of their precedence, the strongest last.
type layer struct {
	path    *field.Path
	manager string
	// time is when the override was written, as it was written; empty when that is not known.
	time string
	// job is the replicated job; empty for the JobSet itself, of which only metadata can be patched.
	job string

	// metadata is that of the JobSet, of the Job or of the pod, with labels and annotations only.
	metadata   object
	ofJob      bool
	podSpec    object
	hasPodSpec bool
}

// entry is one element of spec.runtimePatches in the making.
type entry struct {
	Manager             string    `json:"manager"`
	Time                string    `json:"time,omitempty"`
	TrainingRuntimeSpec *specPart `json:"trainingRuntimeSpec,omitempty"`
}

type specPart struct {
	Template *jobSetPart `json:"template,omitempty"`
}

type jobSetPart struct {
	Metadata object       `json:"metadata,omitempty"`
	Spec     *jobSetInner `json:"spec,omitempty"`
}

type jobSetInner struct {
	ReplicatedJobs []*jobPart `json:"replicatedJobs,omitempty"`
}

type jobPart struct {
	Name     string       `json:"name"`
	Template *jobTemplate `json:"template,omitempty"`
}

type jobTemplate struct {
	Metadata object   `json:"metadata,omitempty"`
	Spec     *jobSpec `json:"spec,omitempty"`
}

type jobSpec struct {
	Template *podTemplate `json:"template,omitempty"`
}

type podTemplate struct {
	Metadata object `json:"metadata,omitempty"`
	Spec     object `json:"spec,omitempty"`
}

// target is what a layer patches: the JobSet, a Job or the pods of a Job.
type target struct {
	job   string
	ofJob bool
}

// entriesOf puts the layers into one entry per manager. An error tells of layers that
// no order of whole entries can express.
func entriesOf(layers []layer) (entries []*entry, warnings []string, errs field.ErrorList) {
	managers, errs := precedence(layers)
	byManager := make(map[string]*entry, len(managers))
	for _, manager := range managers {
		e := &entry{Manager: manager}
		byManager[manager], entries = e, append(entries, e)
	}
	for _, l := range layers {
		warned, err := byManager[l.manager].add(l)
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
func precedence(layers []layer) (managers []string, errs field.ErrorList) {
	after := map[string][]string{} // after[m] must come after m.
	latest := map[target]layer{}
	for _, l := range layers {
		if !slices.Contains(managers, l.manager) {
			managers = append(managers, l.manager)
		}
		key := target{l.job, l.ofJob}
		last, found := latest[key]
		latest[key] = l
		if !found || last.manager == l.manager {
			continue
		}
		if reaches(after, l.manager, last.manager) {
			errs = append(errs, field.Invalid(l.path, l.manager, fmt.Sprintf(
				"it wins over %s of manager %q, and another override of manager %q has to lose; one entry per manager cannot be both: put the overrides of a manager beside each other, or give this one another manager",
				last.path, last.manager, l.manager)))
			continue
		}
		after[last.manager] = append(after[last.manager], l.manager)
	}
	return sorted(managers, after), errs
}

// reaches reports whether to must come after from.
func reaches(after map[string][]string, from, to string) bool {
	return slices.ContainsFunc(after[from], func(next string) bool {
		return next == to || reaches(after, next, to)
	})
}

// sorted takes, again and again, the first manager that need not come after another one.
func sorted(managers []string, after map[string][]string) []string {
	rest, ordered := slices.Clone(managers), make([]string, 0, len(managers))
	for len(rest) > 0 {
		at := slices.IndexFunc(rest, func(m string) bool {
			return !slices.ContainsFunc(rest, func(other string) bool { return slices.Contains(after[other], m) })
		})
		ordered = append(ordered, rest[at])
		rest = slices.Delete(rest, at, at+1)
	}
	return ordered
}

// add merges a layer into the entry; it wins over what is there.
func (e *entry) add(l layer) (warnings []string, err *field.Error) {
	if l.time != "" {
		if warnings, err = e.stamp(l); err != nil {
			return nil, err
		}
	}
	if l.job == "" {
		if len(l.metadata) > 0 {
			part := e.jobSet()
			part.Metadata = mergeMetadata(part.Metadata, l.metadata)
		}
		return warnings, nil
	}
	part := e.jobPart(l.job)
	if l.ofJob {
		if len(l.metadata) > 0 {
			part.template().Metadata = mergeMetadata(part.template().Metadata, l.metadata)
		}
		return warnings, nil
	}
	if len(l.metadata) == 0 && !l.hasPodSpec {
		return warnings, nil
	}
	pod := part.podTemplate()
	if len(l.metadata) > 0 {
		pod.Metadata = mergeMetadata(pod.Metadata, l.metadata)
	}
	if l.hasPodSpec {
		for _, list := range ambiguousOrder(pod.Spec, l.podSpec) {
			warnings = append(warnings, fmt.Sprintf(
				"%s: several overrides of replicated job %q patch %s; in the one patch made of them its order may differ from the one they gave", l.path, l.job, list))
		}
		merged, mergeErr := mergePodSpecs(pod.Spec, l.podSpec)
		if mergeErr != nil {
			return nil, field.Invalid(l.path.Child("spec"), field.OmitValueType{}, "it is no patch of a pod spec: "+mergeErr.Error())
		}
		pod.Spec = merged
	}
	return warnings, nil
}

// stamp keeps the latest time of a manager's overrides.
func (e *entry) stamp(l layer) ([]string, *field.Error) {
	now, err := time.Parse(time.RFC3339, l.time)
	if err != nil {
		return nil, field.Invalid(l.path.Child("time"), l.time, "it must be a time like 2026-02-17T10:00:00Z")
	}
	if before, err := time.Parse(time.RFC3339, e.Time); err == nil && now.Before(before) {
		return []string{fmt.Sprintf("%s: it is older than the override before it; their places in the list decide, not their times", l.path.Child("time"))}, nil
	}
	e.Time = l.time
	return nil, nil
}

func (e *entry) jobSet() *jobSetPart {
	if e.TrainingRuntimeSpec == nil {
		e.TrainingRuntimeSpec = &specPart{Template: &jobSetPart{}}
	}
	return e.TrainingRuntimeSpec.Template
}

func (e *entry) jobPart(name string) *jobPart {
	js := e.jobSet()
	if js.Spec == nil {
		js.Spec = &jobSetInner{}
	}
	for _, part := range js.Spec.ReplicatedJobs {
		if part.Name == name {
			return part
		}
	}
	part := &jobPart{Name: name}
	js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, part)
	return part
}

func (p *jobPart) template() *jobTemplate {
	if p.Template == nil {
		p.Template = &jobTemplate{}
	}
	return p.Template
}

func (p *jobPart) podTemplate() *podTemplate {
	t := p.template()
	if t.Spec == nil {
		t.Spec = &jobSpec{Template: &podTemplate{}}
	}
	return t.Spec.Template
}
