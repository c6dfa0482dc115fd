// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/serving"
)

// awaitAnswer leaves a TrainJob alone before it is known who looks after it: the answer
// brings it here again. When that takes long, the user is told.
func (r *reconciler) awaitAnswer(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	return r.standAside(ctx, req, &r.env.inTree.Told, jobevents.ReasonInTreeUnknown, jobevents.Truncate(r.env.inTree.Silence()))
}

// standAside tells a queued TrainJob, once, why the manager does nothing for it; without a
// message, it tells nothing.
func (r *reconciler) standAside(ctx context.Context, req ctrl.Request, told *serving.Told, reason, message string) (ctrl.Result, error) {
	j, err := r.env.observe(ctx, req.NamespacedName)
	if errors.Is(err, errOldView) {
		return ctrl.Result{RequeueAfter: retrySlowly}, nil
	}
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("looking at TrainJob %s: %w", req, err)
	}
	defer r.env.records.trim(j.key)
	if released := releaseCopies(ctx, j); released.err != nil || released.again > 0 {
		return released.asResult()
	}
	if j.UID == "" {
		r.env.forgetName(j.key)
		return awaitRelease(j.view.Workloads), nil
	}
	if err := observeNamespace(ctx, j).err; err != nil {
		return ctrl.Result{}, fmt.Errorf("looking at TrainJob %s: %w", req, err)
	}
	if message == "" || !j.manages || j.TrainJob.Finished() {
		return ctrl.Result{}, nil
	}
	r.env.Recorder.Note(j.UID, reason)
	r.env.Recorder.Looked(j.UID)
	if told.First(j.UID) {
		r.env.Recorder.Resolve(j.UID, reason)
		r.env.Recorder.LoggingTo(ctrl.LoggerFrom(ctx)).Eventf(&j.TrainJob, nil, corev1.EventTypeWarning, reason, jobevents.ActionDescribe, "%s", message)
	}
	return ctrl.Result{}, nil
}

// awaitRelease comes again for a TrainJob that is gone while a Workload of it is there: when the
// manager acts again, that brings here the TrainJobs that there are, and no other event comes of a
// Workload that waits for its finalizer, and has quota.
func awaitRelease(left []kueue.Workload) ctrl.Result {
	if len(left) == 0 {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: retrySlowly}
}
