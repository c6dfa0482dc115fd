// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/internal/overlay"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/mark"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// ManagerAnnotation marks our overrides, with Manager as its value.
const ManagerAnnotation = mark.Annotation

// podTemplateOverrides is the field of Trainer 2.1, a list without owners and without
// keys. Our part is one override for each replicated job. Trainer applies the overrides
// of a job in their order, each as a strategic merge patch: tolerations replace the whole
// list, everything else of a placement is merged by key, as in runtimePatches.
type podTemplateOverrides struct{}

// override is what we read and write of an entry.
type override struct {
	TargetJobs []targetJob      `json:"targetJobs"`
	Metadata   overrideMetadata `json:"metadata"`
	Spec       overrideSpec     `json:"spec,omitzero"`
}

type targetJob struct {
	Name string `json:"name"`
}

type overrideMetadata struct {
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type overrideSpec struct {
	NodeSelector    map[string]string          `json:"nodeSelector,omitempty"`
	Tolerations     []corev1.Toleration        `json:"tolerations,omitempty"`
	SchedulingGates []corev1.PodSchedulingGate `json:"schedulingGates,omitempty"`
}

func (p Placement) podTemplateOverride() (trainjob.PodTemplateOverride, error) {
	annotations := map[string]string{ManagerAnnotation: Manager}
	maps.Copy(annotations, p.Annotations)
	return trainjob.NewPodTemplateOverride(override{
		TargetJobs: []targetJob{{Name: p.Name}},
		Metadata:   overrideMetadata{Labels: p.Labels, Annotations: annotations},
		Spec:       overrideSpec{NodeSelector: p.NodeSelector, Tolerations: p.Tolerations, SchedulingGates: p.SchedulingGates},
	})
}

// split returns our overrides and everybody else's, each in their order.
func split(overrides []trainjob.PodTemplateOverride) (ours, others []trainjob.PodTemplateOverride) {
	for _, o := range overrides {
		if mark.Override(o) {
			ours = append(ours, o)
		} else {
			others = append(others, o)
		}
	}
	return ours, others
}

func (podTemplateOverrides) Path() *field.Path { return field.NewPath("spec", "podTemplateOverrides") }

func (podTemplateOverrides) Has(spec *trainjob.Spec) bool {
	return slices.ContainsFunc(spec.PodTemplateOverrides, mark.Override)
}

func (podTemplateOverrides) Last(spec *trainjob.Spec) bool {
	ours, others := split(spec.PodTemplateOverrides)
	return len(ours) > 0 && !slices.ContainsFunc(spec.PodTemplateOverrides[len(others):], func(o trainjob.PodTemplateOverride) bool { return !mark.Override(o) })
}

func (podTemplateOverrides) Same(a, b *trainjob.Spec) bool {
	one, _ := split(a.PodTemplateOverrides)
	other, _ := split(b.PodTemplateOverrides)
	return len(one) > 0 && slices.EqualFunc(one, other, trainjob.PodTemplateOverride.SemanticallyEqual)
}

func (podTemplateOverrides) Jobs(spec *trainjob.Spec) ([]string, error) {
	ours, _ := split(spec.PodTemplateOverrides)
	var names []string
	for _, o := range ours {
		names = append(names, o.TargetJobs...)
	}
	return names, nil
}

func (podTemplateOverrides) HoldsGate(spec *trainjob.Spec) bool {
	return slices.ContainsFunc(spec.PodTemplateOverrides, holdsGate)
}

func (podTemplateOverrides) Gates(spec *trainjob.Spec, replicatedJob string) bool {
	return slices.ContainsFunc(spec.PodTemplateOverrides, func(o trainjob.PodTemplateOverride) bool {
		return o.Targets(replicatedJob) && holdsGate(o)
	})
}

// holdsGate reports whether an override is ours and has the admission gate.
func holdsGate(o trainjob.PodTemplateOverride) bool {
	var read override
	return mark.Override(o) && o.Decode(&read) == nil &&
		HasAdmissionGate(read.Spec.SchedulingGates)
}

func (podTemplateOverrides) Time(*trainjob.Spec) time.Time { return time.Time{} }

func (f podTemplateOverrides) Set(spec *trainjob.Spec, placements []Placement) (bool, error) {
	_, others := split(spec.PodTemplateOverrides)
	set := trainjob.Spec{PodTemplateOverrides: others}
	for _, p := range placements {
		o, err := p.podTemplateOverride()
		if err != nil {
			return false, err
		}
		set.PodTemplateOverrides = append(set.PodTemplateOverrides, o)
	}
	if f.Last(spec) && f.Same(spec, &set) {
		return false, nil
	}
	spec.PodTemplateOverrides = set.PodTemplateOverrides
	return true, nil
}

func (podTemplateOverrides) Copy(spec, from *trainjob.Spec) {
	ours, _ := split(from.PodTemplateOverrides)
	_, others := split(spec.PodTemplateOverrides)
	spec.PodTemplateOverrides = slices.Concat(others, ours)
}

func (podTemplateOverrides) Drop(spec *trainjob.Spec) {
	_, spec.PodTemplateOverrides = split(spec.PodTemplateOverrides)
}

// Restore has only our own writes to look after: nobody spells overrides again, since
// Trainer 2.1 has no webhook that writes.
func (podTemplateOverrides) Restore(spec, old *trainjob.Spec, own bool) {
	if !own {
		return
	}
	ours, _ := split(spec.PodTemplateOverrides)
	_, others := split(old.PodTemplateOverrides)
	spec.PodTemplateOverrides = slices.Concat(others, ours)
}

func (f podTemplateOverrides) All(spec *trainjob.Spec) ([]trainjob.RuntimePatch, error) {
	return f.convert(spec.PodTemplateOverrides)
}

func (f podTemplateOverrides) Others(spec *trainjob.Spec) ([]trainjob.RuntimePatch, error) {
	_, others := split(spec.PodTemplateOverrides)
	return f.convert(others)
}

// convert makes one entry of overrides, all of them: who owns what does not count when
// they are rendered.
func (podTemplateOverrides) convert(overrides []trainjob.PodTemplateOverride) ([]trainjob.RuntimePatch, error) {
	overrides, err := effective(overrides)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidPatches, err)
	}
	patches, err := overlay.Rendered(overrides)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidPatches, err)
	}
	return patches, nil
}

func (f podTemplateOverrides) UnknownJobs(spec *trainjob.Spec, runtimeJobs []string) field.ErrorList {
	var errs field.ErrorList
	for i, o := range spec.PodTemplateOverrides {
		if mark.Override(o) {
			continue
		}
		for j, name := range o.TargetJobs {
			if !slices.Contains(runtimeJobs, name) {
				errs = append(errs, field.Invalid(f.Path().Index(i).Child("targetJobs").Index(j).Child("name"), name,
					noSuchJob(runtimeJobs)))
			}
		}
	}
	return errs
}

func (f podTemplateOverrides) Refusal() *field.Error {
	return field.Forbidden(f.Path(), "the overrides with the annotation "+ManagerAnnotation+
		" belong to the manager of queued TrainJobs; put your changes into other overrides")
}
