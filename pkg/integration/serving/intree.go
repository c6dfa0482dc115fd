// SPDX-License-Identifier: Apache-2.0

package serving

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// InTreeRemedy is what events, log and readiness say.
const InTreeRemedy = "Kueue's in-tree TrainJob integration is active as well, so kueue-trainer stands aside; " +
	"take trainer.kubeflow.org/trainjob out of integrations.frameworks in Kueue's configuration and restart Kueue, or uninstall kueue-trainer"

var (
	inTreeGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kueue_trainer_in_tree_active",
		Help: "1 while Kueue's in-tree TrainJob integration is active as well and this manager stands aside, else 0.",
	})
	inTreeUnknownGauge = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kueue_trainer_in_tree_unknown",
		Help: "1 while this manager gets no answer whether Kueue's in-tree TrainJob integration is active as well, else 0.",
	})
)

func init() { metrics.Registry.MustRegister(inTreeGauge, inTreeUnknownGauge) }

// InTree finds out whether Kueue's own TrainJob integration is active too. Two
// integrations would rewrite each other's Workloads, so while it is, the manager
// stands aside: it queues, starts and stops nothing, its webhooks let everything pass,
// and only pods of admitted jobs are still freed of its gate.
//
// It asks the API server to make a queued TrainJob in the manager's own namespace, as a
// dry run: the in-tree webhook suspends it, and nobody else does, since our own leaves
// the manager's requests alone. That needs no view of Kueue's configuration, and nothing
// that a user writes can feign it.
//
// Before the first answer the manager writes nothing either, while its webhooks already
// keep TrainJobs from running without quota. The answer needs these webhooks, and so a
// manager that is ready: the readiness of its pod must not wait for the answer.
type InTree struct {
	Told
	client    client.Client
	namespace string
	all       *TrainJobs

	mu   sync.Mutex
	view inTreeView
	// saidSilent is set once people were told that there is no answer. Only looks touch it.
	saidSilent bool
}

// NewInTree returns an InTree without an answer, which asks by c in the manager's namespace.
// Whenever there is another answer, all TrainJobs are looked at again.
func NewInTree(c client.Client, namespace string, all *TrainJobs) *InTree {
	return &InTree{client: c, namespace: namespace, all: all}
}

// Start implements manager.Runnable.
func (t *InTree) Start(ctx context.Context) error {
	for {
		if err := t.look(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(t.viewed().wait(time.Now())):
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves webhooks.
func (t *InTree) NeedLeaderElection() bool { return false }

// lookTimeout bounds one look. A webhook may take as long as the API server lets it.
const lookTimeout = 15 * time.Second

// look asks once.
func (t *InTree) look(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	found, err := t.probe(asking)
	return t.Observe(ctx, time.Now(), found, err)
}

// Observe takes note of a look at this time: whether the integration is active, or why there
// was no answer.
func (t *InTree) Observe(ctx context.Context, at time.Time, active bool, err error) error {
	before := t.viewed()
	if err != nil {
		return t.set(ctx, before, before.unheard(err, at))
	}
	return t.set(ctx, before, before.heard(active))
}

// probe reports whether the in-tree webhook answers.
func (t *InTree) probe(ctx context.Context) (bool, error) {
	job, err := trainjob.DryRun(ctx, t.client, t.namespace)
	return err == nil && job.Suspended(), err
}

// set takes note of another view, and tells people what is new in it. Whenever something
// is, every TrainJob is looked at again.
func (t *InTree) set(ctx context.Context, before, after inTreeView) error {
	t.mu.Lock()
	t.view = after
	t.mu.Unlock()
	now := time.Now()
	inTreeUnknownGauge.Set(oneIf(after.failed > 0))
	silentNow := after.silent(now) && !t.saidSilent
	t.saidSilent = after.silent(now)
	switch log := ctrl.LoggerFrom(ctx); {
	case silentNow:
		log.Error(after.err, "Cannot tell whether Kueue's in-tree TrainJob integration is active as well; asking on",
			"since", after.silentSince, "answerBefore", after.answer.String(), "remedy", inTreeUnknownRemedy(t.namespace, after.err))
	case after.answer == before.answer:
		return nil
	case after.answer == answerActive:
		log.Error(errors.New("two integrations for TrainJobs"), InTreeRemedy)
	case before.answer == answerActive:
		log.Info("Kueue's in-tree TrainJob integration is gone; TrainJobs are in this manager's hands again")
	default:
		log.Info("Kueue's in-tree TrainJob integration is not active; TrainJobs are in this manager's hands")
	}
	inTreeGauge.Set(oneIf(after.answer == answerActive))
	t.forget()
	return t.all.Requeue(ctx)
}

func oneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}

// viewed returns what is known now.
func (t *InTree) viewed() inTreeView {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.view
}

// Active reports whether the manager has to stand aside.
func (t *InTree) Active() bool { return t.viewed().answer == answerActive }

// Unknown reports whether there was no answer yet.
func (t *InTree) Unknown() bool { return t.viewed().answer == answerUnknown }

// Check is the readiness check: not ready while the manager stands aside.
func (t *InTree) Check(*http.Request) error {
	if t.Active() {
		return errors.New(InTreeRemedy)
	}
	return nil
}

// CheckKnown is the readiness check that fails when there has been no answer for long.
func (t *InTree) CheckKnown(*http.Request) error {
	if message := t.Silence(); message != "" {
		return errors.New(message)
	}
	return nil
}

// Silence says why there has been no answer for long, and what to do; empty: there was one.
func (t *InTree) Silence() string {
	view := t.viewed()
	if !view.silent(time.Now()) {
		return ""
	}
	return inTreeUnknownMessage(t.namespace, view.err)
}
