// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/serving"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// reconciler runs Kueue's jobframework on TrainJobs and adds what that cannot know:
// that a suspended TrainJob which is not admitted always holds the gate, unless it is for
// another cluster.
type reconciler struct {
	// env is bound to a Trainer by each reconcile.
	env *environment
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx = ctrl.LoggerInto(ctx, quiet(ctrl.LoggerFrom(ctx)))
	if r.env.inTree.Unknown() {
		return r.awaitAnswer(ctx, req)
	}
	if r.env.inTree.Active() {
		return r.standAside(ctx, req, &r.env.inTree.Told, jobevents.ReasonNotAlone, serving.InTreeRemedy)
	}
	env, err := r.env.now()
	if err != nil {
		return r.standAside(ctx, req, &r.env.trainer.Told, jobevents.ReasonTrainerUnknown, err.Error())
	}
	j, err := env.observe(ctx, req.NamespacedName)
	if errors.Is(err, errOldView) {
		// It is as urgent as it was.
		return ctrl.Result{RequeueAfter: retrySlowly}, nil
	}
	if err != nil {
		return ctrl.Result{Priority: ptr.To(0)}, err
	}
	ctx = j.logging(ctx)
	defer j.looked()
	result, err := j.reconcile(ctx)
	if wait := jobclient.BackoffOf(err); wait > 0 {
		env.Recorder.Warn(&j.TrainJob, jobevents.ReasonWriteInVain, jobevents.ActionWrite, err)
		return ctrl.Result{RequeueAfter: wait, Priority: ptr.To(0)}, nil
	}
	if apierrors.IsConflict(err) {
		ctrl.LoggerFrom(ctx).V(2).Info("Another writer was faster", "error", err)
		if name := jobclient.ConflictingWorkload(err); name != "" {
			env.expectations.Outdate(req.NamespacedName, jobclient.VersionsNamed(name, jobclient.VersionsOf(j.view.Workloads)))
		}
		// Whatever Kueue decided is not done yet: it stays as urgent as it is.
		return ctrl.Result{RequeueAfter: retrySoon}, nil
	}
	// What waits shall not be in the way of what was decided meanwhile.
	result.Priority = ptr.To(0)
	if expectedRetry(err) && !lagsLong(env.expectations, &j.TrainJob, err) {
		result.RequeueAfter = retryIn(err)
		return result, nil
	}
	if j.UID != "" && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) {
		env.Recorder.Warn(&j.TrainJob, jobevents.ReasonRefused, jobevents.ActionWrite, err)
	}
	if err != nil {
		// With an error, no more of the result has a say.
		return ctrl.Result{Priority: result.Priority}, err
	}
	return result, nil
}

// reconcile lets jobframework decide about a TrainJob, follows that decision to its end, and
// ensures what neither jobframework nor Trainer would see to.
func (j *job) reconcile(ctx context.Context) (ctrl.Result, error) {
	held, err := j.releaseCopies(ctx)
	if err == nil {
		err = j.observeNamespace(ctx)
	}
	if err != nil {
		return ctrl.Result{RequeueAfter: held}, err
	}
	if alone, err := leaveAlone(ctx, j); alone || err != nil {
		return ctrl.Result{RequeueAfter: held}, err
	}
	var v verdict
	if j.prepared = j.prepare(ctx); !j.prepared.ends() {
		if j.alive() {
			// jobframework has no context for it.
			j.active(ctx)
		}
		v.result, v.err = j.env.framework(j).ReconcileGenericJob(ctx, ctrl.Request{NamespacedName: j.key}, j)
	}
	if j.UID == "" {
		j.env.forgetName(j.key)
	}
	v.err = handle(ctx, j, v.err)
	v.add(0, finishKept(ctx, j))
	// Whatever else there is to wait for: it may wait for this.
	v.add(awaitTrainer(j), nil)
	decided := v.err
	v.add(correctDrift(ctx, j))
	v.add(ensureStarted(ctx, j, decided))
	if decided != nil || j.prepared.ends() {
		v.err = firstError(j.prepared.err, v.err)
		v.add(j.prepared.again, gateEarly(ctx, j))
	} else {
		tellStart(j)
		again, err := ensure(ctx, j)
		v.err = firstError(err, v.err)
		v.add(again, nil)
	}
	v.add(held, nil)
	v.add(j.again, nil)
	return v.result, v.err
}

// looked ends a look at a job. One that saw nothing new tells nothing of its troubles.
func (j *job) looked() {
	if j.UID != "" && !j.prepared.stale {
		j.env.Recorder.Looked(j.UID)
	}
	j.env.records.trim(j.key)
}

// forgetName drops what is remembered of a TrainJob by its name alone.
func (e *environment) forgetName(key types.NamespacedName) {
	e.expectations.Forget(key)
	e.records.forget(key)
}

// handle does what the reason of a decision calls for, and tells people of it. It returns what
// went wrong: with that, or else with the decision itself.
func handle(ctx context.Context, j *job, decided error) error {
	errNotice := tellNotice(ctx, j)
	err := decided
	if j.start.rollingOut {
		err = firstError(awaitRollout(ctx, j), err)
	}
	if errors.Is(err, jobframework.ErrPrebuiltWorkloadNotFound) {
		err = firstError(tellPrebuilt(ctx, j), err)
	}
	if classMissing(err) {
		j.tellClassMissing(err)
	}
	if j.start.excess != "" {
		err = firstError(renewExceeding(ctx, j), err)
	}
	if errors.Is(err, errStillActive) {
		_, errStop := watchStop(ctx, j)
		err = firstError(errStop, err)
	}
	return firstError(err, errNotice)
}

// tellStart says where a job was sent that this reconcile started.
func tellStart(j *job) {
	if j.start.message == "" || j.IsSuspended() {
		return
	}
	// Every start is news, also one by the admission of the last.
	measureStart(j)
	j.env.Recorder.Resolve(j.UID, jobevents.ReasonStarted)
	j.env.Recorder.Eventf(&j.TrainJob, nil, corev1.EventTypeNormal, jobevents.ReasonStarted, jobevents.ActionStart, "%s", j.start.message)
}

// ensure keeps the job as its admission has it. It returns when to look again, 0 for never.
func ensure(ctx context.Context, j *job) (time.Duration, error) {
	if _, err := j.ensureHeld(ctx); err != nil {
		return 0, err
	}
	if err := firstError(ensureEnded(ctx, j), ensurePlaced(ctx, j), ensureWithinQuota(ctx, j)); err != nil {
		return 0, err
	}
	dispatch, errDispatch := ensureDispatched(ctx, j)
	stop, err := watchStop(ctx, j)
	v := verdict{result: ctrl.Result{RequeueAfter: dispatch}, err: errDispatch}
	v.add(stop, firstError(err, ensureGate(ctx, j), reportPodsReady(ctx, j)))
	return v.result.RequeueAfter, v.err
}

// verdict is what the steps of a reconcile come to so far. Reconcile goes by one error: one of
// quota comes before one of a JobSet that drifted.
type verdict struct {
	result ctrl.Result
	err    error
}

// add has the reconcile come again after wait at the latest, 0 for never, and keeps the first
// error.
func (v *verdict) add(wait time.Duration, err error) {
	v.result, v.err = sooner(v.result, wait), firstError(v.err, err)
}

// sooner makes a reconcile come again after wait at the latest; 0 is never.
func sooner(result ctrl.Result, wait time.Duration) ctrl.Result {
	if wait > 0 && (result.RequeueAfter == 0 || wait < result.RequeueAfter) {
		result.RequeueAfter = wait
	}
	return result
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// ensurePlaced suspends an admitted TrainJob that somebody resumed before we could
// place it: its pods would stay gated, or run anywhere. The next reconcile starts it.
func ensurePlaced(ctx context.Context, j *job) error {
	if !j.alive() || j.IsSuspended() || j.ManagedExternally() || !j.manages || placed(j) {
		return nil
	}
	if wl := j.holdingQuota(); wl == nil || !kueuelib.IsAdmitted(wl) {
		return nil
	}
	if err := j.suspend(ctx, j.env.client, false); err != nil {
		return err
	}
	j.measureStop(metrics.StopNotAdmitted)
	ctrl.LoggerFrom(ctx).Info("Suspended TrainJob that was resumed without its placement")
	return nil
}

// ensureWithinQuota takes a job back that asks for more than it was admitted for. What a
// job runs is what its JobSet has, whenever that was made and of whatever: people may edit
// the snapshot of the runtime, or delete it together with the JobSet, and Trainer makes
// another one of what it finds then.
func ensureWithinQuota(ctx context.Context, j *job) error {
	if !j.alive() || j.IsSuspended() || j.ManagedExternally() {
		return nil
	}
	wl := j.holdingQuota()
	if wl == nil || !wl.DeletionTimestamp.IsZero() || !state.MayRun(wl) {
		// Kueue takes it back already, and a deactivation stands in this Workload alone.
		return nil
	}
	if j.excess(wl, podset.Excess) == "" {
		return nil
	}
	// A job is stopped for it: our view of its Jobs may be older than that of the Workload.
	excess, err := j.excessNow(ctx, wl)
	if err != nil || excess == "" {
		return err
	}
	return j.requeueExceeding(ctx, wl, excess)
}

// placed reports whether our part is there and past the gate. Where it is not there at
// all, the JobSet tells what runs: an upgrade of Trainer that brings another field takes
// the old one from every TrainJob.
func placed(j *job) bool {
	if j.env.Field.Has(&j.Spec) {
		return !j.env.Field.HoldsGate(&j.Spec)
	}
	js := j.jobSet()
	return js != nil && !ptr.Deref(js.Spec.Suspend, false) && podset.Placed(js)
}

// gateEarly sets the gate of a TrainJob that does not queue yet: the child Jobs that are
// made meanwhile have it then. One that has it, as its webhook sees to, costs no look.
func gateEarly(ctx context.Context, j *job) error {
	if !j.prepared.unqueued || j.env.Field.HoldsGate(&j.Spec) {
		return nil
	}
	return ensureGate(ctx, j)
}

// ensureGate sets the gate of a waiting TrainJob that lacks it, because it was made
// or changed while the webhook was away. One that another controller runs needs none.
func ensureGate(ctx context.Context, j *job) error {
	if !j.alive() || !j.IsSuspended() || j.ManagedExternally() || !j.manages {
		return nil
	}
	if wl := j.holdingQuota(); wl != nil && kueuelib.IsAdmitted(wl) || j.active(ctx) {
		return nil
	}
	err := j.gate(ctx, j.env.client)
	if podsets.RuntimeMissing(err) || apierrors.IsNotFound(err) {
		// Told by an event already, or deleted meanwhile.
		return nil
	}
	return err
}
