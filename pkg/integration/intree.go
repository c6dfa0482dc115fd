// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const (
	// inTreeEvery is how often the manager looks whether the in-tree integration is
	// active, and inTreeRetry how soon again when it is, or when there was no answer.
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
// It asks the API server to make a queued TrainJob in the manager's own namespace, as a
// dry run: the in-tree webhook suspends it, and nobody else does, since our own leaves
// the manager's requests alone. That needs no view of Kueue's configuration, and nothing
// that a user writes can feign it.
type inTree struct {
	told
	client    client.Client
	namespace string
	all       *allTrainJobs

	found atomic.Bool
	// unknown is set while the last look had no answer.
	unknown atomic.Bool
}

// Start implements manager.Runnable.
func (t *inTree) Start(ctx context.Context) error {
	for {
		wait := inTreeEvery
		if known, err := t.look(ctx); err != nil {
			return err
		} else if !known || t.active() {
			// What the in-tree integration leaves is taken over soon.
			wait = inTreeRetry
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// look asks once, and reports whether there was an answer.
func (t *inTree) look(ctx context.Context) (known bool, err error) {
	found, err := t.probe(ctx)
	if err != nil {
		if !t.unknown.Swap(true) {
			ctrl.LoggerFrom(ctx).Info("Cannot tell whether Kueue's in-tree TrainJob integration is active as well; asking on", "reason", err.Error())
		}
		return false, nil
	}
	t.unknown.Store(false)
	return true, t.set(ctx, found)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves webhooks.
func (t *inTree) NeedLeaderElection() bool { return false }

// probe reports whether the in-tree webhook answers.
func (t *inTree) probe(ctx context.Context) (bool, error) {
	job, err := trainjob.DryRun(ctx, t.client, t.namespace)
	return err == nil && job.Suspended(), err
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
	return t.all.requeue(ctx)
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

// standAside tells a queued TrainJob, once, why the manager does nothing for it.
func (r *reconciler) standAside(ctx context.Context, req ctrl.Request, told *told, reason, message string) (ctrl.Result, error) {
	job := &trainjob.TrainJob{}
	if err := r.env.client.Get(ctx, req.NamespacedName, job); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	managed, err := r.env.managed(ctx, job)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("looking at TrainJob %s: %w", req, err)
	}
	if managed && !job.Finished() && told.first(job.UID) {
		r.env.recorder.settle(job.UID, reason)
		r.env.recorder.Eventf(job, nil, corev1.EventTypeWarning, reason, actionDescribe, "%s", message)
	}
	return ctrl.Result{}, nil
}
