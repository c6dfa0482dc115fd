// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/serving"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// awaitAnswer leaves a TrainJob alone before it is known who looks after it: the answer
// brings it here again. When that takes long, the user is told.
func (r *reconciler) awaitAnswer(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	silence := r.env.inTree.Silence()
	if silence == "" {
		return ctrl.Result{}, nil
	}
	return r.standAside(ctx, req, &r.env.inTree.Told, jobevents.ReasonInTreeUnknown, jobevents.Truncate(silence))
}

// standAside tells a queued TrainJob, once, why the manager does nothing for it.
func (r *reconciler) standAside(ctx context.Context, req ctrl.Request, told *serving.Told, reason, message string) (ctrl.Result, error) {
	job := &trainjob.TrainJob{}
	if err := r.env.client.Get(ctx, req.NamespacedName, job); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	managed, err := r.env.queues.Manages(ctx, job)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("looking at TrainJob %s: %w", req, err)
	}
	if managed && !job.Finished() && told.First(job.UID) {
		r.env.Recorder.Resolve(job.UID, reason)
		r.env.Recorder.Eventf(job, nil, corev1.EventTypeWarning, reason, jobevents.ActionDescribe, "%s", message)
	}
	return ctrl.Result{}, nil
}
