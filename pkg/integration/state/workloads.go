// SPDX-License-Identifier: Apache-2.0

// Package state reads what there is of a TrainJob, and answers what that means: may it run, does
// it hold quota, since when does it stop.
//
// reader.go reads, from the caches as they are or once for a reconcile; workloads.go answers by
// the Workloads of a job, children.go by what Trainer and JobSet made of it; owner.go tells whose
// an object is.
package state

import (
	"context"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
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

// WorkloadsOf lists the Workloads of this very job; one of the same name may have left
// some behind.
func WorkloadsOf(ctx context.Context, r Reader, job *trainjob.TrainJob) ([]kueue.Workload, error) {
	all, err := r.Workloads(ctx, client.ObjectKeyFromObject(job))
	return slices.DeleteFunc(all, func(wl kueue.Workload) bool { return !metav1.IsControlledBy(&wl, job) }), err
}

// HoldingQuota returns the Workload of job that holds quota, or nil. A finished one holds none,
// although it keeps its conditions.
func HoldingQuota(ctx context.Context, r Reader, job *trainjob.TrainJob) (*kueue.Workload, error) {
	workloads, err := WorkloadsOf(ctx, r, job)
	if err != nil {
		return nil, err
	}
	for i := range workloads {
		if HoldsQuota(workloads[i]) {
			return &workloads[i], nil
		}
	}
	return nil, nil
}

// JobSetOf returns the JobSet that Trainer made for job, or nil: then there is nothing that
// could run.
func JobSetOf(ctx context.Context, r Reader, job *trainjob.TrainJob) (*jobsetapi.JobSet, error) {
	js, err := r.JobSet(ctx, client.ObjectKeyFromObject(job))
	if err != nil || js == nil || !metav1.IsControlledBy(js, job) {
		return nil, err
	}
	return js, nil
}

// JobsOf lists the Jobs that js made.
func JobsOf(ctx context.Context, r Reader, js *jobsetapi.JobSet) ([]batchv1.Job, error) {
	all, err := r.Jobs(ctx, client.ObjectKeyFromObject(js))
	return slices.DeleteFunc(all, func(child batchv1.Job) bool { return !metav1.IsControlledBy(&child, js) }), err
}
