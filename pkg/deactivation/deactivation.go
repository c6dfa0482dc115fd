// SPDX-License-Identifier: Apache-2.0

// Package deactivation knows which Workloads of TrainJobs are about to be deactivated. Kueue counts nothing
// of a Workload whose spec.active is false, whatever pods its job still has. So the webhook keeps one that
// has quota active, and marks it; the manager evicts it, and deactivates it when the last pod is gone.
package deactivation

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// Annotation marks a Workload that is to be deactivated.
const Annotation = "kueue-trainer.dev/deactivate"

// Mark marks wl.
func Mark(wl *kueue.Workload) { metav1.SetMetaDataAnnotation(&wl.ObjectMeta, Annotation, "true") }

// Marked reports whether wl is marked, whatever became of it.
func Marked(wl *kueue.Workload) bool { return metav1.HasAnnotation(wl.ObjectMeta, Annotation) }

// Pending reports whether wl is to be deactivated, by its mark or by Kueue's condition DeactivationTarget.
func Pending(wl *kueue.Workload) bool {
	return kueuelib.IsActive(wl) && !kueuelib.IsFinished(wl) && (Marked(wl) || targetOf(wl) != nil)
}

// ByKueue reports whether it is Kueue that is about to deactivate wl.
func ByKueue(wl *kueue.Workload) bool { return Pending(wl) && targetOf(wl) != nil }

// Why returns the cause and the message that Kueue gives to the eviction of wl when it is deactivated; somebody's
// deactivation has no cause.
func Why(wl *kueue.Workload) (cause, message string) {
	message = "The workload is deactivated"
	if target := targetOf(wl); target != nil {
		return target.Reason, fmt.Sprintf("%s due to %s", message, target.Message)
	}
	return "", message
}

func targetOf(wl *kueue.Workload) *metav1.Condition {
	return kueuelib.True(wl.Status.Conditions, kueue.WorkloadDeactivationTarget)
}
