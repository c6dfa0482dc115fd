// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/starts"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
)

// notYet keeps a waiting TrainJob without a Workload from its queue while it is too early.
func notYet(ctx context.Context, j *job) result {
	if released, err := releaseFormer(ctx, j); released || err != nil {
		// jobframework would still see it.
		return result{done: true, unqueued: true, again: retrySoon, err: err}
	}
	if held := j.record.start.HeldBack(&j.TrainJob, j.deps.Field); held > 0 {
		ctrl.LoggerFrom(ctx).V(2).Info("Held TrainJob back from its queue", "reason", jobevents.ReasonCannotStart, "retryAfter", held)
		j.note(jobevents.ReasonCannotStart)
		return unqueued(held)
	}
	if since, queued := j.deps.expectations.QueuedSince(&j.TrainJob); queued && since < retrySlowly {
		// The cache has not heard of the Workload that we made; its event comes.
		return unqueued(retrySlowly - since)
	}
	return awaitChildJobs(ctx, j)
}

// releaseFormer takes the finalizer off what a deleted job of the same name left behind,
// and with it the quota, and reports whether there was any. jobframework would do it, but it does not see a job that is
// too early.
func releaseFormer(ctx context.Context, j *job) (released bool, err error) {
	for _, wl := range j.view.Workloads {
		if !leftByFormer(j, wl) || !controllerutil.ContainsFinalizer(wl, kueue.ResourceInUseFinalizerName) {
			continue
		}
		j.deps.ledger.Leave(wl.UID)
		if err := kueuelib.RemoveFinalizer(ctx, j.deps.client, wl.DeepCopy()); client.IgnoreNotFound(err) != nil {
			return true, fmt.Errorf("releasing Workload %s of a former TrainJob: %w", client.ObjectKeyFromObject(wl), err)
		}
		released = true
		ctrl.LoggerFrom(ctx).Info("Released the Workload of a former TrainJob", "formerWorkload", klog.KObj(wl))
	}
	return released, nil
}

// leftByFormer reports whether wl is what a deleted job of the same name left behind.
func leftByFormer(j *job, wl *kueue.Workload) bool {
	owner := state.ControllerOfKind(wl, trainjob.GVK)
	return owner != nil && owner.UID != j.UID && !wl.DeletionTimestamp.IsZero()
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
	if js == nil || !state.ChildJobsMade(js, jobs) {
		if patience := j.record.waiting.patience(j.deps.waitForJobSet, js != nil); patience > 0 {
			ctrl.LoggerFrom(ctx).V(2).Info("Waited for what is made of TrainJob before it queues", "jobSetMade", js != nil, "retryAfter", patience)
			return unqueued(patience)
		}
	}
	if js == nil {
		return awaitJobSet(ctx, j)
	}
	return awaitUsable(ctx, j, js, jobs)
}

// awaitJobSet is for a job that has waited long enough for its JobSet: it queues without. Where
// Trainer was refused the JobSet it does not, for then it could only hold quota; Trainer tries
// again by itself, and the event of the JobSet brings the job here.
func awaitJobSet(ctx context.Context, j *job) result {
	if !j.manages {
		return result{}
	}
	wait, refused := j.record.start.Unmade.Wait(j.Generation)
	if wait > 0 {
		j.note(jobevents.ReasonCannotStart)
		return unqueued(wait)
	}
	var awaitedUntil time.Time
	if j.deps.waitForJobSet > 0 {
		awaitedUntil = firstSeen(&j.record.waiting.began).Add(j.deps.waitForJobSet)
	}
	refusal, again, err := j.deps.refusals.Last(ctx, j.Namespace, trainjob.GVK.Kind, []types.UID{j.UID}, time.Time{}, awaitedUntil)
	if err != nil {
		return result{err: err}
	}
	if again > 0 {
		if refused {
			j.note(jobevents.ReasonCannotStart)
		}
		return unqueued(again)
	}
	wait = j.record.start.Unmade.Found(refusal != "")
	if refusal == "" {
		if w := &j.record.waiting; !w.over && j.deps.waitForJobSet > 0 {
			w.over = true
			j.tell(jobevents.ReasonUnprepared, jobevents.ActionDescribe,
				"Trainer has not made JobSet %s in %s; the job queues without it, described from its runtime as that is now", j.Name, j.deps.waitForJobSet)
		}
		return result{}
	}
	j.warn(jobevents.ReasonCannotStart, jobevents.ActionDescribe,
		"does not queue, because Trainer could not make JobSet %s: %s", j.Name, refusal)
	return unqueued(wait)
}

// awaitUsable is for a job whose first child Jobs are there, or should be. It does not queue where another Job has
// the name of one that JobSet has yet to make: JobSet gets no further than that, neither to a start nor to a stop. Nor
// where somebody's finalizer would keep what is made of it, and its pods, when it is deleted: the policies see to
// that from here on.
func awaitUsable(ctx context.Context, j *job, js *jobsetapi.JobSet, jobs []batchv1.Job) result {
	if !j.manages {
		return result{}
	}
	why, goes := kept("JobSet", js), !js.DeletionTimestamp.IsZero()
	for i := range jobs {
		why, goes = cmp.Or(why, kept("Job", &jobs[i])), goes || !jobs[i].DeletionTimestamp.IsZero()
	}
	if why == "" && goes {
		// Its end brings the job here again.
		return unqueued(starts.FirstUnmade)
	}
	if why == "" {
		// Caches have only the Jobs of JobSets.
		missing := sets.New(state.JobNames(js)...)
		for i := range jobs {
			missing.Delete(jobs[i].Name)
		}
		err := state.EachJobNamed(ctx, j.deps.live, js.Namespace, missing, func(child *metav1.PartialObjectMetadata) {
			if !state.IsControlledBy(child, js) {
				why = fmt.Sprintf("JobSet %s needs a Job %s, and there is another one of that name: delete that, or create the TrainJob under another name", js.Name, child.Name)
			}
		})
		if err != nil || why == "" {
			return result{err: err}
		}
	}
	j.warn(jobevents.ReasonCannotStart, jobevents.ActionDescribe, "does not queue, because %s", why)
	// The event of what is made or changed then brings the job here, too.
	return unqueued(min(starts.LongestUnmade, max(starts.FirstUnmade, time.Since(firstSeen(&j.record.waiting.began)))))
}

// kept says by which finalizer an object stays when it is deleted; empty: by none. One that is deleted in the
// foreground goes after its pods.
func kept(kind string, obj client.Object) string {
	for _, finalizer := range obj.GetFinalizers() {
		if finalizer != metav1.FinalizerDeleteDependents || obj.GetDeletionTimestamp().IsZero() {
			return fmt.Sprintf("%s %s has finalizer %s, which would keep pods that nobody stops: take the finalizer off", kind, obj.GetName(), finalizer)
		}
	}
	return ""
}

// takeOverlooked puts a job into the LocalQueue default that was there when it was made, and that its webhook did not
// give it: the webhooks are asked about TrainJobs without a queue as soon as the leader has
// seen such a queue, and it may have been away. What is older than the queue or than the webhooks is not Kueue's.
func takeOverlooked(ctx context.Context, j *job) result {
	overlooked, err := isOverlooked(ctx, j)
	if err != nil || !overlooked {
		return ofError(err)
	}
	defaulted := j.TrainJob.DeepCopy()
	err = jobframework.ApplyDefaultLocalQueueWithManagedJobsNamespaceSelector(ctx, j.deps.client, defaulted,
		j.deps.queues.HasDefault(ctx), j.deps.kueue.Settings().NamespaceSelector())
	queue := string(jobframework.QueueNameForObject(defaulted))
	if err != nil || queue == "" {
		return ofError(err)
	}
	if err := j.deps.queues.Dispatchable(ctx, &j.TrainJob, queue); errors.Is(err, queues.ErrOnlyHere) {
		j.warn(jobevents.ReasonOverlooked, jobevents.ActionQueue, "not put into LocalQueue %s: %v", queue, err)
		return result{}
	} else if err != nil {
		return ofError(err)
	}
	if err := jobclient.SetQueue(ctx, j.deps.client, &j.TrainJob, queue); err != nil {
		return ofError(err)
	}
	j.tell(jobevents.ReasonOverlooked, jobevents.ActionQueue,
		"Put into LocalQueue %s, which was there when the TrainJob was made without a queue", queue)
	return done(nil)
}

// isOverlooked reports whether the webhooks should have been asked about a job without a queue for the sake of a
// LocalQueue default.
func isOverlooked(ctx context.Context, j *job) (bool, error) {
	if jobframework.QueueNameForObject(&j.TrainJob) != "" {
		return false, nil
	}
	var queue kueue.LocalQueue
	key := client.ObjectKey{Namespace: j.Namespace, Name: string(kueueconstants.DefaultLocalQueueName)}
	if err := j.deps.client.Get(ctx, key, &queue); err != nil || j.CreationTimestamp.Before(&queue.CreationTimestamp) {
		return false, client.IgnoreNotFound(err)
	}
	var namespace corev1.Namespace
	if err := j.deps.client.Get(ctx, client.ObjectKey{Name: j.Namespace}, &namespace); err != nil {
		return false, fmt.Errorf("reading namespace %s: %w", j.Namespace, err)
	}
	var webhooks admissionregistrationv1.MutatingWebhookConfiguration
	if err := j.deps.client.Get(ctx, client.ObjectKey{Name: webhookconfig.Installed.Mutating}, &webhooks); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	included, err := webhookconfig.Includes(&webhooks, &namespace, j.CreationTimestamp)
	if err != nil || !included {
		return false, err
	}
	// They may be for the namespace only since it was labelled so.
	labelled, err := j.deps.queues.LabelledAt(ctx, j.Namespace)
	return j.CreationTimestamp.After(labelled), err
}

// leaveAlone ends the look at a TrainJob that is none of Kueue's because of its namespace, by managedJobsNamespaceSelector.
// Where the selector, or the labels of the namespace, were others before, nothing is stopped for that: what has quota
// keeps it to its end, and what began without any goes on. What waits loses its Workload, and then the gate.
func leaveAlone(ctx context.Context, j *job) result {
	if j.UID == "" || !j.unmanaged && len(j.view.Workloads) > 0 {
		return result{}
	}
	if !j.unmanaged {
		began, err := beganUnmanaged(ctx, j)
		return result{done: began, err: err}
	}
	if former := awaitPodsOfFormer(ctx, j); former.ends() {
		return former
	}
	workloads := j.workloads()
	if !j.alive() || !j.deps.expectations.Satisfied(&j.TrainJob) {
		return result{done: len(workloads) == 0}
	}
	if slices.ContainsFunc(workloads, func(wl *kueue.Workload) bool {
		return !wl.DeletionTimestamp.IsZero() && (wl.Spec.QueueName != "" || state.HoldsQuota(wl)) || state.HoldsQuota(wl) && (!j.IsSuspended() || j.active(ctx))
	}) {
		return result{}
	}
	for _, wl := range workloads {
		if !wl.DeletionTimestamp.IsZero() && controllerutil.ContainsFinalizer(wl, kueue.ResourceInUseFinalizerName) {
			// jobframework lets it go of jobs with a queue alone.
			return done(client.IgnoreNotFound(kueuelib.RemoveFinalizer(ctx, j.deps.client, wl.DeepCopy())))
		}
		if wl.DeletionTimestamp.IsZero() && !kueuelib.IsFinished(wl) {
			return done(jobclient.DeleteWorkload(ctx, j.deps.client, wl, "deleting Workload %s of a namespace that Kueue does not manage"))
		}
	}
	if err := free(ctx, j); err != nil {
		return ofError(err)
	}
	if queue := jobframework.QueueName(j); queue != "" {
		becomes := "runs outside of all quotas"
		if j.IsSuspended() {
			becomes = "waits for nobody, and runs outside of all quotas when you set spec.suspend to false"
		} else if j.deps.Field.HoldsGate(&j.Spec) {
			becomes = "was resumed with the admission gate of its queue: set spec.suspend to true, and to false when the gate is gone"
		}
		j.warn(jobevents.ReasonNotManaged, jobevents.ActionQueue,
			"names queue %s, but Kueue does not manage namespace %s, by its managedJobsNamespaceSelector: the job %s", queue, j.Namespace, becomes)
	}
	return done(nil)
}

// beganUnmanaged reports whether a job runs since before its namespace was Kueue's: nothing was ever charged for it,
// and nothing of it was ever placed. It queues when somebody suspends it.
func beganUnmanaged(ctx context.Context, j *job) (bool, error) {
	if !j.alive() || j.IsSuspended() || j.ManagedExternally() || !j.manages {
		return false, nil
	}
	if j.deps.Field.Has(&j.Spec) {
		// Our entry says more than that nothing is placed.
		if placements, err := freed(j); err != nil || j.deps.Field.Set(&j.DeepCopy().Spec, placements) {
			return false, err
		}
	}
	js := j.jobSet()
	if js == nil || podset.Placed(js) {
		return false, nil
	}
	labelled, err := j.deps.queues.LabelledAt(ctx, j.key.Namespace)
	return err == nil && begun(js, j.childJobs(), labelled), err
}

// begun reports whether all that a JobSet runs had started at a time: what it has yet to make, or to resume, would ask
// for more than anybody ran then.
func begun(js *jobsetapi.JobSet, jobs []batchv1.Job, at time.Time) bool {
	pods, made := map[string]int32{}, 0
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		pods[rj.Name] = ptr.Deref(rj.Template.Spec.Parallelism, 1)
		made += int(rj.Replicas)
	}
	return len(jobs) == made && !slices.ContainsFunc(jobs, func(child batchv1.Job) bool {
		started := child.Status.StartTime
		return !podset.JobEnded(&child) && (started == nil || started.After(at) ||
			ptr.Deref(child.Spec.Parallelism, 1) > pods[child.Labels[jobsetapi.ReplicatedJobNameKey]])
	})
}

// free takes gate and placement from a job that waits for nobody any more: from its child Jobs, where JobSet leaves
// them, and from our entry, in two writes, see patch.Stamp: our webhook is not asked in such a namespace.
func free(ctx context.Context, j *job) error {
	placements, err := freed(j)
	if err != nil || len(placements) == 0 {
		return err
	}
	if js := j.jobSet(); !j.IsSuspended() {
		if j.deps.Field.Has(&j.Spec) || js == nil || !js.DeletionTimestamp.IsZero() || !ptr.Deref(js.Spec.Suspend, false) {
			return nil
		}
		// Its user resumed it between the two writes. A running TrainJob takes no patch, and removing the last label of an
		// untyped metadata leaves null, which JobSet's CRD refuses.
		return renewJobSet(ctx, j, js, fmt.Sprintf("Trainer could not take admission gate or placement from JobSet %s", js.Name))
	}
	free := j.DeepCopy()
	if !j.deps.Field.Set(&free.Spec, placements) {
		return nil
	}
	if err := patch.Stamp(free.Spec.RuntimePatches, metav1.Now()); err != nil {
		return err
	}
	if err := placeChildJobs(ctx, j, free); podsets.RuntimeMissing(err) {
		// Nor could its user resume it before there is one, which brings the job here again.
		return nil
	} else if err != nil {
		return err
	}
	without := j.DeepCopy().Spec
	j.deps.Field.Drop(&without)
	for _, spec := range []trainjob.Spec{without, free.Spec} {
		if err := j.writeSpec(ctx, spec); err != nil {
			return err
		}
	}
	ctrl.LoggerFrom(ctx).Info("Took the admission gate away")
	return nil
}

// freed returns the placements of a job without gates: of what our entry patches, or, where a former call got no
// further than to take that away, of what its JobSet keeps of it.
func freed(j *job) ([]patch.Placement, error) {
	if j.deps.Field.Has(&j.Spec) {
		return patch.AllFreed(j.deps.Field, &j.Spec)
	}
	return podset.FreedIn(j.jobSet()), nil
}
