// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	"sigs.k8s.io/kueue/pkg/workload"
)

// reconciler runs Kueue's jobframework on TrainJobs and adds what that cannot know:
// that a suspended TrainJob which is not admitted always holds the gate.
type reconciler struct {
	env       *environment
	framework *jobframework.JobReconciler
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	j := &job{env: r.env}
	result, err := r.framework.ReconcileGenericJob(ctx, req, j)
	if err != nil || j.skipped {
		return result, err
	}
	if j.placed != "" && !j.IsSuspended() {
		r.env.recorder.Eventf(&j.TrainJob, nil, corev1.EventTypeNormal, reasonPlaced, actionStart, "%s", j.placed)
	}
	return result, r.ensureGate(ctx, j)
}

// ensureGate gives the gate to a waiting TrainJob that lacks it, because it was made
// or changed while the webhook was away.
func (r *reconciler) ensureGate(ctx context.Context, j *job) error {
	if j.UID == "" || !j.DeletionTimestamp.IsZero() || !j.IsSuspended() || trainJobFinished(&j.TrainJob) {
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
		// Described as an event already, or deleted meanwhile.
		return nil
	}
	return err
}
