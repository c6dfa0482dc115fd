// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// allTrainJobs lets the TrainJob controller look at every TrainJob when something changes
// that concerns all of them.
type allTrainJobs struct {
	client client.Client

	mu sync.Mutex
	// queue is the TrainJob controller's, where this replica leads.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// source is the controller's source of these looks.
func (a *allTrainJobs) source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.queue = queue
		return nil
	})
}

func (a *allTrainJobs) started() workqueue.TypedRateLimitingInterface[reconcile.Request] {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queue
}

// requeue has every TrainJob looked at. Before the controller starts there is nothing to
// do: it looks at all of them then.
func (a *allTrainJobs) requeue(ctx context.Context) error {
	queue := a.started()
	if queue == nil {
		return nil
	}
	var jobs trainjob.List
	if err := a.client.List(ctx, &jobs); err != nil {
		return fmt.Errorf("listing the TrainJobs to look at again: %w", err)
	}
	for i := range jobs.Items {
		queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&jobs.Items[i])})
	}
	return nil
}

// told remembers which TrainJobs were told why the manager does nothing for them.
type told struct {
	mu   sync.Mutex
	uids map[types.UID]bool
}

// first reports whether a TrainJob was not told yet.
func (t *told) first(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.uids[uid] {
		return false
	}
	if t.uids == nil {
		t.uids = map[types.UID]bool{}
	}
	t.uids[uid] = true
	return true
}

// drop forgets one TrainJob.
func (t *told) drop(uid types.UID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.uids, uid)
}

// forget makes the next reason news to every TrainJob.
func (t *told) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.uids = nil
}
