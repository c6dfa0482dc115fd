// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobmetrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podtracking"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// finish prepares the end of a finished job for Kueue: its quota is its own until its last
// pod is gone and it cannot come back. Then jobframework finishes the Workload.
func finish(ctx context.Context, j *job) result {
	j.record.run = jobmetrics.Run{}
	held, err := holdEnded(ctx, j)
	if err != nil || !held {
		return done(err)
	}
	returns := comesBack(j) != nil
	ours := returns && j.manages && !j.ManagedExternally()
	if over(j) {
		// Where Kueue deletes finished Workloads, the JobSet may go as well before the next process looks.
		write := j.record.ended.forgotten || ours && j.deps.kueue.Settings().DeletesFinished()
		j.deps.forget(j.UID)
		if write {
			return done(jobclient.MarkEnded(ctx, j.deps.client, &j.TrainJob))
		}
		return done(nil)
	}
	if ours && len(j.workloads()) == 0 {
		// Kueue keeps a finished Workload for a while only, and without it nothing else says so to the next process.
		return done(jobclient.MarkEnded(ctx, j.deps.client, &j.TrainJob))
	}
	if returns {
		// That the job is suspended, Trainer says at the end of a look which saw it, and it looks at one job once at a time.
		if wait := mayBeMadeAgain(j); wait > 0 {
			return lookAgain(wait)
		}
	}
	if !j.active(ctx) {
		letQuotaGo(ctx, j)
		return result{}
	}
	if err := reportPodsLeft(ctx, j); err != nil {
		return done(err)
	}
	end := j.end(trainer.TrainJobComplete, trainer.TrainJobFailed)
	if end == nil {
		// It was taken back while this look wrote something.
		return lookAgain(podtracking.RecheckMin)
	}
	since := end.LastTransitionTime.Time
	if time.Since(since) < longStop {
		return lookAgain(podtracking.RecheckIn(since))
	}
	_, err = tellPodsLeft(ctx, j, "finished")
	return result{done: true, again: podtracking.RecheckIn(since), err: err}
}

// over reports whether all is done for a finished job. jobframework would tell so again
// at every look, by an event.
func over(j *job) bool {
	workloads := j.workloads()
	return len(workloads) > 0 && !slices.ContainsFunc(workloads, func(wl *kueue.Workload) bool {
		return !kueuelib.IsFinished(wl) || controllerutil.ContainsFinalizer(wl, kueue.ResourceInUseFinalizerName)
	})
}

// comesBack returns the end of a job that Trainer runs again once its JobSet is deleted, by its TTL
// or by a user: it makes another one, on quota that is somebody else's by then. It does so with
// failed jobs, which it takes for failed only as long as the JobSet is there, and before 2.2 with
// complete ones, too (Reconcile in pkg/controller/trainjob_controller.go there).
func comesBack(j *job) *metav1.Condition {
	if j.deps.Runtimes.Served == trainjob.Trainer21 {
		return j.end(trainer.TrainJobFailed, trainer.TrainJobComplete)
	}
	return j.end(trainer.TrainJobFailed)
}

// end returns the first of these conditions by which the job has ended, or nil.
func (o *observed) end(conditions ...string) *metav1.Condition {
	for _, condition := range conditions {
		if apimeta.IsStatusConditionTrue(o.Status.Conditions, condition) {
			return apimeta.FindStatusCondition(o.Status.Conditions, condition)
		}
	}
	return nil
}

// holdEnded suspends a job that would come back and brings our entry to the gate, and reports
// whether that is done.
func holdEnded(ctx context.Context, j *job) (bool, error) {
	if comesBack(j) == nil || j.ManagedExternally() || !j.manages {
		return true, nil
	}
	if !j.IsSuspended() {
		if stopped := ensureEnded(ctx, j); stopped.ends() {
			return false, stopped.err
		}
		if err := suspendNow(ctx, j, metrics.StopNotAdmitted); err != nil {
			return false, err
		}
	}
	if !j.deps.Field.HoldsGate(&j.Spec) && !j.active(ctx) {
		if err := gateStopped(ctx, j); err != nil {
			return false, err
		}
	}
	// A write brings the status of now.
	keepEnded(ctx, j)
	return true, nil
}

// mayBeMadeAgain returns how long Trainer may still make a JobSet of a job by what it saw before that was
// suspended, whatever it was suspended for.
func mayBeMadeAgain(j *job) time.Duration {
	if j.ManagedExternally() || !j.IsSuspended() || trainerAgrees(j) {
		return 0
	}
	return inHand(j)
}

// inHand returns how long Trainer may still carry on what it saw of a job before this process first found it stopped, or was
// refused to stop it.
func inHand(j *job) time.Duration {
	return max(0, firstSeen(&j.record.ended.held).Add(podtracking.ResumeGrace).Sub(j.view.At))
}

// tellPodsLeft tells the user whether pods keep the quota of a job that is over, without which ones:
// that would be another event with each that ends.
func tellPodsLeft(ctx context.Context, j *job, what string) (left bool, err error) {
	pods, err := j.pods().Left(ctx)
	if err != nil || len(pods) == 0 {
		return false, err
	}
	j.tell(jobevents.ReasonStopping, jobevents.ActionStop,
		"The job has %s, but pods of it are still there; it keeps its quota until they are gone", what)
	return true, nil
}

// keepEnded has a job that ended once stay so: Trainer forgets a failure with the JobSet.
func keepEnded(_ context.Context, j *job) result {
	if !j.DeletionTimestamp.IsZero() {
		return result{}
	}
	if end := comesBack(j); end != nil {
		j.record.ended.condition = *end
	} else if end := j.record.ended.condition; end.Type != "" {
		j.record.ended.forgotten = true
		apimeta.SetStatusCondition(&j.Status.Conditions, end)
	}
	return result{}
}

// ensureEnded suspends a job that runs again after its end, also where Trainer does not take it for ended any more: a
// held one whose JobSet was deleted, which a user has resumed. Its pods would stay at the gate for ever.
func ensureEnded(ctx context.Context, j *job) result {
	wl := j.endedWorkload()
	if wl == nil {
		return result{}
	}
	if err := suspend(ctx, j, false, metrics.StopNotAdmitted); err != nil {
		return done(err)
	}
	j.warn(jobevents.ReasonEnded, jobevents.ActionStop,
		"the job has ended and its quota is given back (Workload %s is finished); to run it again, delete it and create it again", wl.Name)
	return done(nil)
}

// ensureHeldBeforeStart is ensureHeld for a job that may be started next: not before its Workload is held. A stop
// waits for nothing.
func ensureHeldBeforeStart(ctx context.Context, j *job) result {
	if wl := j.unfinishedWorkload(); !j.IsSuspended() || wl == nil || !state.MayRun(wl) {
		return result{}
	}
	return ensureHeld(ctx, j)
}

// ensureHeld puts Kueue's finalizer back on the Workload of a job that goes on, and has the job looked at again then.
// Whoever uninstalls the manager takes it off, and MultiKueue makes Workloads without; then the quota of a job that is
// deleted would go before its pods. A copy that MultiKueue made has ours as well: MultiKueue takes
// Kueue's off. One that was evicted and has no quota loses ours: MultiKueue deletes it to dispatch the job to another
// worker cluster, and takes what stays there, evicted, for an eviction in that one.
func ensureHeld(ctx context.Context, j *job) result {
	if !j.alive() {
		return result{}
	}
	for _, known := range j.workloads() {
		wl := known.DeepCopy()
		if !wl.DeletionTimestamp.IsZero() || kueuelib.IsFinished(wl) || !holdByFinalizers(wl) {
			continue
		}
		err := jobclient.PatchWorkload(ctx, j.deps.client, known, wl, "holding Workload %s by finalizers")
		if client.IgnoreNotFound(err) != nil {
			return ofError(err)
		}
		ctrl.LoggerFrom(ctx).Info("Changed the finalizers of the Workload", "finalizers", wl.Finalizers)
		return lookAgain(retrySlowly)
	}
	return result{}
}

// holdByFinalizers has a Workload have the finalizers that ensureHeld is for, and reports whether that is a change.
func holdByFinalizers(wl *kueue.Workload) bool {
	if !kueuelib.IsEvicted(wl) || state.HoldsQuota(wl) {
		return placeholder.Hold(wl)
	}
	changed := controllerutil.AddFinalizer(wl, kueue.ResourceInUseFinalizerName)
	return controllerutil.RemoveFinalizer(wl, placeholder.Finalizer) || changed
}

// finishDeletedWorkloads finishes the Workloads that are deleted and let go, and that are still there for somebody's
// finalizer or for dependents: Kueue would count their quota for as long as that. Of a job that runs,
// jobframework stops it first, and pods have their quota until they are gone.
func finishDeletedWorkloads(ctx context.Context, j *job) result {
	if j.phase() == phaseRunning {
		return result{}
	}
	for _, known := range j.view.Workloads {
		wl := known.DeepCopy()
		if wl.DeletionTimestamp.IsZero() || !state.HoldsQuota(wl) || placeholder.Release(wl) {
			continue
		}
		if left, err := j.pods().AnyLeft(ctx); err != nil || left {
			return ofError(err)
		}
		reason := "Deleted"
		if placeholder.IsCopy(wl) {
			// MultiKueue takes every other end for that of the job.
			reason = kueue.WorkloadFinishedReasonOutOfSync
		}
		kept := fmt.Sprintf("The Workload is deleted and holds no quota any more; what keeps it there: %s", strings.Join(wl.Finalizers, ", "))
		err := kueuelib.SetCondition(ctx, j.deps.client, wl, kueue.WorkloadFinished, metav1.ConditionTrue, reason, kept)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return ofError(fmt.Errorf("finishing Workload %s, which is deleted and stays: %w", client.ObjectKeyFromObject(wl), err))
		}
		ctrl.LoggerFrom(ctx).Info("Finished a deleted Workload that stays", "finalizers", wl.Finalizers)
	}
	return result{}
}
