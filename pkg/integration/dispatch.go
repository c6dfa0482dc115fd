// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// askedAgainAnnotation is on the Workload of a job that Kueue asks no worker cluster for: when we
// last had it look again.
const askedAgainAnnotation = "kueue-trainer.dev/dispatch-asked-again"

const (
	// undispatchedAfter is how long Kueue has to ask a worker cluster for a job that has quota. It
	// takes seconds where one is connected.
	undispatchedAfter = time.Minute
	// longestUndispatched is how long we leave Kueue alone after that: no worker may be connected.
	longestUndispatched = 10 * time.Minute
)

// ensureDispatched has no job of another cluster forgotten by MultiKueue. Kueue 0.19.2 looks at a
// Workload once; where that was before a worker cluster was connected, after a restart, nothing
// brings it there again. And it takes a Workload for over that an integration in a worker cluster
// finished because the job was taken from there.
func ensureDispatched(ctx context.Context, j *job) result {
	if ptr.Deref(j.Spec.ManagedBy, "") != kueue.MultiKueueControllerName {
		return result{}
	}
	workloads := j.workloads()
	for i := range workloads {
		wl := &workloads[i]
		switch {
		case !wl.DeletionTimestamp.IsZero():
		case takenForGone(wl) && jobframework.PrebuiltWorkloadNameFor(j) == "":
			return queueAgain(ctx, j, wl)
		case awaitsDispatch(wl):
			return askAgain(ctx, j, wl)
		}
	}
	j.env.Recorder.Resolve(j.UID, jobevents.ReasonNotDispatched)
	return result{}
}

// takenForGone reports whether the Workload was finished for the want of its TrainJob. Its successor
// would be active, so one that somebody deactivated stays.
func takenForGone(wl *kueue.Workload) bool {
	finished := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
	return finished != nil && kueuelib.IsFinished(wl) && kueuelib.IsActive(wl) && finished.Reason == kueue.WorkloadFinishedReasonOwnerNotFound
}

// queueAgain deletes the Workload of a job that is not over, so that it gets another: one a minute,
// since a worker cluster may have one of that name which stays finished.
func queueAgain(ctx context.Context, j *job, wl *kueue.Workload) result {
	if wait := undispatchedAfter - time.Since(wl.CreationTimestamp.Time); wait > 0 {
		return result{again: wait}
	}
	err := j.env.client.Delete(ctx, wl, client.Preconditions{UID: &wl.UID})
	if client.IgnoreNotFound(err) != nil {
		return failed(fmt.Errorf("deleting Workload %s, which was finished without a run: %w", client.ObjectKeyFromObject(wl), err))
	}
	j.env.Recorder.Eventf(&j.TrainJob, nil, corev1.EventTypeNormal, jobevents.ReasonRequeued, jobevents.ActionQueue,
		"Workload %s was finished because a worker cluster did not find the TrainJob any more; the job queues again", wl.Name)
	return result{}
}

// awaitsDispatch reports whether nothing but MultiKueue stands between a job and a worker cluster,
// and it has not asked one.
func awaitsDispatch(wl *kueue.Workload) bool {
	if !state.HoldsQuota(*wl) || kueuelib.IsAdmitted(wl) || kueuelib.IsEvicted(wl) || !kueuelib.IsActive(wl) ||
		wl.Status.ClusterName != nil || len(wl.Status.NominatedClusterNames) > 0 {
		return false
	}
	pending := 0
	for _, check := range wl.Status.AdmissionChecks {
		switch check.State {
		case kueue.CheckStateReady:
		case kueue.CheckStatePending:
			pending++
		default:
			return false
		}
	}
	// MultiKueue is one of the checks, and the last one: it waits for the others.
	return pending == 1
}

// askAgain changes the Workload, which has Kueue look at it, and tells the user.
func askAgain(ctx context.Context, j *job, wl *kueue.Workload) result {
	reserved := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved).LastTransitionTime.Time
	last := lastAsked(wl)
	if !last.Before(reserved) {
		j.env.Recorder.Note(j.UID, jobevents.ReasonNotDispatched)
	}
	if wait := untilAskedAgain(reserved, last); wait > 0 {
		return result{again: wait}
	}
	asked := wl.DeepCopy()
	metav1.SetMetaDataAnnotation(&asked.ObjectMeta, askedAgainAnnotation, time.Now().UTC().Format(time.RFC3339))
	if err := j.env.client.Patch(ctx, asked, client.MergeFrom(wl)); err != nil {
		return failed(fmt.Errorf("having Kueue look again at Workload %s: %w", client.ObjectKeyFromObject(wl), err))
	}
	j.env.Recorder.Warn(&j.TrainJob, jobevents.ReasonNotDispatched, jobevents.ActionStart, errors.New(
		"the job has quota, and Kueue has asked no worker cluster for it; see that one is connected: kubectl get multikueueclusters"))
	return result{again: undispatchedAfter}
}

// lastAsked returns when we had Kueue look again, or the zero time.
func lastAsked(wl *kueue.Workload) time.Time {
	at, err := time.Parse(time.RFC3339, wl.Annotations[askedAgainAnnotation])
	if err != nil || time.Until(at) > time.Minute {
		// Nobody has asked in the future: a clock was wrong.
		return time.Time{}
	}
	return at
}

// untilAskedAgain returns how long Kueue is left alone: each time for as long as it has taken so
// far.
func untilAskedAgain(reserved, asked time.Time) time.Duration {
	if asked.Before(reserved) {
		return undispatchedAfter - time.Since(reserved)
	}
	return min(max(asked.Sub(reserved), undispatchedAfter), longestUndispatched) - time.Since(asked)
}
