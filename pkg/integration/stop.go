// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podtracking"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const (
	// longStop is how long a stopped job may keep its quota before people are told.
	longStop = 10 * time.Second

	// longLag is how long Trainer may refuse to change a job without pods before people are told.
	longLag = 30 * time.Second
)

// watchStop tells people when a stopped job takes long to be gone: the quota is its own
// until then.
func watchStop(ctx context.Context, j *job) result {
	wl := j.holdingQuota()
	if wl == nil || !j.IsSuspended() {
		return result{}
	}
	since := state.StoppedSince(wl)
	if since.IsZero() || !j.active(ctx) {
		return result{}
	}
	// What would tell of the last pod may be gone: the job looks again by itself.
	wait := podtracking.RecheckIn(since)
	if time.Since(since) < longStop {
		return result{again: wait}
	}
	return result{again: wait, err: tellStop(ctx, j)}
}

// tellStop names what a stop waits for: the last pods, or JobSet, which does not say that
// they are gone while something keeps it from writing its status.
func tellStop(ctx context.Context, j *job) error {
	if slices.ContainsFunc(j.childJobs(), func(child batchv1.Job) bool { return state.LivePods(&child) > 0 }) {
		// How many is another event with each that ends.
		j.tell(jobevents.ReasonStopping, jobevents.ActionStop,
			"Pods of the stopped run are still terminating; the job keeps its quota and starts again only when they are gone")
		return nil
	}
	if left, err := tellPodsLeft(ctx, j, "stopped"); left || err != nil {
		return err
	}
	if js := j.jobSet(); js != nil && state.SaysActive(js) {
		j.warn(jobevents.ReasonStopping, jobevents.ActionStop,
			"no pod of the stopped run is left, but JobSet %s still reports active Jobs, so the job keeps its quota: look at the JobSet's events and at the JobSet controller", js.Name)
	}
	return nil
}

// lagsLong reports whether err says that Trainer has not heard of the last pod of a job, although
// it had time enough since the job was changed.
func lagsLong(expectations *jobclient.Expectations, job *trainjob.TrainJob, err error) bool {
	return jobclient.TrainerLags(err) && time.Since(expectations.ChangedBy(job)) > longLag
}

// awaitPodsOfDeleted waits for the pods that a deleted TrainJob still has: until they are gone, and
// no others can come, its Workload keeps its finalizer, and with it the quota.
func awaitPodsOfDeleted(ctx context.Context, j *job) result {
	workloads := j.view.Workloads
	if !slices.ContainsFunc(workloads, state.HoldsQuota) {
		return result{}
	}
	if waits := awaitLastPodOf(ctx, j, state.StoppingSince(workloads)); waits.ends() {
		ctrl.LoggerFrom(ctx).V(2).Info("Kept the quota of a deleted TrainJob for its pods")
		return waits
	}
	if wait := mayBeMadeAgain(j); j.UID != "" && wait > 0 {
		return lookAgain(wait)
	}
	for _, wl := range workloads {
		j.deps.ledger.Leave(wl.UID)
	}
	ctrl.LoggerFrom(ctx).Info("Found no pod left and let the quota go", "reason", "TrainJobDeleted")
	return result{}
}

// awaitLastPodOf waits for the pods of a deleted TrainJob that stops since a time, and until no others can come.
func awaitLastPodOf(ctx context.Context, j *job, since time.Time) result {
	wait, left, err := j.pods().AwaitLast(ctx, &j.TrainJob, since)
	if left {
		err = reportPodsLeft(ctx, j)
	}
	return result{done: wait > 0, again: wait, err: err}
}

// deleteCopies deletes the Workloads that MultiKueue made for a deleted job which stays for somebody's finalizer, when
// its pods are gone: MultiKueue would take it for running, for as long as that takes. It deletes the job, then its
// Workload, and runs it somewhere else. jobframework would finish a Workload whose job is gone, and MultiKueue takes
// that for the end of the job.
func deleteCopies(ctx context.Context, j *job) result {
	workloads := j.view.Workloads
	if !slices.ContainsFunc(workloads, placeholder.OfCopy) {
		return result{}
	}
	if j.UID == "" {
		return done(nil)
	}
	if waits := awaitLastPodOf(ctx, j, j.DeletionTimestamp.Time); waits.ends() {
		return waits
	}
	for _, wl := range workloads {
		// Of a finished one, MultiKueue has yet to read how the job ended.
		if !wl.DeletionTimestamp.IsZero() || kueuelib.IsFinished(wl) {
			continue
		}
		if err := jobclient.DeleteWorkload(ctx, j.deps.client, wl, "deleting Workload %s of a deleted TrainJob"); err != nil {
			return ofError(err)
		}
	}
	return done(nil)
}

// managed reports whether the job is the manager's. Of what is deleted, Kueue's rule says that it manages nothing.
func managed(j *job) bool {
	if !j.DeletionTimestamp.IsZero() {
		return jobframework.QueueName(j) != "" || patch.Patched(j.deps.Field, &j.Spec)
	}
	return j.manages
}

// suspendDeleted suspends a job that is deleted and stays, for its dependents or for somebody's
// finalizer. Trainer would make another JobSet as soon as the last one is gone, and run it on
// quota that is given back, also of one that has ended, where it forgets that with the JobSet.
// The policies keep anybody from resuming it. In a namespace that is being deleted Trainer refuses it where the runtime goes
// first, and nobody makes another JobSet.
func suspendDeleted(ctx context.Context, j *job) result {
	if j.IsSuspended() || j.ManagedExternally() || j.TrainJob.Finished() && comesBack(j) == nil || !managed(j) || j.pods().Closed() {
		return result{}
	}
	err := suspend(ctx, j, false, metrics.StopTrainJobDeleted)
	switch {
	case err == nil:
		ctrl.LoggerFrom(ctx).Info("Suspended a deleted TrainJob that is still there")
	case refusedWithoutRuntime(ctx, j, err):
		j.warn(jobevents.ReasonRefused, jobevents.ActionStop, "%v", err)
		wait := inHand(j)
		return result{again: wait, done: wait > 0}
	}
	return ofError(client.IgnoreNotFound(err))
}

// refusedWithoutRuntime reports whether err is Trainer's refusal to change a deleted job of which it can make no JobSet any
// more: its runtime is gone, and whoever deletes a job in the foreground has its snapshot deleted, too.
func refusedWithoutRuntime(ctx context.Context, j *job, err error) bool {
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || j.jobSet() != nil {
		return false
	}
	if _, err := j.deps.Runtimes.SnapshotTaken(ctx, &j.TrainJob); err != nil {
		return false
	}
	_, err = j.deps.Runtimes.For(ctx, &j.TrainJob)
	return podsets.RuntimeMissing(err)
}

// awaitPodsOfFormer waits for the pods that a deleted TrainJob of the same name still has.
// jobframework would delete its Workload, and with it the quota that they run on. MultiKueue
// deletes that itself, and soon sends the job here again: then the pods are all that is left.
func awaitPodsOfFormer(ctx context.Context, j *job) result {
	former := slices.DeleteFunc(slices.Clone(j.view.Workloads), func(wl *kueue.Workload) bool {
		owner := metav1.GetControllerOfNoCopy(wl)
		return owner == nil || owner.UID == j.UID || !state.HoldsQuota(wl)
	})
	since := state.StoppingSince(former)
	copied := len(former) == 0
	if copied {
		if j.Labels[kueue.MultiKueueOriginLabel] == "" || !j.IsSuspended() || !j.alive() {
			return result{}
		}
		since = j.CreationTimestamp.Time
	}
	js := j.jobSet()
	// Only a JobSet or a Job of a former TrainJob of this name can bring pods of it after the last was gone.
	formerJobSet := j.view.JobSet != nil && js == nil && state.ControllerOfKind(j.view.JobSet, trainjob.GVK) != nil
	if copied && j.record.alone && !formerJobSet && len(jobsOfFormer(j)) == 0 {
		return result{}
	}
	pods, err := j.pods().Left(ctx)
	left := slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		return js == nil || pod.Labels[jobsetapi.JobSetUIDKey] != string(js.UID)
	})
	if left {
		ctrl.LoggerFrom(ctx).V(2).Info("Waited for pods of a former TrainJob")
		return result{done: true, again: podtracking.RecheckIn(since), err: cmp.Or(err, reportPodsLeft(ctx, j))}
	}
	if err != nil {
		return result{err: err}
	}
	if copied {
		j.record.alone = true
		return result{}
	}
	if wait := formerMayRun(j, since); wait > 0 {
		return lookAgain(wait)
	}
	// jobframework does it of a job that queues alone.
	if released, err := releaseFormer(ctx, j); released || err != nil {
		return result{done: true, again: retrySoon, err: err}
	}
	return result{}
}

// formerMayRun returns how long a former TrainJob of the same name, which stops since a time, may still get pods: its
// controllers carry on what they saw of it.
func formerMayRun(j *job, since time.Time) time.Duration {
	if slices.ContainsFunc(jobsOfFormer(j), state.HasPods) {
		return podtracking.RecheckIn(since)
	}
	js := j.jobSet()
	if js != nil {
		// The one of the former job is gone.
		return 0
	}
	return j.pods().MayRunYet(&j.TrainJob)
}

// jobsOfFormer returns the Jobs of former TrainJobs of this name.
func jobsOfFormer(j *job) []batchv1.Job {
	js := j.jobSet()
	return slices.DeleteFunc(j.pods().Jobs(), func(child batchv1.Job) bool { return js != nil && state.IsControlledBy(&child, js) })
}

// startDeactivation evicts a Workload that is to be deactivated, as Kueue does with one that was: jobframework stops
// the job, and Stop calls finishDeactivation when its last pod is gone. One without quota is deactivated at once.
func startDeactivation(ctx context.Context, j *job) result {
	for _, wl := range j.workloads() {
		countedByKueue := state.HoldsQuota(wl) && kueuelib.IsActive(wl)
		switch {
		case !wl.DeletionTimestamp.IsZero() || kueuelib.IsFinished(wl):
		case deactivation.Marked(wl) && !countedByKueue:
			return done(deactivateWorkload(ctx, j, wl))
		case countedByKueue && deactivation.Pending(wl) && !kueuelib.IsEvictedByDeactivation(wl):
			return done(evictToDeactivate(ctx, j, wl))
		case countedByKueue && deactivation.Pending(wl), state.HoldsQuota(wl) && !kueuelib.IsActive(wl):
			keepTimeLimit(j, wl)
		}
	}
	return result{}
}

// evictToDeactivate writes condition Evicted with the reason that Kueue has for it.
func evictToDeactivate(ctx context.Context, j *job, wl *kueue.Workload) error {
	cause, message := deactivation.Why(wl)
	ofQueue, err := j.deps.queues.ExposesMetrics(ctx, wl)
	if err != nil {
		return err
	}
	err = kueuelib.EvictToDeactivate(ctx, j.deps.client, j.deps.Recorder.EventRecorder, wl.DeepCopy(), cause, message, ofQueue, j.deps.labels)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("evicting Workload %s, which is to be deactivated: %w", client.ObjectKeyFromObject(wl), err)
	}
	return nil
}

// finishDeactivation deactivates the Workload of a job without pods, where that is to be. It returns errOutdated then:
// Kueue counts nothing of it from then on, and jobframework gives the rest back.
func finishDeactivation(ctx context.Context, j *job) error {
	wl := j.holdingQuota()
	if wl == nil || !wl.DeletionTimestamp.IsZero() || !deactivation.Pending(wl) {
		return nil
	}
	return cmp.Or(deactivateWorkload(ctx, j, wl), errOutdated)
}

// deactivateWorkload writes spec.active, and takes the mark away.
func deactivateWorkload(ctx context.Context, j *job, wl *kueue.Workload) error {
	inactive := wl.DeepCopy()
	inactive.Spec.Active = ptr.To(false)
	delete(inactive.Annotations, deactivation.Annotation)
	if err := jobclient.PatchWorkload(ctx, j.deps.client, wl, inactive, "deactivating Workload %s"); err != nil {
		return client.IgnoreNotFound(err)
	}
	if kueuelib.IsActive(wl) {
		ctrl.LoggerFrom(ctx).Info("Deactivated the Workload of a job without pods")
	}
	return nil
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
		j.record.run.Stops(j.deps.metrics, &j.TrainJob, j.holdingQuota(), reason)
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
