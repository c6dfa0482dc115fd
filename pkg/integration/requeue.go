// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	"sigs.k8s.io/kueue/pkg/workload"
	workloadevict "sigs.k8s.io/kueue/pkg/workload/evict"
	workloadfinish "sigs.k8s.io/kueue/pkg/workload/finish"

	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// follow brings the Workload of a suspended job in line with what jobframework does not
// compare: the queue, where quota is held, and the nodes that the job asks for. It
// reports whether the reconcile ends here; the event of what it did, or of the last pod
// that goes, brings the job here again.
func (j *job) follow(ctx context.Context) (bool, error) {
	wl, err := j.unfinishedWorkload(ctx)
	if err == nil && wl == nil {
		j.early, err = j.notYet(ctx)
		return j.early, err
	}
	j.env.expectations.sawWorkload(client.ObjectKeyFromObject(&j.TrainJob))
	if err != nil || !wl.DeletionTimestamp.IsZero() {
		return false, err
	}
	if workload.HasQuotaReservation(wl) && !workload.IsActive(wl) {
		// Kueue is about to evict it. It must not be replaced meanwhile: it alone says that
		// the job is not to run.
		return !workloadevict.IsEvicted(wl), nil
	}
	active := j.IsActive()
	if workload.HasQuotaReservation(wl) && wl.Spec.QueueName != jobframework.QueueName(j) {
		// jobframework would start the job again on the quota of the queue that it left.
		if active {
			return true, nil
		}
		return true, j.giveUp(ctx, wl, "The queue changed; the job queues again")
	}
	if active {
		return false, nil
	}
	return j.followSelection(ctx, wl)
}

// followSelection updates a Workload that waits. One that holds quota holds it for the
// wrong nodes perhaps, so it is given up and the job queues anew.
func (j *job) followSelection(ctx context.Context, wl *kueue.Workload) (bool, error) {
	podSets, err := j.describe(ctx)
	if err != nil {
		// jobframework asks again and reports it.
		return false, nil
	}
	jobframework.SanitizePodSets(podSets)
	if len(podSets) != len(wl.Spec.PodSets) || podset.SameSelection(podSets, wl.Spec.PodSets) {
		return false, nil
	}
	return true, j.renewWorkload(ctx, wl.DeepCopy(), podSets)
}

func (j *job) renewWorkload(ctx context.Context, wl *kueue.Workload, podSets []kueue.PodSet) error {
	if !workload.HasQuotaReservation(wl) {
		wl.Spec.PodSets = podSets
		if err := j.env.client.Update(ctx, wl); err != nil {
			return fmt.Errorf("updating Workload %s to the nodes its TrainJob asks for: %w", client.ObjectKeyFromObject(wl), err)
		}
		return nil
	}
	return j.giveUp(ctx, wl, "The nodes that this job asks for changed after it was admitted; it queues again")
}

// giveUp deletes the Workload as we know it; jobframework makes another.
func (j *job) giveUp(ctx context.Context, wl *kueue.Workload, why string) error {
	err := j.env.client.Delete(ctx, wl, client.Preconditions{UID: &wl.UID, ResourceVersion: &wl.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("giving up Workload %s: %w", client.ObjectKeyFromObject(wl), err)
	}
	j.env.recorder.Eventf(&j.TrainJob, nil, corev1.EventTypeNormal, reasonRequeued, actionDescribe, "%s", why)
	return nil
}

// unfinishedWorkload gives the job's own Workload, or nil.
func (j *job) unfinishedWorkload(ctx context.Context) (*kueue.Workload, error) {
	workloads, err := j.env.workloads(ctx, &j.TrainJob)
	if err != nil {
		return nil, err
	}
	for i := range workloads {
		if !workloadfinish.IsFinished(&workloads[i]) {
			return &workloads[i], nil
		}
	}
	return nil, nil
}
