// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Entry is one element of spec.runtimePatches in the making.
type Entry struct {
	Manager             string    `json:"manager"`
	Time                string    `json:"time,omitempty"`
	TrainingRuntimeSpec *specPart `json:"trainingRuntimeSpec,omitempty"`
}

type specPart struct {
	Template *jobSetPart `json:"template,omitempty"`
}

type jobSetPart struct {
	Metadata Object       `json:"metadata,omitempty"`
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
	Metadata Object   `json:"metadata,omitempty"`
	Spec     *jobSpec `json:"spec,omitempty"`
}

type jobSpec struct {
	Template *podTemplate `json:"template,omitempty"`
}

type podTemplate struct {
	Metadata Object `json:"metadata,omitempty"`
	Spec     Object `json:"spec,omitempty"`
}

// add merges a layer into the entry; it wins over what is there.
func (e *Entry) add(l Layer) (warnings []string, err *field.Error) {
	if warnings, err = e.stamp(l); err != nil {
		return nil, err
	}
	switch {
	case l.job == "" && len(l.Metadata) > 0:
		part := e.jobSet()
		part.Metadata = mergeMetadata(part.Metadata, l.Metadata)
	case l.job == "":
	case l.ofJob && len(l.Metadata) > 0:
		part := e.JobPart(l.job).template()
		part.Metadata = mergeMetadata(part.Metadata, l.Metadata)
	case !l.ofJob && (len(l.Metadata) > 0 || l.podSpec != nil):
		warned, err := e.JobPart(l.job).PodTemplate().add(l)
		return append(warnings, warned...), err
	default:
		e.JobPart(l.job)
	}
	return warnings, nil
}

// add merges a layer into the patch of a pod template.
func (p *podTemplate) add(l Layer) (warnings []string, err *field.Error) {
	p.Metadata = mergeMetadata(p.Metadata, l.Metadata)
	if l.podSpec == nil {
		return nil, nil
	}
	for _, list := range ambiguousOrder(p.Spec, l.podSpec) {
		warnings = append(warnings, fmt.Sprintf(
			"%s: several overrides of replicated job %q patch %s; in the one patch made of them its order may differ from the one they gave", l.Path, l.job, list))
	}
	merged, mergeErr := mergePodSpecs(p.Spec, l.podSpec)
	if mergeErr != nil {
		return nil, field.Invalid(l.Path.Child("spec"), field.OmitValueType{}, "it is no patch of a pod spec: "+mergeErr.Error())
	}
	p.Spec = merged
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

func (e *Entry) jobSet() *jobSetPart {
	if e.TrainingRuntimeSpec == nil {
		e.TrainingRuntimeSpec = &specPart{Template: &jobSetPart{}}
	}
	return e.TrainingRuntimeSpec.Template
}

// Jobs are the replicated jobs that the entry has a part for.
func (e *Entry) Jobs() []*jobPart {
	if e.TrainingRuntimeSpec == nil || e.TrainingRuntimeSpec.Template.Spec == nil {
		return nil
	}
	return e.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs
}

// JobPart returns the part of a replicated job, which is made where it is missing.
func (e *Entry) JobPart(name string) *jobPart {
	for _, part := range e.Jobs() {
		if part.Name == name {
			return part
		}
	}
	js := e.jobSet()
	if js.Spec == nil {
		js.Spec = &jobSetInner{}
	}
	part := &jobPart{Name: name}
	js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, part)
	return part
}

// Pod is what there is for the pods; nil when there is nothing.
func (p *jobPart) Pod() *podTemplate {
	if p.Template == nil || p.Template.Spec == nil {
		return nil
	}
	return p.Template.Spec.Template
}

func (p *jobPart) template() *jobTemplate {
	if p.Template == nil {
		p.Template = &jobTemplate{}
	}
	return p.Template
}

func (p *jobPart) PodTemplate() *podTemplate {
	t := p.template()
	if t.Spec == nil {
		t.Spec = &jobSpec{Template: &podTemplate{}}
	}
	return t.Spec.Template
}

// runtimePatch encodes the entry.
func (e *Entry) runtimePatch() (p trainjob.RuntimePatch, err error) {
	data, err := json.Marshal(e)
	if err != nil {
		return p, fmt.Errorf("encoding the runtime patch of manager %q: %w", e.Manager, err)
	}
	err = p.UnmarshalJSON(data)
	return p, err
}

// Encode returns the entries as a TrainJob has them.
func Encode(entries []*Entry) ([]trainjob.RuntimePatch, error) {
	var patches []trainjob.RuntimePatch
	for _, e := range entries {
		p, err := e.runtimePatch()
		if err != nil {
			return nil, err
		}
		patches = append(patches, p)
	}
	return patches, nil
}
