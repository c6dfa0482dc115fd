// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	"sigs.k8s.io/kueue/pkg/workload"

	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// reconciler runs Kueue's jobframework on TrainJobs and adds what that cannot know:
// that a suspended TrainJob which is not admitted always holds the gate.
type reconciler struct {
	env       *environment
	framework *jobframework.JobReconciler
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ctx = ctrl.LoggerInto(ctx, quiet(ctrl.LoggerFrom(ctx)))
	if r.env.inTree.active() {
		return r.standAside(ctx, req, &r.env.inTree.told, reasonNotAlone, inTreeRemedy)
	}
	env, err := r.env.now()
	if err != nil {
		return r.standAside(ctx, req, &r.env.trainer.told, reasonTrainerUnknown, err.Error())
	}
	r = &reconciler{env: env, framework: r.framework}
	j := &job{env: env}
	result, err := r.reconcile(ctx, req, j)
	if expectedRetry(err) && !(trainerLags(err) && env.lagsLong(&j.TrainJob)) {
		return ctrl.Result{RequeueAfter: retryIn(err)}, nil
	}
	if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
		r.env.warn(&j.TrainJob, reasonRefused, actionWrite, err)
	}
	if err != nil {
		// With an error, the result has no say.
		return ctrl.Result{}, err
	}
	return result, nil
}

func (r *reconciler) reconcile(ctx context.Context, req ctrl.Request, j *job) (ctrl.Result, error) {
	result, err := r.framework.ReconcileGenericJob(ctx, req, j)
	if j.UID == "" {
		r.env.expectations.forget(req.NamespacedName)
	}
	if j.unread {
		err = firstError(r.awaitReading(ctx, j), err)
	}
	if errors.Is(err, errStillActive) {
		_, errStop := r.watchStop(ctx, j)
		err = firstError(errStop, err)
	}
	// Whatever else there is to wait for: it may wait for this.
	waitAgreed, errAgreed := r.ensureAgreed(ctx, j)
	if j.skipped || err != nil {
		return sooner(sooner(result, waitAgreed), j.again), firstError(j.prepareErr, err, errAgreed, r.gateEarly(ctx, j))
	}
	if j.placed != "" && !j.IsSuspended() {
		r.env.recorder.Eventf(&j.TrainJob, nil, corev1.EventTypeNormal, reasonStarted, actionStart, "%s", j.placed)
	}
	if err := r.ensurePlaced(ctx, j); err != nil {
		return result, err
	}
	waitStop, errStop := r.watchStop(ctx, j)
	return sooner(sooner(result, waitAgreed), waitStop), firstError(errAgreed, errStop, r.ensureGate(ctx, j))
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
func (r *reconciler) ensurePlaced(ctx context.Context, j *job) error {
	if j.UID == "" || !j.DeletionTimestamp.IsZero() || j.IsSuspended() || j.TrainJob.Finished() {
		return nil
	}
	managed, err := r.env.managed(ctx, &j.TrainJob)
	if err != nil || !managed {
		return err
	}
	placed, err := r.env.placed(ctx, &j.TrainJob)
	if err != nil || placed {
		return err
	}
	wl, err := r.env.workload(ctx, &j.TrainJob)
	if err != nil || wl == nil || !workload.IsAdmitted(wl) {
		return err
	}
	return j.suspend(ctx, r.env.client, false)
}

// placed reports whether our part is there and past the gate. Where it is not there at
// all, the JobSet tells what runs: an upgrade of Trainer that brings another field takes
// the old one from every TrainJob.
func (e *environment) placed(ctx context.Context, job *trainjob.TrainJob) (bool, error) {
	if e.field.Has(&job.Spec) {
		return !e.field.HoldsGate(&job.Spec), nil
	}
	js, err := e.jobSet(ctx, job)
	return err == nil && js != nil && !ptr.Deref(js.Spec.Suspend, false) && podset.Placed(js), err
}

// gateEarly gives the gate to a TrainJob that does not queue yet: the child Jobs that are
// made meanwhile have it then. One that has it, as its webhook sees to, costs no look.
func (r *reconciler) gateEarly(ctx context.Context, j *job) error {
	if !j.early || r.env.field.HoldsGate(&j.Spec) {
		return nil
	}
	return r.ensureGate(ctx, j)
}

// ensureGate gives the gate to a waiting TrainJob that lacks it, because it was made
// or changed while the webhook was away.
func (r *reconciler) ensureGate(ctx context.Context, j *job) error {
	if j.UID == "" || !j.DeletionTimestamp.IsZero() || !j.IsSuspended() || j.TrainJob.Finished() {
		return nil
	}
	managed, err := r.env.managed(ctx, &j.TrainJob)
	if err != nil || !managed {
		return err
	}
	wl, err := r.env.workload(ctx, &j.TrainJob)
	if err != nil || (wl != nil && workload.IsAdmitted(wl)) || j.IsActive() {
		return err
	}
	err = j.gate(ctx, r.env.client)
	if runtimeMissing(err) || apierrors.IsNotFound(err) {
		// Told by an event already, or deleted meanwhile.
		return nil
	}
	return err
}
