// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// follow brings the Workload of a suspended job in line with what jobframework does not
// compare: the queue, where quota is held, and the nodes that the job asks for. Where
// that ends the reconcile, the event of what it did, or of the last pod that goes, brings
// the job here again.
func follow(ctx context.Context, j *job) result {
	wl := j.unfinishedWorkload()
	if wl == nil {
		if j.endedWorkload() != nil && over(j) {
			// It has ended, and needs no more than the gate.
			return result{done: true, unqueued: true}
		}
		return notYet(ctx, j)
	}
	j.env.expectations.SawWorkload(client.ObjectKeyFromObject(&j.TrainJob))
	j.record.waiting = waiting{}
	if !wl.DeletionTimestamp.IsZero() {
		return result{}
	}
	if kueuelib.HasQuotaReservation(wl) && (!kueuelib.IsActive(wl) || deactivation.Pending(wl)) {
		// It is about to be evicted. It must not be replaced meanwhile: it alone says that
		// the job is not to run.
		return result{done: !kueuelib.IsEvicted(wl)}
	}
	active := j.active(ctx)
	if active && kueuelib.IsAdmitted(wl) && !kueuelib.IsEvicted(wl) {
		// Its user stopped it. Started again now, it would run new pods beside the old ones,
		// and both on one quota.
		return lookAgain(retrySlowly)
	}
	if jobframework.PrebuiltWorkloadNameFor(j) != "" {
		// It is somebody else's to write, and what it says counts.
		return result{}
	}
	if changed := movedOn(j, wl); kueuelib.HasQuotaReservation(wl) && changed != "" {
		// jobframework would start the job again on the quota that it had before.
		if active {
			return lookAgain(retrySlowly)
		}
		return done(requeue(ctx, j, wl, changed))
	}
	if active {
		return result{}
	}
	return followSelection(ctx, j, wl)
}

// movedOn says which of the job's labels are not for the Workload that holds quota, or
// nothing. Kueue takes no priority class for one that was admitted without. One with another
// time limit jobframework would delete, and its quota with it, while pods are left.
func movedOn(j *job, wl *kueue.Workload) string {
	if wl.Spec.QueueName != jobframework.QueueName(j) {
		return "The queue changed; the job queues again"
	}
	if jobframework.WorkloadPriorityClassName(j) != "" && !kueuelib.HasWorkloadPriorityClass(wl) {
		return "The job got a priority class; it queues again"
	}
	if !sameTimeLimit(wl, &j.TrainJob) {
		return "The time limit changed; the job queues again"
	}
	return ""
}

// followSelection updates a Workload that waits. One that holds quota holds it for the
// wrong nodes perhaps, so it is given up and the job queues again.
func followSelection(ctx context.Context, j *job, wl *kueue.Workload) result {
	podSets, err := j.describe(ctx)
	if err != nil {
		return dropUnfit(ctx, j, wl, err)
	}
	jobframework.SanitizePodSets(podSets)
	if len(podSets) != len(wl.Spec.PodSets) || podset.SameSelection(podSets, wl.Spec.PodSets) {
		return result{}
	}
	return done(renewWorkload(ctx, j, wl.DeepCopy(), podSets))
}

func renewWorkload(ctx context.Context, j *job, wl *kueue.Workload, podSets []kueue.PodSet) error {
	if !kueuelib.HasQuotaReservation(wl) {
		wl.Spec.PodSets = podSets
		if err := j.env.client.Update(ctx, wl); err != nil {
			return fmt.Errorf("updating Workload %s to the nodes its TrainJob asks for: %w", client.ObjectKeyFromObject(wl), err)
		}
		ctrl.LoggerFrom(ctx).Info("Updated the Workload to the nodes that TrainJob asks for")
		return nil
	}
	return requeue(ctx, j, wl, "The nodes that this job asks for changed after it was admitted; it queues again")
}

// requeue deletes the Workload as we know it; jobframework makes another.
func requeue(ctx context.Context, j *job, wl *kueue.Workload, why string) error {
	if err := deleteWorkload(ctx, j, wl); err != nil {
		return err
	}
	j.env.Recorder.Eventf(&j.TrainJob, nil, corev1.EventTypeNormal, jobevents.ReasonRequeued, jobevents.ActionDescribe, "%s", why)
	return nil
}

func deleteWorkload(ctx context.Context, j *job, wl *kueue.Workload) error {
	err := j.env.client.Delete(ctx, wl, client.Preconditions{UID: &wl.UID, ResourceVersion: &wl.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("giving up Workload %s: %w", client.ObjectKeyFromObject(wl), err)
	}
	return nil
}

// unfinishedWorkload returns the job's own Workload, or nil.
func (o *observed) unfinishedWorkload() *kueue.Workload {
	workloads := o.workloads()
	for i := range workloads {
		if !kueuelib.IsFinished(&workloads[i]) {
			return &workloads[i]
		}
	}
	return nil
}

// endedWorkload returns the Workload of a job that has ended, whatever Trainer makes of it
// since; nil if the job has another one.
func (o *observed) endedWorkload() *kueue.Workload {
	workloads := o.workloads()
	if o.unfinishedWorkload() != nil || !slices.ContainsFunc(workloads, func(wl kueue.Workload) bool { return state.Ended(&wl) }) {
		return nil
	}
	return &workloads[len(workloads)-1]
}
