// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// startDeactivation evicts a Workload that is to be deactivated, as Kueue does with one that was: jobframework stops
// the job, and Stop calls finishDeactivation when its last pod is gone. One without quota is deactivated at once.
func startDeactivation(ctx context.Context, j *job) result {
	workloads := j.workloads()
	for i := range workloads {
		wl := &workloads[i]
		countedByKueue := state.HoldsQuota(*wl) && kueuelib.IsActive(wl)
		switch {
		case !wl.DeletionTimestamp.IsZero() || kueuelib.IsFinished(wl):
		case deactivation.Marked(wl) && !countedByKueue:
			return done(deactivateWorkload(ctx, j, wl))
		case countedByKueue && deactivation.Pending(wl) && !kueuelib.IsEvictedByDeactivation(wl):
			return done(evictToDeactivate(ctx, j, wl))
		case countedByKueue && deactivation.Pending(wl):
			keepTimeLimit(j, wl)
		}
	}
	return result{}
}

// keepTimeLimit has jobframework take a job for the one of wl though its time limit was changed: it would make another
// Workload of it, which nobody has deactivated. Only this view of the job is changed.
func keepTimeLimit(j *job, wl *kueue.Workload) {
	delete(j.Labels, kueueconstants.MaxExecTimeSecondsLabel)
	if limit := wl.Spec.MaximumExecutionTimeSeconds; limit != nil {
		metav1.SetMetaDataLabel(&j.ObjectMeta, kueueconstants.MaxExecTimeSecondsLabel, strconv.Itoa(int(*limit)))
	}
}

// evictToDeactivate writes condition Evicted with the reason that Kueue has for it.
func evictToDeactivate(ctx context.Context, j *job, wl *kueue.Workload) error {
	ofQueue, err := j.env.podsReady().ExposesMetrics(ctx, wl)
	if err != nil {
		return err
	}
	cause, message := deactivation.Why(wl)
	err = kueuelib.EvictToDeactivate(ctx, j.env.client, j.env.Recorder.EventRecorder, wl.DeepCopy(), cause, message, ofQueue, j.env.labels)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("evicting Workload %s, which is to be deactivated: %w", client.ObjectKeyFromObject(wl), err)
	}
	return nil
}

// finishDeactivation deactivates the Workload of a job without pods, where that is to be. It returns errOutdated then:
// Kueue counts nothing of it from then on, and jobframework gives the rest back.
func finishDeactivation(ctx context.Context, j *job) error {
	wl := j.holdingQuota()
	if wl == nil || !wl.DeletionTimestamp.IsZero() || !deactivation.Pending(wl) {
		return nil
	}
	return firstError(deactivateWorkload(ctx, j, wl), errOutdated)
}

// deactivateWorkload writes spec.active, and takes the mark away.
func deactivateWorkload(ctx context.Context, j *job, wl *kueue.Workload) error {
	inactive := wl.DeepCopy()
	inactive.Spec.Active = ptr.To(false)
	delete(inactive.Annotations, deactivation.Annotation)
	err := j.env.client.Patch(ctx, inactive, client.MergeFromWithOptions(wl, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deactivating Workload %s: %w", client.ObjectKeyFromObject(wl), err)
	}
	if kueuelib.IsActive(wl) {
		ctrl.LoggerFrom(ctx).Info("Deactivated the Workload of a job without pods")
	}
	return nil
}
