// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/remainder"
)

// ensureHeldBeforeStart is ensureHeld for a job that may be started next: not before its Workload is held. A stop
// waits for nothing.
func ensureHeldBeforeStart(ctx context.Context, j *job) result {
	if wl := j.unfinishedWorkload(); !j.IsSuspended() || wl == nil || !state.MayRun(wl) {
		return result{}
	}
	changed, err := holdWorkload(ctx, j)
	if err != nil || !changed {
		return failed(err)
	}
	return lookAgain(retrySlowly)
}

// ensureHeld has the Workload of a job that goes on held by finalizers.
func ensureHeld(ctx context.Context, j *job) result {
	_, err := holdWorkload(ctx, j)
	return failed(err)
}

// holdWorkload puts Kueue's finalizer back on the Workload of a job that goes on, and reports whether it changed one.
// Whoever uninstalls the manager takes it off, and MultiKueue makes Workloads without; then the quota of a job that is
// deleted would go before its pods. A copy that MultiKueue made has ours as well: MultiKueue takes
// Kueue's off. One that was evicted and has no quota loses ours: MultiKueue deletes it to dispatch the job to another
// worker cluster, and takes what stays there, evicted, for an eviction in that one.
func holdWorkload(ctx context.Context, j *job) (bool, error) {
	if !j.alive() {
		return false, nil
	}
	for _, known := range j.workloads() {
		wl := known.DeepCopy()
		if !wl.DeletionTimestamp.IsZero() || kueuelib.IsFinished(wl) || !hold(wl) {
			continue
		}
		err := j.env.client.Patch(ctx, wl, client.MergeFromWithOptions(&known, client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			return true, fmt.Errorf("holding Workload %s by finalizers: %w", client.ObjectKeyFromObject(wl), err)
		}
		ctrl.LoggerFrom(ctx).Info("Changed the finalizers of the Workload", "finalizers", wl.Finalizers)
		return true, nil
	}
	return false, nil
}

// hold has a Workload have the finalizers that holdWorkload is for, and reports whether that is a change.
func hold(wl *kueue.Workload) bool {
	if !kueuelib.IsEvicted(wl) || state.HoldsQuota(*wl) {
		return remainder.Hold(wl)
	}
	changed := controllerutil.AddFinalizer(wl, kueue.ResourceInUseFinalizerName)
	return controllerutil.RemoveFinalizer(wl, remainder.Finalizer) || changed
}

// finishDeletedWorkloads finishes the Workloads that are deleted and let go, and that are still there for somebody's
// finalizer or for dependents: Kueue would count their quota for as long as that. Of a job that runs,
// jobframework stops it first, and pods have their quota until they are gone.
func finishDeletedWorkloads(ctx context.Context, j *job) result {
	if j.phase() == phaseRunning {
		return result{}
	}
	workloads := j.view.Workloads
	for i := range workloads {
		wl := workloads[i].DeepCopy()
		if wl.DeletionTimestamp.IsZero() || !state.HoldsQuota(*wl) || remainder.Release(wl) {
			continue
		}
		if left, err := j.pods().AnyLeft(ctx, j.key); err != nil || left {
			return failed(err)
		}
		reason := "Deleted"
		if remainder.IsCopy(wl) {
			// MultiKueue takes every other end for that of the job.
			reason = kueue.WorkloadFinishedReasonOutOfSync
		}
		kept := fmt.Sprintf("The Workload is deleted and holds no quota any more; what keeps it there: %s", strings.Join(wl.Finalizers, ", "))
		err := kueuelib.SetCondition(ctx, j.env.client, wl, kueue.WorkloadFinished, metav1.ConditionTrue, reason, kept)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return failed(fmt.Errorf("finishing Workload %s, which is deleted and stays: %w", client.ObjectKeyFromObject(wl), err))
		}
		ctrl.LoggerFrom(ctx).Info("Finished a deleted Workload that stays", "finalizers", wl.Finalizers)
	}
	return result{}
}
