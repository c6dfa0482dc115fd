// SPDX-License-Identifier: Apache-2.0

// Package watches says which TrainJobs an event concerns, and how soon each is looked at.
package watches

import (
	"cmp"
	"context"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// decidedPriority is above that of everything else, which is 0 or less.
const decidedPriority = 10

// RetryFailed has what failed looked at again within a minute: a webhook or an API server that comes back after a while
// brings no event, and quota waits for it.
func RetryFailed() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, time.Minute)
}

// queue is what handlers add to.
type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// DecidedFirst has the controller look first at the TrainJobs about which Kueue has just
// decided, at once at what admission checks say, and later at what else becomes of
// Workloads, our own among it. When many start at once, each of them brings ten more events of what Trainer and
// JobSet make of it, and those may wait.
func DecidedFirst(h handler.EventHandler) handler.EventHandler {
	batched := Batched(h)
	return handler.Funcs{
		CreateFunc: batched.Create,
		DeleteFunc: h.Delete,
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld.(*kueue.Workload), e.ObjectNew.(*kueue.Workload)
			switch {
			case decided(before, after):
				h.Update(ctx, e, with(q, priorityqueue.AddOpts{Priority: ptr.To(decidedPriority)}))
			case !equality.Semantic.DeepEqual(before.Status.AdmissionChecks, after.Status.AdmissionChecks):
				// Kueue takes back what a check says as soon as it has acted by it, and people are to hear it before.
				h.Update(ctx, e, q)
			default:
				batched.Update(ctx, e, q)
			}
		},
	}
}

// decided reports whether the job of a Workload may run since this event, or may not any more, as when it is to be deactivated,
// or whether a copy that MultiKueue made is deleted: MultiKueue takes an evicted one that stays in one worker cluster for an
// eviction in the next.
func decided(before, after *kueue.Workload) bool {
	return state.MayRun(before) != state.MayRun(after) || !deactivation.Marked(before) && deactivation.Marked(after) ||
		before.DeletionTimestamp.IsZero() && !after.DeletionTimestamp.IsZero() && placeholder.OfCopy(after)
}

// Batched has the controller look once at what is made and changed within a batchPeriod, and in its own time at what
// does not matter.
func Batched(h handler.EventHandler) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			h.Create(ctx, e, with(q, priorityqueue.AddOpts{After: batchPeriod}))
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			period := idlePeriod
			if matters(e.ObjectOld, e.ObjectNew) {
				period = batchPeriod
			}
			h.Update(ctx, e, with(q, priorityqueue.AddOpts{After: period}))
		},
		DeleteFunc: h.Delete,
	}
}

// OfTrainJobs has the controller look at once at what people and webhooks write of TrainJobs, and in batches at their
// status and at our own writes, by wrote: the look that made one has seen to what follows from it.
func OfTrainJobs(wrote func(*trainjob.TrainJob) bool) handler.EventHandler {
	h := &handler.EnqueueRequestForObject{}
	return handler.Funcs{
		CreateFunc: h.Create,
		DeleteFunc: h.Delete,
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			written := e.ObjectNew.(*trainjob.TrainJob)
			own := e.ObjectOld.GetGeneration() != written.Generation && wrote(written)
			people := byPeople.Update(e) || !e.ObjectOld.GetDeletionTimestamp().Equal(written.DeletionTimestamp)
			if own || !people {
				Batched(h).Update(ctx, e, q)
			} else {
				h.Update(ctx, e, q)
			}
		},
	}
}

// byPeople passes updates of what people and webhooks write.
var byPeople = predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})

// queueWith adds with a time to wait, or with another priority. Handlers that map add by Add, others by AddWithOpts.
type queueWith struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	opts priorityqueue.AddOpts
}

// with returns a queue that adds with these options.
func with(q queue, opts priorityqueue.AddOpts) queue {
	if prioritized, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		return queueWith{prioritized, opts}
	}
	return q
}

func (q queueWith) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	o.After, o.Priority = q.opts.After, cmp.Or(q.opts.Priority, o.Priority)
	q.PriorityQueue.AddWithOpts(o, requests...)
}

func (q queueWith) Add(request reconcile.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, request) }

const (
	// batchPeriod is how long a TrainJob waits for more of what Trainer, JobSet and the Job
	// controller report of it: they write a dozen times of one start, and one look at the end of a
	// row of such writes sees what a look at each would.
	batchPeriod = 100 * time.Millisecond

	// idlePeriod is how long it waits after a change by which nothing is decided at once. The next change that
	// matters brings it earlier.
	idlePeriod = 5 * time.Second
)

// matters reports whether a TrainJob is decided about by what changed of it, or of what belongs to it.
func matters(before, after client.Object) bool {
	if before.GetGeneration() != after.GetGeneration() || !equality.Semantic.DeepEqual(metaOf(before), metaOf(after)) {
		return true
	}
	switch before := before.(type) {
	case *trainjob.TrainJob:
		// How it ended, what Trainer took note of, and which child Jobs are ready or done.
		a, b := before.Status, after.(*trainjob.TrainJob).Status
		return !sameConditions(a.Conditions, b.Conditions) || !slices.EqualFunc(a.JobsStatus, b.JobsStatus, func(a, b trainer.JobStatus) bool {
			return a.Name == b.Name && ptr.Equal(a.Ready, b.Ready) && ptr.Equal(a.Succeeded, b.Succeeded) && ptr.Equal(a.Failed, b.Failed)
		})
	case *kueue.Workload:
		return workloadMatters(before.Status, after.(*kueue.Workload).Status)
	case *jobsetapi.JobSet:
		// Whether it runs, and whether it is over.
		after := after.(*jobsetapi.JobSet)
		suspended := func(js *jobsetapi.JobSet) bool {
			return apimeta.IsStatusConditionTrue(js.Status.Conditions, string(jobsetapi.JobSetSuspended))
		}
		return before.Status.TerminalState != after.Status.TerminalState || state.SaysActive(before) != state.SaysActive(after) ||
			suspended(before) != suspended(after)
	case *batchv1.Job:
		// Whether it has its pods, and whether it is over.
		after := after.(*batchv1.Job)
		return state.HasPods(*before) != state.HasPods(*after) || state.SeenResumed(*before) != state.SeenResumed(*after) ||
			state.LacksPods(before) != state.LacksPods(after) || podset.JobEnded(before) != podset.JobEnded(after) ||
			before.Status.Succeeded != after.Status.Succeeded
	}
	return true
}

// metaOf returns what people and controllers write into the metadata of an object.
func metaOf(obj client.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Labels: obj.GetLabels(), Annotations: obj.GetAnnotations(), Finalizers: obj.GetFinalizers(),
		OwnerReferences: obj.GetOwnerReferences(), DeletionTimestamp: obj.GetDeletionTimestamp()}
}

// workloadMatters is matters for the status of a Workload: all but what Kueue says, in other words, of one that waits on, and
// that its pods get ready, which we say ourselves.
func workloadMatters(a, b kueue.WorkloadStatus) bool {
	if apimeta.IsStatusConditionTrue(b.Conditions, kueue.WorkloadPodsReady) {
		a.Conditions, b.Conditions = withoutPodsReady(a.Conditions), withoutPodsReady(b.Conditions)
	}
	same := sameConditions(a.Conditions, b.Conditions)
	a.Conditions, b.Conditions = nil, nil
	return !same || !equality.Semantic.DeepEqual(a, b)
}

func withoutPodsReady(conditions []metav1.Condition) []metav1.Condition {
	return slices.DeleteFunc(slices.Clone(conditions), func(c metav1.Condition) bool { return c.Type == kueue.WorkloadPodsReady })
}

// sameConditions reports whether conditions say the same, in whatever words.
func sameConditions(a, b []metav1.Condition) bool {
	return slices.EqualFunc(a, b, func(a, b metav1.Condition) bool {
		return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
	})
}

// Mapper maps what is watched to the TrainJobs that it concerns.
type Mapper struct{ Cached client.Reader }

// TrainJobsOf maps a runtime to the TrainJobs that name it and wait: one that is missing may
// be why they do, and where Trainer freezes none an edit changes what they ask for. What
// runs is what was admitted.
func (m Mapper) TrainJobsOf(ctx context.Context, runtime client.Object) []reconcile.Request {
	return m.those(ctx, runtime, runtime.GetNamespace(), func(job *trainjob.TrainJob) bool { return names(job, runtime) && job.Suspended() })
}

// UnqueuedOf maps a LocalQueue to the TrainJobs of its namespace that have no queue.
func (m Mapper) UnqueuedOf(ctx context.Context, queue client.Object) []reconcile.Request {
	return m.those(ctx, queue, queue.GetNamespace(), func(job *trainjob.TrainJob) bool { return jobframework.QueueNameForObject(job) == "" })
}

// NamersOf maps a priority class to the TrainJobs that name it. One of pods stands in runtimes and patches: any TrainJob that
// waits may name it.
func (m Mapper) NamersOf(ctx context.Context, class client.Object) []reconcile.Request {
	_, ofWorkloads := class.(*kueue.WorkloadPriorityClass)
	return m.those(ctx, class, "", func(job *trainjob.TrainJob) bool {
		return ofWorkloads && jobframework.WorkloadPriorityClassName(job) == class.GetName() || !ofWorkloads && job.Suspended()
	})
}

// those returns the TrainJobs of a namespace, or of all, that are not over and that cause concerns.
func (m Mapper) those(ctx context.Context, cause client.Object, namespace string, concerned func(*trainjob.TrainJob) bool) []reconcile.Request {
	var jobs trainjob.List
	if err := m.Cached.List(ctx, &jobs, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "Could not list the TrainJobs of a runtime, priority class, LocalQueue or namespace", "cause", klog.KObj(cause))
		return nil
	}
	var requests []reconcile.Request
	for i := range jobs.Items {
		if job := &jobs.Items[i]; concerned(job) && !job.Finished() {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(job)})
		}
	}
	return requests
}

// TrainJobsIn maps a namespace, which Kueue may manage since this event, or not any more, to its TrainJobs.
func (m Mapper) TrainJobsIn(ctx context.Context, namespace client.Object) []reconcile.Request {
	return m.those(ctx, namespace, namespace.GetName(), func(*trainjob.TrainJob) bool { return true })
}

// Made passes what is made, of all or of some.
func Made(some func(client.Object) bool) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return some == nil || some(e.Object) },
		UpdateFunc: func(event.UpdateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// names reports whether a runtime is the one that job names.
func names(job *trainjob.TrainJob, runtime client.Object) bool {
	ref := job.Spec.RuntimeRef
	kind := trainer.TrainingRuntimeKind
	if runtime.GetNamespace() == "" {
		kind = trainer.ClusterTrainingRuntimeKind
	}
	return ref.Name == runtime.GetName() && ptr.Deref(ref.Kind, trainer.ClusterTrainingRuntimeKind) == kind
}

// TrainJobOfChild maps a child Job to the TrainJob of its JobSet. Most JobSets of a
// cluster may be nobody's, or somebody else's.
func (m Mapper) TrainJobOfChild(ctx context.Context, obj client.Object) []reconcile.Request {
	key := client.ObjectKey{Namespace: obj.GetNamespace(), Name: obj.GetLabels()[jobsetapi.JobSetNameKey]}
	var js jobsetapi.JobSet
	if key.Name == "" || m.Cached.Get(ctx, key, &js) != nil {
		return nil
	}
	owner := state.ControllerOfKind(&js, trainjob.GVK)
	if owner == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: key.Namespace, Name: owner.Name}}}
}

// ForgetDeleted forgets TrainJobs as they go. Their name alone, which is all that a
// reconcile has then, does not tell the UID. It filters nothing.
func ForgetDeleted(forget func(types.UID)) predicate.Predicate {
	return predicate.Funcs{DeleteFunc: func(deleted event.DeleteEvent) bool {
		forget(deleted.Object.GetUID())
		return true
	}}
}
