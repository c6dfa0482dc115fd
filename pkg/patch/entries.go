// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"fmt"
	"maps"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/internal/overlay"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// patchedJob is a replicated job that an entry patches; gated is one that it keeps behind the
// admission gate.
type patchedJob struct {
	name  string
	gated bool
}

// jobsOf returns the replicated jobs that an entry patches, in its order.
func (f Field) jobsOf(p trainjob.RuntimePatch) ([]patchedJob, error) {
	var jobs []patchedJob
	if f == podTemplateOverrides {
		var read override
		gated := p.DecodeInto(&read) == nil && HasAdmissionGate(read.Spec.SchedulingGates)
		for _, name := range p.TargetJobs {
			jobs = append(jobs, patchedJob{name, gated})
		}
		return jobs, nil
	}
	entry, err := p.Decode()
	for _, job := range replicatedJobs(&entry) {
		template := ptr.Deref(ptr.Deref(job.Template, trainer.JobTemplatePatch{}).Spec, trainer.JobSpecPatch{}).Template
		pod := ptr.Deref(ptr.Deref(template, trainer.PodTemplatePatch{}).Spec, trainer.PodSpecPatch{})
		jobs = append(jobs, patchedJob{job.Name, HasAdmissionGate(pod.SchedulingGates)})
	}
	return jobs, err
}

func replicatedJobs(entry *trainer.RuntimePatch) []trainer.ReplicatedJobPatch {
	template := ptr.Deref(entry.TrainingRuntimeSpec, trainer.TrainingRuntimeSpecPatch{}).Template
	return ptr.Deref(ptr.Deref(template, trainer.JobSetTemplatePatch{}).Spec, trainer.JobSetSpecPatch{}).ReplicatedJobs
}

// at is where an entry stands, and jobAt where in it a job is named.
func (f Field) at(i int, p trainjob.RuntimePatch) *field.Path {
	if f == podTemplateOverrides {
		return f.Path().Index(i)
	}
	return f.Path().Key(p.Manager)
}

func (f Field) jobAt(entry *field.Path, i int) *field.Path {
	if f == podTemplateOverrides {
		return entry.Child("targetJobs").Index(i).Child("name")
	}
	return entry.Child("trainingRuntimeSpec", "template", "spec", "replicatedJobs").Index(i).Child("name")
}

// entriesFor makes our entries from the placements, one per replicated job.
func (f Field) entriesFor(placements []Placement) []trainjob.RuntimePatch {
	if f != podTemplateOverrides {
		return trainjob.NewRuntimePatches([]*trainer.RuntimePatch{entryFor(placements)})
	}
	var overrides []override
	for _, p := range placements {
		overrides = append(overrides, p.podTemplateOverride())
	}
	return trainjob.NewRuntimePatches(overrides)
}

// override is what we read and write of an entry of podTemplateOverrides.
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

func (p Placement) podTemplateOverride() override {
	annotations := map[string]string{ManagerAnnotation: Manager}
	maps.Copy(annotations, p.Annotations)
	return override{
		TargetJobs: []targetJob{{Name: p.Name}},
		Metadata:   overrideMetadata{Labels: p.Labels, Annotations: annotations},
		Spec:       overrideSpec{NodeSelector: p.NodeSelector, Tolerations: p.Tolerations, SchedulingGates: p.SchedulingGates},
	}
}

func entryFor(placements []Placement) *trainer.RuntimePatch {
	jobs := make([]trainer.ReplicatedJobPatch, 0, len(placements))
	for _, p := range placements {
		jobs = append(jobs, p.replicatedJobPatch())
	}
	return &trainer.RuntimePatch{
		Manager: Manager,
		TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{
			Template: &trainer.JobSetTemplatePatch{Spec: &trainer.JobSetSpecPatch{ReplicatedJobs: jobs}},
		},
	}
}

func (p Placement) replicatedJobPatch() trainer.ReplicatedJobPatch {
	pod := &trainer.PodTemplatePatch{
		Spec: &trainer.PodSpecPatch{
			NodeSelector:    p.NodeSelector,
			Tolerations:     p.Tolerations,
			SchedulingGates: p.SchedulingGates,
		},
	}
	if len(p.Labels)+len(p.Annotations) > 0 {
		pod.Metadata = &metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations}
	}
	return trainer.ReplicatedJobPatch{
		Name:     p.Name,
		Template: &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: pod}},
	}
}

// rendered returns entries as the newest Trainer has them. Who owns which override does not
// count when they are rendered.
func (f Field) rendered(entries []trainjob.RuntimePatch) ([]trainjob.RuntimePatch, error) {
	if f == runtimePatches {
		return entries, nil
	}
	patches, err := overlay.Rendered(entries)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidPatches, err)
	}
	return patches, nil
}
