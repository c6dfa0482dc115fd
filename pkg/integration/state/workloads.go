// SPDX-License-Identifier: Apache-2.0

// Package state reads what there is of a TrainJob, and answers what that means: may it run, does
// it hold quota, since when does it stop.
package state

import (
	"context"
	"fmt"
	"slices"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

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
func WorkloadsOf(ctx context.Context, c client.Reader, job *trainjob.TrainJob) ([]kueue.Workload, error) {
	all, err := WorkloadsNamed(ctx, c, client.ObjectKeyFromObject(job))
	return slices.DeleteFunc(all, func(wl kueue.Workload) bool { return !metav1.IsControlledBy(&wl, job) }), err
}

// WorkloadsNamed lists the Workloads of TrainJobs of this name.
func WorkloadsNamed(ctx context.Context, c client.Reader, name types.NamespacedName) ([]kueue.Workload, error) {
	var list kueue.WorkloadList
	err := c.List(ctx, &list, client.InNamespace(name.Namespace),
		jobframework.OwnerReferenceIndexFieldMatcher(trainjob.GVK, name.Name))
	if err != nil {
		return nil, fmt.Errorf("listing the Workloads of TrainJob %s: %w", name, err)
	}
	return list.Items, nil
}

// HoldingQuota returns the Workload of job that holds quota, or nil. A finished one holds none,
// although it keeps its conditions.
func HoldingQuota(ctx context.Context, c client.Reader, job *trainjob.TrainJob) (*kueue.Workload, error) {
	workloads, err := WorkloadsOf(ctx, c, job)
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
