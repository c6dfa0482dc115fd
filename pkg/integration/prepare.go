// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// notYet keeps a waiting TrainJob without a Workload from its queue while it is too early.
func notYet(ctx context.Context, j *job) result {
	if released, err := releaseFormer(ctx, j); released || err != nil {
		// jobframework would still see it.
		return result{done: true, unqueued: true, again: retrySoon, err: err}
	}
	if held := j.record.start.heldBack(&j.TrainJob, j.env.Field); held > 0 {
		ctrl.LoggerFrom(ctx).V(2).Info("Held TrainJob back from its queue", "reason", jobevents.ReasonCannotStart, "retryAfter", held)
		j.env.Recorder.Note(j.UID, jobevents.ReasonCannotStart)
		return unqueued(held)
	}
	if since, queued := j.env.expectations.QueuedSince(&j.TrainJob); queued && since < retrySlowly {
		// The cache has not heard of the Workload that we made; its event comes.
		return unqueued(retrySlowly - since)
	}
	return awaitChildJobs(ctx, j)
}

// releaseFormer takes the finalizer off what a deleted job of the same name left behind,
// and with it the quota, and reports whether there was any. jobframework would do it, but it does not see a job that is
// too early.
func releaseFormer(ctx context.Context, j *job) (released bool, err error) {
	all := j.view.Workloads
	for i := range all {
		owner := state.ControllerOfKind(&all[i], trainjob.GVK.Kind)
		if owner == nil || owner.UID == j.UID || all[i].DeletionTimestamp.IsZero() {
			continue
		}
		j.env.leaves(all[i].UID)
		if err := kueuelib.RemoveFinalizer(ctx, j.env.client, all[i].DeepCopy()); client.IgnoreNotFound(err) != nil {
			return true, fmt.Errorf("releasing Workload %s of a former TrainJob: %w", client.ObjectKeyFromObject(&all[i]), err)
		}
		released = true
		ctrl.LoggerFrom(ctx).Info("Released the Workload of a former TrainJob", "formerWorkload", klog.KObj(&all[i]))
	}
	return released, nil
}

// awaitChildJobs keeps a TrainJob from its queue until what is made of it is there:
// Trainer freezes the runtime and JobSet makes the child Jobs at once, and no pod can come
// before them. A job that is admitted earlier starts on a runtime that is not frozen yet,
// and with child Jobs made from the view of a moment before, whose pods all have to be
// freed of the gate. The event of the last child Job brings the job here again.
func awaitChildJobs(ctx context.Context, j *job) result {
	if j.ManagedExternally() {
		// The JobSet is in another cluster.
		return result{}
	}
	js, jobs := j.jobSet(), j.childJobs()
	if js != nil && state.ChildJobsMade(js, jobs) {
		return awaitUsable(ctx, j, js, jobs)
	}
	if patience := j.record.waiting.patience(j.env.waitForJobSet, js != nil); patience > 0 {
		ctrl.LoggerFrom(ctx).V(2).Info("Waited for what is made of TrainJob before it queues", "jobSetMade", js != nil, "retryAfter", patience)
		return unqueued(patience)
	}
	if js == nil {
		return awaitJobSet(ctx, j)
	}
	return awaitUsable(ctx, j, js, jobs)
}

// tellUnprepared says that a job queues although Trainer has not looked at it.
func tellUnprepared(j *job) {
	if w := &j.record.waiting; j.manages && !w.over && j.env.waitForJobSet > 0 {
		w.over = true
		j.env.Recorder.Eventf(&j.TrainJob, nil, corev1.EventTypeNormal, jobevents.ReasonUnprepared, jobevents.ActionDescribe,
			"Trainer has not made JobSet %s in %s; the job queues without it, described from its runtime as that is now", j.Name, j.env.waitForJobSet)
	}
}

// over reports whether all is done for a finished job. jobframework would tell so again
// at every look, by an event.
func over(j *job) bool {
	workloads := j.workloads()
	return len(workloads) > 0 && !slices.ContainsFunc(workloads, func(wl kueue.Workload) bool {
		return !kueuelib.IsFinished(&wl) || controllerutil.ContainsFinalizer(&wl, kueue.ResourceInUseFinalizerName)
	})
}
