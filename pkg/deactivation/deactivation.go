// SPDX-License-Identifier: Apache-2.0

// Package deactivation knows which Workloads of TrainJobs are about to be deactivated. Kueue counts nothing
// of a Workload whose spec.active is false, whatever pods its job still has. So the webhook keeps one that
// has quota active, and marks it; the manager stops its job, and deactivates it when the last pod is gone.
package deactivation

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// Annotation is the mark: since when the Workload is to be deactivated, in the format of RFC 3339.
const Annotation = "kueue-trainer.dev/deactivate-since"

// Mark notes that wl is to be deactivated. One that Kueue is about to deactivate says so by itself.
func Mark(wl *kueue.Workload, now time.Time) {
	if !Since(wl).IsZero() {
		return
	}
	if wl.Annotations == nil {
		wl.Annotations = map[string]string{}
	}
	wl.Annotations[Annotation] = now.UTC().Format(time.RFC3339)
}

// Since returns since when wl is to be deactivated, by its mark or by Kueue's condition DeactivationTarget; zero: it
// is not, or it was.
func Since(wl *kueue.Workload) time.Time {
	if !kueuelib.IsActive(wl) || kueuelib.IsFinished(wl) {
		return time.Time{}
	}
	if target := target(wl); target != nil {
		return target.LastTransitionTime.Time
	}
	mark, marked := wl.Annotations[Annotation]
	if !marked {
		return time.Time{}
	}
	since, err := time.Parse(time.RFC3339, mark)
	if err != nil {
		// Whoever wrote that means it, too.
		return wl.CreationTimestamp.Time
	}
	return since
}

// Pending reports whether wl is to be deactivated.
func Pending(wl *kueue.Workload) bool { return !Since(wl).IsZero() }

// ByKueue reports whether it is Kueue that is about to deactivate wl.
func ByKueue(wl *kueue.Workload) bool { return kueuelib.IsActive(wl) && target(wl) != nil }

// Reason returns the reason that Kueue's condition Evicted will have.
func Reason(wl *kueue.Workload) string {
	if target := target(wl); target != nil {
		return kueuelib.ReasonWithCause(kueue.WorkloadDeactivated, target.Reason)
	}
	return kueue.WorkloadDeactivated
}

func target(wl *kueue.Workload) *metav1.Condition {
	target := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadDeactivationTarget)
	if target == nil || target.Status != metav1.ConditionTrue {
		return nil
	}
	return target
}
