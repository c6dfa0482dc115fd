// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
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
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { h.Create(ctx, e, with(q, in(batchPeriod))) },
		DeleteFunc: h.Delete,
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			switch {
			case decided(e):
				q = with(q, func(o *priorityqueue.AddOpts) { o.Priority = ptr.To(decidedPriority) })
			case !checked(e):
				q = with(q, in(after(e)))
			}
			h.Update(ctx, e, q)
		},
	}
}

// decided reports whether the job of a Workload may run since this event, or may not any more, or whether a copy that
// MultiKueue made is deleted: MultiKueue takes an evicted one that stays in one worker cluster for an eviction in the next.
func decided(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*kueue.Workload)
	after, okAfter := e.ObjectNew.(*kueue.Workload)
	return ok && okAfter && (state.MayRun(before) != state.MayRun(after) ||
		before.DeletionTimestamp.IsZero() && !after.DeletionTimestamp.IsZero() && placeholder.OfCopy(after))
}

// checked reports whether an admission check says something else since this event. Kueue takes
// back what it says as soon as it has acted by it, and people are to hear it before.
func checked(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*kueue.Workload)
	after, okAfter := e.ObjectNew.(*kueue.Workload)
	return ok && okAfter && !equality.Semantic.DeepEqual(before.Status.AdmissionChecks, after.Status.AdmissionChecks)
}

// Batched has the controller look once at what is made and changed within a batchPeriod, and in its own time at what
// does not matter.
func Batched(h handler.EventHandler) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) { h.Create(ctx, e, with(q, in(batchPeriod))) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) { h.Update(ctx, e, with(q, in(after(e)))) },
		DeleteFunc: h.Delete,
	}
}

func in(period time.Duration) func(*priorityqueue.AddOpts) {
	return func(o *priorityqueue.AddOpts) { o.After = period }
}

// OfTrainJobs has the controller look at once at what people and webhooks write of TrainJobs, and in batches at their
// status and at our own writes, by wrote: the look that made one has seen to what follows from it.
func OfTrainJobs(wrote func(*trainjob.TrainJob) bool) handler.EventHandler {
	h := &handler.EnqueueRequestForObject{}
	return handler.Funcs{
		CreateFunc: h.Create,
		DeleteFunc: h.Delete,
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			written, is := e.ObjectNew.(*trainjob.TrainJob)
			own := is && e.ObjectOld.GetGeneration() != written.Generation && wrote(written)
			if own || statusOnly(e) {
				q = with(q, in(after(e)))
			}
			h.Update(ctx, e, q)
		},
	}
}

// statusOnly reports whether an update leaves alone what people and webhooks write.
func statusOnly(e event.UpdateEvent) bool {
	return !predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{}).Update(e) &&
		e.ObjectOld.GetDeletionTimestamp().Equal(e.ObjectNew.GetDeletionTimestamp())
}

// queueWith adds with other options. Handlers that map add by Add, others by AddWithOpts.
type queueWith struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	change func(*priorityqueue.AddOpts)
}

// with returns a queue to which change is made of every option to add.
func with(q queue, change func(*priorityqueue.AddOpts)) queue {
	if prioritized, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		return queueWith{prioritized, change}
	}
	return q
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q queueWith) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	q.change(&o)
	q.PriorityQueue.AddWithOpts(o, requests...)
}

// Add implements priorityqueue.PriorityQueue.
func (q queueWith) Add(request reconcile.Request) { q.AddWithOpts(priorityqueue.AddOpts{}, request) }
