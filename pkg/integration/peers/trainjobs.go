// SPDX-License-Identifier: Apache-2.0

// Package peers says whether the manager may act on TrainJobs, and for which Trainer: it
// stands aside for Kueue's in-tree integration (intree.go; answer.go has what the looks for it
// found), goes by the version of the TrainJob CRD (trainer.go), and starts nothing while
// another Trainer is being rolled out (rollout.go). Whenever that changes, every TrainJob is
// looked at again (trainjobs.go).
package peers

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// TrainJobs lets the TrainJob controller look at every TrainJob when something changes
// that concerns all of them.
type TrainJobs struct {
	client client.Client

	mu sync.Mutex
	// queue is the TrainJob controller's, where this replica leads.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// NewTrainJobs returns the TrainJobs that c lists.
func NewTrainJobs(c client.Client) *TrainJobs { return &TrainJobs{client: c} }

// Source is the controller's source of these looks.
func (a *TrainJobs) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.queue = queue
		return nil
	})
}

func (a *TrainJobs) started() workqueue.TypedRateLimitingInterface[reconcile.Request] {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.queue
}

// Requeue has every TrainJob looked at. Before the controller starts there is nothing to
// do: it looks at all of them then.
func (a *TrainJobs) Requeue(ctx context.Context) error {
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
