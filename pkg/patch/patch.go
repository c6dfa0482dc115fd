// SPDX-License-Identifier: Apache-2.0

// Package patch owns what TrainJobs patch their runtime with, spec.runtimePatches and, of
// Trainer 2.1, spec.podTemplateOverrides: which part is ours, what stands in it, and how
// it takes its place among the others without changing them.
package patch

import (
	"fmt"
	"maps"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/internal/overlay"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const (
	// Manager is the key of our entry.
	Manager = trainjob.Manager

	// ManagerAnnotation marks our overrides, with Manager as its value.
	ManagerAnnotation = trainjob.ManagerAnnotation

	// AdmissionGate keeps pods of a queued TrainJob from being bound while its
	// Workload is not admitted.
	AdmissionGate = "kueue-trainer.dev/admission"

	// GatedLabel marks pods that were made with AdmissionGate, so that they can be
	// watched without watching every pod of the cluster. Its value is "true" then.
	GatedLabel = "kueue-trainer.dev/gated"
)

// Placement is what an admission adds to the pods of one replicated job. It stands
// in our entry as it is: tolerations replace the pod's whole list there, everything
// else is merged by key (strategic merge patch on JobSetSpec).
type Placement struct {
	// Name of the replicated job.
	Name            string
	Labels          map[string]string
	Annotations     map[string]string
	NodeSelector    map[string]string
	Tolerations     []corev1.Toleration
	SchedulingGates []corev1.PodSchedulingGate
}

// Gated returns the placement of a replicated job that waits for admission.
func Gated(name string) Placement {
	return Placement{
		Name:            name,
		Labels:          map[string]string{GatedLabel: "true"},
		SchedulingGates: []corev1.PodSchedulingGate{{Name: AdmissionGate}},
	}
}

// Freed returns the placement of a replicated job whose gate was removed for somebody else to start it.
// The label stays, with another value: were it the only one, Trainer's server-side apply would leave
// "metadata: null" in the JobSet and be refused.
func Freed(name string) Placement {
	return Placement{Name: name, Labels: map[string]string{GatedLabel: "false"}}
}

// AllFreed returns those of all replicated jobs that our part of spec patches.
func AllFreed(field Field, spec *trainjob.Spec) ([]Placement, error) {
	names, err := field.Jobs(spec)
	return kueuelib.Map(names, func(name *string) Placement { return Freed(*name) }), err
}

// Stamp sets the time of our entry. Trainer's webhook stamps an entry that changes or comes without a time, and writes
// the whole TrainJob again for that, "nvidia.com/gpu: 8" as "8": the API server refuses it for that, where the
// manager's webhook does not put the bytes back.
func Stamp(entries []trainjob.RuntimePatch, now metav1.Time) error {
	for i := range entries {
		if entries[i].Manager != Manager {
			continue
		}
		entry, err := entries[i].Decode()
		if err != nil {
			return err
		}
		entry.Time = &now
		entries[i] = trainjob.NewRuntimePatch(&entry)
	}
	return nil
}

// HasAdmissionGate reports whether AdmissionGate is among the gates of a pod.
func HasAdmissionGate(gates []corev1.PodSchedulingGate) bool {
	return slices.Contains(gates, corev1.PodSchedulingGate{Name: AdmissionGate})
}

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
	for _, job := range trainjob.ReplicatedJobs(&entry) {
		template := ptr.Deref(ptr.Deref(job.Template, trainer.JobTemplatePatch{}).Spec, trainer.JobSpecPatch{}).Template
		pod := ptr.Deref(ptr.Deref(template, trainer.PodTemplatePatch{}).Spec, trainer.PodSpecPatch{})
		jobs = append(jobs, patchedJob{job.Name, HasAdmissionGate(pod.SchedulingGates)})
	}
	return jobs, err
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
	if f == podTemplateOverrides {
		return trainjob.NewRuntimePatches(kueuelib.Map(placements, (*Placement).podTemplateOverride))
	}
	spec := &trainer.JobSetSpecPatch{ReplicatedJobs: kueuelib.Map(placements, (*Placement).replicatedJobPatch)}
	return trainjob.NewRuntimePatches([]*trainer.RuntimePatch{{
		Manager:             Manager,
		TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{Spec: spec}},
	}})
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

func (p *Placement) podTemplateOverride() override {
	annotations := map[string]string{ManagerAnnotation: Manager}
	maps.Copy(annotations, p.Annotations)
	return override{
		TargetJobs: []targetJob{{Name: p.Name}},
		Metadata:   overrideMetadata{Labels: p.Labels, Annotations: annotations},
		Spec:       overrideSpec{NodeSelector: p.NodeSelector, Tolerations: p.Tolerations, SchedulingGates: p.SchedulingGates},
	}
}

func (p *Placement) replicatedJobPatch() trainer.ReplicatedJobPatch {
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
