// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
)

// decidedPriority is above that of everything else, which is 0 or less.
const decidedPriority = 10

// decidedFirst has the controller look first at the TrainJobs about which Kueue has just
// decided. When many start at once, each of them brings ten more events of what Trainer
// and JobSet make of it, and those may wait.
func decidedFirst(h handler.EventHandler) handler.EventHandler {
	return handler.Funcs{
		CreateFunc: h.Create,
		DeleteFunc: h.Delete,
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if queue, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok && decided(e) {
				q = firstQueue{queue}
			}
			h.Update(ctx, e, q)
		},
	}
}

// decided reports whether the job of a Workload may run since this event, or may not any more.
func decided(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*kueue.Workload)
	after, okAfter := e.ObjectNew.(*kueue.Workload)
	return ok && okAfter && state.MayRun(before) != state.MayRun(after)
}

// firstQueue adds with the priority of decisions. A handler adds to a priority queue by
// AddWithOpts alone.
type firstQueue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
}

// AddWithOpts implements priorityqueue.PriorityQueue.
func (q firstQueue) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	o.Priority = ptr.To(decidedPriority)
	q.PriorityQueue.AddWithOpts(o, requests...)
}
