// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

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

// add merges a layer into the entry; it wins over what is there.
func (e *entry) add(l layer) (warnings []string, err *field.Error) {
	if warnings, err = e.stamp(l); err != nil {
		return nil, err
	}
	switch {
	case l.job == "" && len(l.metadata) > 0:
		part := e.jobSet()
		part.Metadata = mergeMetadata(part.Metadata, l.metadata)
	case l.job == "":
	case l.ofJob && len(l.metadata) > 0:
		part := e.jobPart(l.job).template()
		part.Metadata = mergeMetadata(part.Metadata, l.metadata)
	case !l.ofJob && (len(l.metadata) > 0 || l.podSpec != nil):
		warned, err := e.jobPart(l.job).podTemplate().add(l)
		return append(warnings, warned...), err
	default:
		e.jobPart(l.job)
	}
	return warnings, nil
}

// add merges a layer into the patch of a pod template.
func (p *podTemplate) add(l layer) (warnings []string, err *field.Error) {
	p.Metadata = mergeMetadata(p.Metadata, l.metadata)
	if l.podSpec == nil {
		return nil, nil
	}
	for _, list := range ambiguousOrder(p.Spec, l.podSpec) {
		warnings = append(warnings, fmt.Sprintf(
			"%s: several overrides of replicated job %q patch %s; in the one patch made of them its order may differ from the one they gave", l.path, l.job, list))
	}
	merged, mergeErr := mergePodSpecs(p.Spec, l.podSpec)
	if mergeErr != nil {
		return nil, field.Invalid(l.path.Child("spec"), field.OmitValueType{}, "it is no patch of a pod spec: "+mergeErr.Error())
	}
	p.Spec = merged
	return warnings, nil
}

// stamp keeps the latest time of a manager's overrides.
func (e *entry) stamp(l layer) ([]string, *field.Error) {
	if l.time == "" {
		return nil, nil
	}
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

// jobs are the replicated jobs that the entry has a part for.
func (e *entry) jobs() []*jobPart {
	if e.TrainingRuntimeSpec == nil || e.TrainingRuntimeSpec.Template.Spec == nil {
		return nil
	}
	return e.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs
}

func (e *entry) jobPart(name string) *jobPart {
	for _, part := range e.jobs() {
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

// pod is what there is for the pods; nil when there is nothing.
func (p *jobPart) pod() *podTemplate {
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

func (p *jobPart) podTemplate() *podTemplate {
	t := p.template()
	if t.Spec == nil {
		t.Spec = &jobSpec{Template: &podTemplate{}}
	}
	return t.Spec.Template
}

// runtimePatch encodes the entry.
func (e *entry) runtimePatch() (p trainjob.RuntimePatch, err error) {
	data, err := json.Marshal(e)
	if err != nil {
		return p, fmt.Errorf("encoding the runtime patch of manager %q: %w", e.Manager, err)
	}
	err = p.UnmarshalJSON(data)
	return p, err
}

// encoded returns the entries as a TrainJob has them.
func encoded(entries []*entry) ([]trainjob.RuntimePatch, error) {
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
