// SPDX-License-Identifier: Apache-2.0

// Package patch owns what TrainJobs patch their runtime with, spec.runtimePatches and, of
// Trainer 2.1, spec.podTemplateOverrides: which part is ours, what stands in it, and how
// it takes its place among the others without changing them.
//
// field.go says what a field of patches is, field_patches.go and field_overrides.go are the two
// that there are; patch.go makes what stands in our part. effective.go leaves out of overrides what
// Trainer 2.1 ignores; reserved.go, validate.go and surplus.go find what users may not write, or
// what does nothing; same.go compares entries.
package patch

import (
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/mark"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const (
	// Manager is the key of our entry.
	Manager = mark.Manager

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
	placements := make([]Placement, 0, len(names))
	for _, name := range names {
		placements = append(placements, Freed(name))
	}
	return placements, err
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
		if entries[i], err = trainjob.NewRuntimePatch(&entry); err != nil {
			return err
		}
	}
	return nil
}

// Entry makes our entry from the placements, one per replicated job.
func Entry(placements []Placement) (trainjob.RuntimePatch, error) {
	jobs := make([]trainer.ReplicatedJobPatch, 0, len(placements))
	for _, p := range placements {
		jobs = append(jobs, p.replicatedJobPatch())
	}
	return trainjob.NewRuntimePatch(&trainer.RuntimePatch{
		Manager: Manager,
		TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{
			Template: &trainer.JobSetTemplatePatch{
				Spec: &trainer.JobSetSpecPatch{ReplicatedJobs: jobs},
			},
		},
	})
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

// Jobs names the replicated jobs that an entry patches, in its order.
func Jobs(p trainjob.RuntimePatch) ([]string, error) {
	entry, err := p.Decode()
	if err != nil {
		return nil, err
	}
	jobs := replicatedJobs(&entry)
	names := make([]string, 0, len(jobs))
	for _, job := range jobs {
		names = append(names, job.Name)
	}
	return names, nil
}

// HoldsGate reports whether an entry keeps any replicated job behind the admission gate.
// An entry that cannot be read holds none.
func HoldsGate(p trainjob.RuntimePatch) bool {
	entry, err := p.Decode()
	return err == nil && slices.ContainsFunc(replicatedJobs(&entry), gatedJob)
}

// Gates reports whether an entry keeps the named replicated job behind the admission gate.
func Gates(p trainjob.RuntimePatch, replicatedJob string) bool {
	entry, err := p.Decode()
	return err == nil && slices.ContainsFunc(replicatedJobs(&entry), func(job trainer.ReplicatedJobPatch) bool {
		return job.Name == replicatedJob && gatedJob(job)
	})
}

func replicatedJobs(entry *trainer.RuntimePatch) []trainer.ReplicatedJobPatch {
	spec := entry.TrainingRuntimeSpec
	if spec == nil || spec.Template == nil || spec.Template.Spec == nil {
		return nil
	}
	return spec.Template.Spec.ReplicatedJobs
}

func gatedJob(job trainer.ReplicatedJobPatch) bool {
	if job.Template == nil || job.Template.Spec == nil || job.Template.Spec.Template == nil || job.Template.Spec.Template.Spec == nil {
		return false
	}
	return HasAdmissionGate(job.Template.Spec.Template.Spec.SchedulingGates)
}

// find returns our entry, or nil.
func find(patches []trainjob.RuntimePatch) *trainjob.RuntimePatch {
	return FindManager(patches, Manager)
}

// FindManager returns the entry of a manager, or nil.
func FindManager(patches []trainjob.RuntimePatch, manager string) *trainjob.RuntimePatch {
	for i := range patches {
		if patches[i].Manager == manager {
			return &patches[i]
		}
	}
	return nil
}

// Others returns every entry but ours, in order. The result is a new slice.
func Others(patches []trainjob.RuntimePatch) []trainjob.RuntimePatch {
	return slices.DeleteFunc(slices.Clone(patches), func(p trainjob.RuntimePatch) bool {
		return p.Manager == Manager
	})
}

// With returns the other entries in their order and then ours: later entries win.
func With(patches []trainjob.RuntimePatch, ours trainjob.RuntimePatch) []trainjob.RuntimePatch {
	return append(Others(patches), ours)
}

// Last reports whether our entry is there exactly once and after all others.
func Last(patches []trainjob.RuntimePatch) bool {
	i := slices.IndexFunc(patches, func(p trainjob.RuntimePatch) bool { return p.Manager == Manager })
	return i >= 0 && i == len(patches)-1
}

// Same reports whether two entries say the same, the time stamp aside, which
// Trainer's webhook writes. Fields that Trainer's types do not know count by their
// bytes: with any of them different the entries differ.
func Same(a, b trainjob.RuntimePatch) bool {
	if a.Equal(b) {
		return true
	}
	return sameWithoutTime(a, b)
}

// HasAdmissionGate reports whether AdmissionGate is among the gates of a pod.
func HasAdmissionGate(gates []corev1.PodSchedulingGate) bool {
	return slices.Contains(gates, corev1.PodSchedulingGate{Name: AdmissionGate})
}
