// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const (
	// inTreeEvery is how often the manager looks whether the in-tree integration is
	// active, and inTreeRetry how soon again when it could not tell.
	inTreeEvery = 30 * time.Second
	inTreeRetry = 2 * time.Second

	// inTreeRemedy is what events, log and readiness say.
	inTreeRemedy = "Kueue's in-tree TrainJob integration is active as well, so kueue-trainer stands aside; " +
		"take trainer.kubeflow.org/trainjob out of integrations.frameworks in Kueue's configuration and restart Kueue, or uninstall kueue-trainer"
)

var inTreeGauge = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "kueue_trainer_in_tree_active",
	Help: "1 while Kueue's in-tree TrainJob integration is active as well and this manager stands aside, else 0.",
})

func init() { metrics.Registry.MustRegister(inTreeGauge) }

// inTree finds out whether Kueue's own TrainJob integration is active too. Two
// integrations would rewrite each other's Workloads, so while it is, the manager
// stands aside: it queues, starts and stops nothing, its webhooks let everything pass,
// and only pods of admitted jobs are still freed of its gate.
//
// It asks the API server to make a TrainJob in the manager's own namespace, as a dry
// run: the in-tree webhook, and nobody else, then adds an entry of Kueue's to it. That
// needs no view of Kueue's configuration, and nothing that a user writes can feign it.
type inTree struct {
	client    client.Client
	namespace string

	found atomic.Bool

	mu sync.Mutex
	// queue is the TrainJob controller's, where this replica leads.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
	told  map[types.UID]bool
}

// source lets the TrainJob controller look at every TrainJob when the answer changes.
func (t *inTree) source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.queue = queue
		return nil
	})
}

// Start implements manager.Runnable.
func (t *inTree) Start(ctx context.Context) error {
	for {
		wait := inTreeEvery
		if found, err := t.probe(ctx); err != nil {
			ctrl.LoggerFrom(ctx).V(2).Info("Cannot tell whether Kueue's in-tree TrainJob integration is active", "reason", err.Error())
			wait = inTreeRetry
		} else if err := t.set(ctx, found); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves webhooks.
func (t *inTree) NeedLeaderElection() bool { return false }

// probe reports whether the in-tree webhook answers. Trainer refuses some runtimes for
// a TrainJob as plain as this one, so the first that it takes decides.
func (t *inTree) probe(ctx context.Context) (bool, error) {
	var runtimes trainer.ClusterTrainingRuntimeList
	if err := t.client.List(ctx, &runtimes); err != nil {
		return false, err
	}
	refusals := errors.New("no ClusterTrainingRuntime that a plain TrainJob can use")
	for i := range runtimes.Items {
		job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{
			Namespace: t.namespace, Name: "in-tree-probe",
			Labels: map[string]string{kueueconstants.QueueLabel: "in-tree-probe"},
		}}
		job.Spec.RuntimeRef.Name = runtimes.Items[i].Name
		err := t.client.Create(ctx, job, client.DryRunAll)
		if err == nil {
			return patch.Find(job.Spec.RuntimePatches) != nil, nil
		}
		refusals = err
	}
	return false, refusals
}

// set takes note of an answer. When it is another one, every TrainJob is looked at again.
func (t *inTree) set(ctx context.Context, found bool) error {
	if t.found.Swap(found) == found {
		return nil
	}
	log := ctrl.LoggerFrom(ctx)
	if found {
		log.Error(errors.New("two integrations for TrainJobs"), inTreeRemedy)
		inTreeGauge.Set(1)
	} else {
		log.Info("Kueue's in-tree TrainJob integration is gone; TrainJobs are in this manager's hands again")
		inTreeGauge.Set(0)
		t.forget()
	}
	return t.requeueAll(ctx)
}

func (t *inTree) requeueAll(ctx context.Context) error {
	var jobs trainjob.List
	if err := t.client.List(ctx, &jobs); err != nil {
		return fmt.Errorf("listing the TrainJobs that change hands: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range jobs.Items {
		if t.queue != nil {
			t.queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&jobs.Items[i])})
		}
	}
	return nil
}

// active reports whether the manager has to stand aside.
func (t *inTree) active() bool { return t != nil && t.found.Load() }

// check is the readiness check: not ready while the manager stands aside.
func (t *inTree) check(*http.Request) error {
	if t.active() {
		return errors.New(inTreeRemedy)
	}
	return nil
}

// first reports whether a TrainJob was not told of the conflict yet.
func (t *inTree) first(uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.told[uid] {
		return false
	}
	if t.told == nil {
		t.told = map[types.UID]bool{}
	}
	t.told[uid] = true
	return true
}

// forget makes the next conflict news to every TrainJob.
func (t *inTree) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told = nil
}

// standAside tells a queued TrainJob, once, who else looks after it.
func (r *reconciler) standAside(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	job := &trainjob.TrainJob{}
	if err := r.env.client.Get(ctx, req.NamespacedName, job); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	managed, err := r.env.managed(ctx, job)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("looking at TrainJob %s: %w", req, err)
	}
	if managed && !job.Finished() && r.env.inTree.first(job.UID) {
		r.env.recorder.Eventf(job, nil, corev1.EventTypeWarning, reasonNotAlone, actionDescribe, inTreeRemedy)
	}
	return ctrl.Result{}, nil
}
