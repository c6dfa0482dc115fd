// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// placed reports whether our part is there and past the gate. Where it is not there at
// all, the JobSet tells what runs: an upgrade of Trainer that brings another field takes
// the old one from every TrainJob.
func placed(j *job) bool {
	if j.deps.Field.Has(&j.Spec) {
		return !j.deps.Field.HoldsGate(&j.Spec)
	}
	js := j.jobSet()
	return js != nil && !ptr.Deref(js.Spec.Suspend, false) && podset.Placed(js)
}

// ensureGate sets the gate of a waiting TrainJob that lacks it, because it was made
// or changed while the webhook was away. One that another controller runs loses our entry, which
// the in-tree integration gave it.
func ensureGate(ctx context.Context, j *job) result {
	if !j.alive() || !j.IsSuspended() || !j.manages {
		return result{}
	}
	if wl := j.holdingQuota(); wl != nil && kueuelib.IsAdmitted(wl) || j.active(ctx) {
		return result{}
	}
	err := gate(ctx, j)
	if podsets.RuntimeMissing(err) || apierrors.IsNotFound(err) {
		// Told by an event already, or deleted meanwhile.
		return result{}
	}
	return ofError(err)
}

// gateStopped brings our entry of a job without pods back to the gate. A job for which that is refused shall not keep its
// quota for that: one whose runtime is gone, which Trainer refuses to change, or one whose JobSet never says that its pods
// are gone, as one that somebody keeps from being deleted. The policies let nobody resume it, and the gate is set before it
// queues again. Where a JobSet could still run, what is refused may pass.
func gateStopped(ctx context.Context, j *job) error {
	err := gate(ctx, j)
	refused := apierrors.IsForbidden(err) || apierrors.IsInvalid(err)
	long := time.Since(j.deps.expectations.ChangedBy(&j.TrainJob)) > longLag
	switch {
	case podsets.WithoutNames(err):
		j.warn(jobevents.ReasonNotDescribed, jobevents.ActionStop, "%v", err)
		return nil
	case refused && (long || j.jobSet() == nil && !jobclient.TrainerLags(err)):
		j.warn(jobevents.ReasonRefused, jobevents.ActionStop, "%v", err)
		return nil
	}
	return err
}

// suspendNow suspends the job, with the gate in the same request where nothing seems
// to run. The job counts as active for the rest of this reconcile: Trainer may just
// be resuming what it saw before, so the next look decides.
func suspendNow(ctx context.Context, j *job, reason string) error {
	pods := j.mayHavePods(ctx)
	j.stopping = true
	if !pods {
		// Whoever resumed it: no JobSet runs yet, and Trainer may be about to have it run.
		j.deps.expectations.ExpectResume(&j.TrainJob)
		err := suspend(ctx, j, true, reason)
		// Refused: Trainer's view of the JobSet is ahead of ours, and it runs.
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) && !podsets.WithoutNames(err) {
			return err
		}
	}
	return suspend(ctx, j, false, reason)
}

// suspend writes suspend: true and, where asked for, the gate in the same request. The stop of a job that has not ended is
// measured by its reason.
func suspend(ctx context.Context, j *job, gate bool, reason string) error {
	spec, ended := j.TrainJob.DeepCopy().Spec, j.TrainJob.Finished()
	if gate && !j.unmanaged {
		var err error
		if spec, _, err = j.deps.Gated(ctx, &j.TrainJob); err != nil {
			return err
		}
	}
	spec.Suspend = ptr.To(true)
	if err := j.writeSpec(ctx, spec); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).V(1).Info("Suspended TrainJob", "gated", gate)
	if !ended {
		measureStop(j, reason)
	}
	return nil
}

// gate brings our entry back to the gate, unless it is there, or away where another controller runs the job.
func gate(ctx context.Context, j *job) error {
	if j.unmanaged {
		return nil
	}
	spec, changed, err := j.deps.Gated(ctx, &j.TrainJob)
	if err != nil || !changed {
		return err
	}
	if err := j.writeSpec(ctx, spec); err != nil {
		return err
	}
	if !j.ManagedExternally() {
		ctrl.LoggerFrom(ctx).Info("Set the admission gate")
	}
	return nil
}

// writeSpec writes another spec of the job. Where it cannot, the job stays what it was.
func (j *job) writeSpec(ctx context.Context, spec trainjob.Spec) error {
	before := j.TrainJob.DeepCopy()
	j.Spec = spec
	err := j.deps.client.Patch(ctx, &j.TrainJob, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		before.DeepCopyInto(&j.TrainJob)
	}
	return err
}

// patchWorkload writes what was changed of a Workload, if that is still stored as wl. An error says by format what was done to
// which one.
func (e *dependencies) patchWorkload(ctx context.Context, wl, changed *kueue.Workload, format string) error {
	err := e.client.Patch(ctx, changed, client.MergeFromWithOptions(wl, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf(format+": %w", client.ObjectKeyFromObject(wl), err)
	}
	return nil
}

// deleteWorkload deletes a Workload, unless it is gone. An error says by format which one.
func (e *dependencies) deleteWorkload(ctx context.Context, wl *kueue.Workload, format string) error {
	if err := e.client.Delete(ctx, wl, client.Preconditions{UID: &wl.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf(format+": %w", client.ObjectKeyFromObject(wl), err)
	}
	return nil
}

// giveUpWorkload deletes a Workload, unless it is gone, if it is still stored as we know it.
func (e *dependencies) giveUpWorkload(ctx context.Context, wl *kueue.Workload) error {
	err := e.client.Delete(ctx, wl, client.Preconditions{UID: &wl.UID, ResourceVersion: &wl.ResourceVersion})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("giving up Workload %s: %w", client.ObjectKeyFromObject(wl), err)
	}
	return nil
}
