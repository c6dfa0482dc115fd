// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"

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
	ctx = loggerOf(ctx, j)
	return j.conclude(ctx, j.reconcile(ctx))
}

// reconcile lets jobframework decide about a TrainJob, follows that decision to its end, and
// ensures what neither jobframework nor Trainer would see to.
func (j *job) reconcile(ctx context.Context) result {
	sum := untilEnd(ctx, j, []rule{releaseCopies, observeNamespace, leaveAlone})
	if sum.ends() {
		return sum
	}
	before := untilEnd(ctx, j, rules[j.phase()].before)
	sum.add(before)
	if !before.ends() {
		sum.add(decide(ctx, j))
	}
	if j.UID == "" {
		j.env.forgetName(j.key)
	}
	always := result{}
	for _, of := range rules[j.phase()].always {
		always.add(of(ctx, j))
	}
	switch {
	case before.unqueued:
		sum.add(gateEarly(ctx, j))
	case j.decision.made && j.decision.err == nil:
		tellStart(j)
		sum.add(untilEnd(ctx, j, rules[j.phase()].settled))
	}
	sum.add(always)
	return sum
}

// decide has jobframework look at a job, and does what the reason of its decision calls for.
func decide(ctx context.Context, j *job) result {
	if j.phase() == phaseSuspended || j.phase() == phaseRunning {
		// jobframework has no context for it.
		j.active(ctx)
	}
	decided, err := j.env.framework(j).ReconcileGenericJob(ctx, ctrl.Request{NamespacedName: j.key}, j)
	j.decision.made, j.decision.err = true, followUp(ctx, j, err)
	sum := result{again: decided.RequeueAfter, err: j.decision.err}
	sum.add(result{again: j.decision.again})
	return sum
}

// conclude returns for the controller what a reconcile came to, and ends its look at the job. One that saw nothing new
// tells nothing of its troubles.
func (j *job) conclude(ctx context.Context, sum result) (ctrl.Result, error) {
	out, err := j.answer(ctx, sum)
	if j.UID != "" && !sum.stale {
		j.env.Recorder.Looked(j.UID)
	}
	j.env.records.trim(j.key)
	return out, err
}

// answer returns when the controller is to look again, or the error that it does so for.
func (j *job) answer(ctx context.Context, sum result) (ctrl.Result, error) {
	err := sum.err
	if wait := jobclient.BackoffOf(err); wait > 0 {
		j.env.Recorder.Warn(&j.TrainJob, jobevents.ReasonWriteInVain, jobevents.ActionWrite, err)
		return ctrl.Result{RequeueAfter: wait, Priority: ptr.To(0)}, nil
	}
	if apierrors.IsConflict(err) {
		ctrl.LoggerFrom(ctx).V(2).Info("Another writer was faster", "error", err)
		if name := jobclient.ConflictingWorkload(err); name != "" {
			j.env.expectations.Outdate(j.key, jobclient.VersionsNamed(name, jobclient.VersionsOf(j.view.Workloads)))
		}
		// Whatever Kueue decided is not done yet: it stays as urgent as it is.
		return ctrl.Result{RequeueAfter: retrySoon}, nil
	}
	// What waits shall not be in the way of what was decided meanwhile.
	urgency := ptr.To(0)
	if expectedRetry(err) && !lagsLong(j.env.expectations, &j.TrainJob, err) {
		return ctrl.Result{RequeueAfter: retryIn(err), Priority: urgency}, nil
	}
	if j.UID != "" && (apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) {
		j.env.Recorder.Warn(&j.TrainJob, jobevents.ReasonRefused, jobevents.ActionWrite, err)
	}
	if err != nil {
		// With an error, no more of the result has a say.
		return ctrl.Result{Priority: urgency}, err
	}
	return ctrl.Result{RequeueAfter: sum.again, Priority: urgency}, nil
}

// forgetName drops what is remembered of a TrainJob by its name alone.
func (e *environment) forgetName(key types.NamespacedName) {
	e.expectations.Forget(key)
	e.records.forget(key)
}

// followUp does what the reason of a decision calls for, and tells people of it. It returns what
// went wrong: with that, or else with the decision itself.
func followUp(ctx context.Context, j *job, decided error) error {
	err := decided
	if j.decision.rollingOut {
		err = firstError(awaitRollout(ctx, j), err)
	}
	if errors.Is(err, jobframework.ErrPrebuiltWorkloadNotFound) {
		err = firstError(tellPrebuilt(ctx, j), err)
	}
	if classMissing(err) {
		tellClassMissing(j, err)
	}
	if j.decision.excess != "" {
		err = firstError(renewExceeding(ctx, j), err)
	}
	if errors.Is(err, errStillActive) {
		err = firstError(watchStop(ctx, j).err, err)
	}
	return err
}

// tellStart says where a job was sent that this reconcile started.
func tellStart(j *job) {
	if j.decision.started == "" || j.IsSuspended() {
		return
	}
	// Every start is news, also one by the admission of the last.
	measureStart(j)
	j.env.Recorder.Resolve(j.UID, jobevents.ReasonStarted)
	j.env.Recorder.Eventf(&j.TrainJob, nil, corev1.EventTypeNormal, jobevents.ReasonStarted, jobevents.ActionStart, "%s", j.decision.started)
}

// ensurePlaced suspends an admitted TrainJob that somebody resumed before we could
// place it: its pods would stay gated, or run anywhere. The next reconcile starts it.
func ensurePlaced(ctx context.Context, j *job) result {
	if j.ManagedExternally() || !j.manages || placed(j) {
		return result{}
	}
	if wl := j.holdingQuota(); wl == nil || !kueuelib.IsAdmitted(wl) {
		return result{}
	}
	if err := suspend(ctx, j, j.env.client, false); err != nil {
		return failed(err)
	}
	measureStop(j, metrics.StopNotAdmitted)
	ctrl.LoggerFrom(ctx).Info("Suspended TrainJob that was resumed without its placement")
	return result{}
}

// ensureWithinQuota takes a job back that asks for more than it was admitted for. What a
// job runs is what its JobSet has, whenever that was made and of whatever: people may edit
// the snapshot of the runtime, or delete it together with the JobSet, and Trainer makes
// another one of what it finds then.
func ensureWithinQuota(ctx context.Context, j *job) result {
	if j.ManagedExternally() {
		return result{}
	}
	wl := j.holdingQuota()
	if wl == nil || !wl.DeletionTimestamp.IsZero() || !state.MayRun(wl) {
		// Kueue takes it back already, and a deactivation stands in this Workload alone.
		return result{}
	}
	if excess(j, wl, podset.Excess) == "" {
		return result{}
	}
	// A job is stopped for it: our view of its Jobs may be older than that of the Workload.
	excess, err := excessNow(ctx, j, wl)
	if err != nil || excess == "" {
		return failed(err)
	}
	return failed(requeueExceeding(ctx, j, wl, excess))
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
func gateEarly(ctx context.Context, j *job) result {
	if j.env.Field.HoldsGate(&j.Spec) {
		return result{}
	}
	return ensureGate(ctx, j)
}

// ensureGate sets the gate of a waiting TrainJob that lacks it, because it was made
// or changed while the webhook was away. One that another controller runs needs none.
func ensureGate(ctx context.Context, j *job) result {
	if !j.alive() || !j.IsSuspended() || j.ManagedExternally() || !j.manages {
		return result{}
	}
	if wl := j.holdingQuota(); wl != nil && kueuelib.IsAdmitted(wl) || j.active(ctx) {
		return result{}
	}
	err := gate(ctx, j, j.env.client)
	if podsets.RuntimeMissing(err) || apierrors.IsNotFound(err) {
		// Told by an event already, or deleted meanwhile.
		return result{}
	}
	return failed(err)
}
