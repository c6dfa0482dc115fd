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
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/remainder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// ensureHeld puts Kueue's finalizer back on the Workload of a job that goes on. Whoever uninstalls
// the manager takes it off, and MultiKueue makes Workloads without; then the quota of a job that is
// deleted would go before its pods. A copy that MultiKueue made has ours as well: MultiKueue takes
// Kueue's off.
func (r *attempt) ensureHeld(ctx context.Context, j *job) error {
	if !j.alive() {
		return nil
	}
	workloads := j.view.Workloads
	for i := range workloads {
		wl := workloads[i].DeepCopy()
		owner := state.ControllerOfKind(wl, trainjob.GVK.Kind)
		if owner == nil || owner.UID != j.UID || !wl.DeletionTimestamp.IsZero() || kueuelib.IsFinished(wl) ||
			!remainder.Hold(wl) {
			continue
		}
		err := r.env.client.Patch(ctx, wl, client.MergeFromWithOptions(&workloads[i], client.MergeFromWithOptimisticLock{}))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("putting the finalizer back on Workload %s: %w", client.ObjectKeyFromObject(wl), err)
		}
		ctrl.LoggerFrom(ctx).Info("Put the finalizer back on the Workload")
	}
	return nil
}

// finishKept finishes the Workloads that are deleted and let go, and that are still there for somebody's
// finalizer or for dependents: Kueue would count their quota for as long as that. Of a job that runs,
// jobframework stops it first, and pods have their quota until they are gone.
func (r *attempt) finishKept(ctx context.Context, j *job) error {
	if j.alive() && !j.IsSuspended() {
		return nil
	}
	workloads := j.view.Workloads
	for i := range workloads {
		wl := workloads[i].DeepCopy()
		if wl.DeletionTimestamp.IsZero() || !state.HoldsQuota(*wl) || remainder.Release(wl) {
			continue
		}
		if left, err := j.pods().AnyLeft(ctx, j.key); err != nil || left {
			return err
		}
		reason := "Deleted"
		if remainder.IsCopy(wl) {
			// MultiKueue takes every other end for that of the job.
			reason = kueue.WorkloadFinishedReasonOutOfSync
		}
		kept := fmt.Sprintf("The Workload is deleted and holds no quota any more; what keeps it there: %s", strings.Join(wl.Finalizers, ", "))
		err := kueuelib.SetCondition(ctx, r.env.client, wl, kueue.WorkloadFinished, metav1.ConditionTrue, reason, kept)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("finishing Workload %s, which is deleted and stays: %w", client.ObjectKeyFromObject(wl), err)
		}
		ctrl.LoggerFrom(ctx).Info("Finished a deleted Workload that stays", "finalizers", wl.Finalizers)
	}
	return nil
}
