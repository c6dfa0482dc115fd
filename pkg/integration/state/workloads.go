// SPDX-License-Identifier: Apache-2.0

// Package state reads what there is of a TrainJob, and answers what that means: may it run, does
// it hold quota, since when does it stop.
//
// reader.go reads from the caches; phase.go tells what it does now; workloads.go answers by the Workloads of a job, children.go by what
// Trainer and JobSet made of it; owner.go tells whose an object is.
package state

import (
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// MayRun reports whether the job of wl may have pods.
func MayRun(wl *kueue.Workload) bool {
	return kueuelib.IsAdmitted(wl) && !kueuelib.IsEvicted(wl) && kueuelib.IsActive(wl) && !kueuelib.IsFinished(wl)
}

// HoldsQuota reports whether Kueue counts a Workload against its ClusterQueue.
func HoldsQuota(wl kueue.Workload) bool {
	return kueuelib.HasQuotaReservation(&wl) && !kueuelib.IsFinished(&wl)
}

// StoppingSince returns when the first of these Workloads began to go; now if none has.
func StoppingSince(workloads []kueue.Workload) time.Time {
	since := time.Now()
	for i := range workloads {
		if at := StoppedSince(&workloads[i]); !at.IsZero() && at.Before(since) {
			since = at
		}
	}
	return since
}

// StoppedSince tells when it was decided that the job of a Workload stops; zero: it was not.
func StoppedSince(wl *kueue.Workload) time.Time {
	if !wl.DeletionTimestamp.IsZero() {
		return wl.DeletionTimestamp.Time
	}
	if kueuelib.IsEvicted(wl) {
		return apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted).LastTransitionTime.Time
	}
	return time.Time{}
}

// Ended reports whether a Workload is finished because its job is.
func Ended(wl *kueue.Workload) bool {
	finished := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
	return finished != nil && kueuelib.IsFinished(wl) &&
		(finished.Reason == kueue.WorkloadFinishedReasonSucceeded || finished.Reason == kueue.WorkloadFinishedReasonFailed)
}
