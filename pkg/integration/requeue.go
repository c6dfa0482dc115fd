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
	workloadfinish "sigs.k8s.io/kueue/pkg/workload/finish"

	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// followSelection brings the Workload of a waiting job in line with the nodes that the
// job asks for now. It reports whether it changed the Workload; the reconcile then ends
// and its event brings the job here again. A Workload that already holds quota holds it
// for the wrong nodes perhaps, so it is given up and the job queues anew.
func (j *job) followSelection(ctx context.Context) (bool, error) {
	wl, err := j.unfinishedWorkload(ctx)
	if err != nil || wl == nil || !wl.DeletionTimestamp.IsZero() {
		return false, err
	}
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
	if err := client.IgnoreNotFound(j.env.client.Delete(ctx, wl, client.Preconditions{UID: &wl.UID, ResourceVersion: &wl.ResourceVersion})); err != nil {
		return fmt.Errorf("giving up Workload %s, whose TrainJob asks for other nodes now: %w", client.ObjectKeyFromObject(wl), err)
	}
	j.env.recorder.Eventf(&j.TrainJob, nil, corev1.EventTypeNormal, reasonRequeued, actionDescribe,
		"The nodes that this job asks for changed after it was admitted; it queues again")
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
