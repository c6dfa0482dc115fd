// SPDX-License-Identifier: Apache-2.0

// Package patch owns what TrainJobs patch their runtime with, spec.runtimePatches and, of
// Trainer 2.1, spec.podTemplateOverrides: which part is ours, what stands in it, and how
// it takes its place among the others without changing them.
//
// field.go is about either field, entries.go knows in what their entries differ; patch.go has what
// stands in our part. validate.go finds what users may not write, or what does nothing.
package patch

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
		entries[i] = trainjob.NewRuntimePatch(&entry)
	}
	return nil
}

// HasAdmissionGate reports whether AdmissionGate is among the gates of a pod.
func HasAdmissionGate(gates []corev1.PodSchedulingGate) bool {
	return slices.Contains(gates, corev1.PodSchedulingGate{Name: AdmissionGate})
}
