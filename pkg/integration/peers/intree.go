// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// InTreeRemedy is what events, log and readiness say to do.
const InTreeRemedy = "Kueue's in-tree TrainJob integration is active as well, so kueue-trainer stands aside; " +

	"take trainer.kubeflow.org/trainjob out of integrations.frameworks in Kueue's configuration and restart Kueue, or uninstall kueue-trainer"

// InTree finds out whether Kueue's own TrainJob integration is active too. Two
// integrations would rewrite each other's Workloads, so while it is, the manager
// stands aside: it queues, starts and stops nothing, its webhooks let everything pass,
// and only pods of admitted jobs are still freed of its gate.
//
// It asks the API server to make a queued TrainJob in the manager's own namespace, as a
// dry run: the in-tree webhook suspends it, our own leaves the manager's requests alone, and who
// suspends one without a queue as well is somebody else, who says nothing of Kueue. Without a runtime to ask with, it goes
// by Kueue's configuration.
//
// Before the first answer the manager writes nothing either, while its webhooks already
// keep TrainJobs from running without quota. The answer needs these webhooks, and so a
// manager that is ready: the readiness of its pod must not wait for the answer.
type InTree struct {
	client    client.Client
	namespace string
	all       *TrainJobs
	kueue     *kueueconfig.Follower

	view atomic.Pointer[inTreeView]
	// saidSilent is set once people were told that there is no answer. Only looks touch it.
	saidSilent bool
}

// NewInTree returns an InTree without an answer, which asks by c in the manager's namespace, of a Kueue with these
// settings. Whenever there is another answer, all TrainJobs are looked at again.
func NewInTree(c client.Client, namespace string, kueue *kueueconfig.Follower, all *TrainJobs) *InTree {
	t := &InTree{client: c, namespace: namespace, kueue: kueue, all: all}
	t.view.Store(&inTreeView{})
	return t
}

// Start implements manager.Runnable.
func (t *InTree) Start(ctx context.Context) error {
	for {
		asking, cancel := context.WithTimeout(ctx, lookTimeout)
		active, unanswered := t.probe(asking)
		cancel()
		if err := t.Observe(ctx, time.Now(), active, unanswered); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(t.view.Load().wait(time.Now())):
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves webhooks.
func (t *InTree) NeedLeaderElection() bool { return false }

// lookTimeout bounds one look. A webhook may take as long as the API server lets it.
const lookTimeout = 15 * time.Second

// probe reports whether the in-tree webhook answers.
func (t *InTree) probe(ctx context.Context) (bool, error) {
	job, err := trainjob.DryRun(ctx, t.client, t.namespace, trainjob.ProbeQueue)
	switch {
	case errors.Is(err, trainjob.ErrNoRuntime) && t.kueue.Known() && !t.kueue.Ahead():
		// Nobody can ask, and Kueue's configuration has the say: teams may have runtimes of their own.
		return t.kueue.Settings().InTree, nil
	case err != nil:
		return false, err
	case !job.Suspended():
		return t.listed(ctx)
	}
	// Since Trainer 2.2 the in-tree webhook makes an entry of its own (Default in pkg/controller/jobs/trainjob).
	if slices.ContainsFunc(job.Spec.RuntimePatches, func(p trainjob.RuntimePatch) bool { return p.Manager == patch.Manager }) {
		return true, nil
	}
	// A policy may suspend whatever is made here: only Kueue asks for a queue, and gives one to what has none.
	unqueued, err := trainjob.DryRun(ctx, t.client, t.namespace, "")
	if err != nil {
		return false, err
	}
	if unqueued.Suspended() && t.kueue.Known() && !t.kueue.Settings().ManageJobsWithoutQueueName && unqueued.Labels[kueueconstants.QueueLabel] == "" {
		return false, errSuspendsAll
	}
	return true, nil
}

// listed reports whether Kueue's configuration lists the in-tree integration, and its webhook may not have been asked:
// Kueue's chart has it see the namespaces alone that Kueue manages, of which the manager's may be none.
func (t *InTree) listed(ctx context.Context) (bool, error) {
	settings := t.kueue.Settings()
	if !t.kueue.Known() || !settings.InTree {
		return false, nil
	}
	var namespace corev1.Namespace
	if err := t.client.Get(ctx, client.ObjectKey{Name: t.namespace}, &namespace); err != nil {
		return false, fmt.Errorf("reading whether Kueue manages namespace %s: %w", t.namespace, err)
	}
	return !settings.NamespaceSelector().Matches(labels.Set(namespace.Labels)), nil
}

// errSuspendsAll is why an answer says nothing of Kueue.
var errSuspendsAll = errors.New("it is suspended, also in no queue, which Kueue leaves alone")

// Observe takes note of a look at this time: whether the integration is active, or why there was no answer. It tells people
// what is new. Whenever something is, every TrainJob is looked at again.
func (t *InTree) Observe(ctx context.Context, at time.Time, active bool, unanswered error) error {
	before := t.view.Load()
	after := before.heard(active)
	if unanswered != nil {
		after = before.unheard(unanswered, at)
	}
	t.view.Store(&after)
	now := time.Now()
	silentNow := after.silent(now) && !t.saidSilent
	t.saidSilent = after.silent(now)
	switch log := ctrl.LoggerFrom(ctx); {
	case silentNow:
		log.Error(after.err, "Could not tell whether Kueue's in-tree integration is active", "reason", jobevents.ReasonInTreeUnknown,
			"since", after.silentSince, "answerBefore", cmp.Or(after.answer, metrics.InTreeUnknown), "remedy", inTreeUnknownRemedy(t.namespace, after.err))
	case after.answer == before.answer:
		return nil
	case after.answer == metrics.InTreeActive:
		log.Error(errors.New("two integrations for TrainJobs"), "Stood aside for Kueue's in-tree integration",
			"reason", jobevents.ReasonNotAlone, "remedy", InTreeRemedy)
	case before.answer == metrics.InTreeActive:
		log.Info("Took TrainJobs over again, since Kueue's in-tree integration is gone")
	default:
		log.Info("Took TrainJobs over, since Kueue's in-tree integration is off")
	}
	return t.all.Requeue(ctx)
}

// Active reports whether the manager has to stand aside.
func (t *InTree) Active() bool { return t.view.Load().answer == metrics.InTreeActive }

// Unknown reports whether there was no answer yet.
func (t *InTree) Unknown() bool { return t.view.Load().answer == "" }

// State returns what is known now, in the words of pkg/metrics. That nobody has answered for long is
// told unless the last answer was that the integration is active.
func (t *InTree) State() string {
	view := t.view.Load()
	if view.answer == metrics.InTreeOff && view.silent(time.Now()) {
		return metrics.InTreeUnknown
	}
	return cmp.Or(view.answer, metrics.InTreeUnknown)
}

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
	view := t.view.Load()
	if !view.silent(time.Now()) {
		return ""
	}
	return fmt.Sprintf("it is unknown whether Kueue's in-tree TrainJob integration is active as well, so kueue-trainer does nothing yet; "+
		"it asks by creating a TrainJob in namespace %s as a dry run, which failed: %v; %s", t.namespace, view.err, inTreeUnknownRemedy(t.namespace, view.err))
}
