// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
// dry run: the in-tree webhook suspends it, our own leaves the manager's requests alone. Who suspends one that the in-tree
// webhook left no mark on, and Kueue's configuration does not list it, is somebody else, and so is who suspends one without
// a queue as well. Without a runtime to ask with, it goes by Kueue's configuration.
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
	// inForce: Kueue runs by the configuration that is known.
	on, inForce := t.kueue.Settings().InTree, t.kueue.Known() && !t.kueue.Ahead()
	switch {
	case errors.Is(err, trainjob.ErrNoRuntime) && inForce:
		// Nobody can ask, and Kueue's configuration has the say: teams may have runtimes of their own.
		return on, nil
	case err != nil:
		return false, err
	case !job.Suspended():
		return t.listed(ctx)
	}
	// Since Trainer 2.2 the in-tree webhook makes an entry of its own (Default in pkg/controller/jobs/trainjob).
	if slices.ContainsFunc(job.Spec.RuntimePatches, func(p trainjob.RuntimePatch) bool { return p.Manager == patch.Manager }) {
		return true, nil
	}
	if inForce && !on {
		// Without an entry, and by its own configuration, it was not Kueue: a policy suspends what has a queue.
		return false, nil
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

const (
	// inTreeEvery is how often the manager looks whether the in-tree integration is active.
	inTreeEvery = 30 * time.Second
	// inTreeRetry is how soon it looks again when it is: what that leaves is taken over soon.
	inTreeRetry = 2 * time.Second
	// inTreeFirst is how soon it looks again after the first look without an answer. The
	// manager's own webhooks have to be reachable for one, which takes a moment at a start.
	inTreeFirst = 200 * time.Millisecond
	// inTreeSilent is how long there may be no answer before people are told.
	inTreeSilent = 30 * time.Second
)

// inTreeView is what the looks for the in-tree integration have found so far. An answer
// holds until there is another one.
type inTreeView struct {
	// answer is one of the words of pkg/metrics. Empty: there was none yet, which is not "off": two integrations would fight.
	answer string
	// silentSince is when the first of the looks was that have had no answer since the
	// last one; failed counts them, and err is the reason of the last.
	silentSince time.Time
	failed      int
	err         error
}

// heard returns the view after a look that was answered.
func (v inTreeView) heard(active bool) inTreeView {
	if active {
		return inTreeView{answer: metrics.InTreeActive}
	}
	return inTreeView{answer: metrics.InTreeOff}
}

// unheard returns the view after a look at this time that was not answered.
func (v inTreeView) unheard(err error, now time.Time) inTreeView {
	if v.failed == 0 {
		v.silentSince = now
	}
	v.failed++
	v.err = err
	return v
}

// silent reports whether there has been no answer for long.
func (v inTreeView) silent(now time.Time) bool {
	return v.failed > 0 && now.Sub(v.silentSince) >= inTreeSilent
}

// wait returns the time until the next look. One without an answer is repeated soon, and
// up to every two seconds before people are told; after that, less and less often.
func (v inTreeView) wait(now time.Time) time.Duration {
	switch {
	case v.failed == 0 && v.answer == metrics.InTreeActive:
		return inTreeRetry
	case v.failed == 0:
		return inTreeEvery
	}
	most := inTreeRetry
	if v.silent(now) {
		most = inTreeEvery
	}
	return min(inTreeFirst<<min(v.failed-1, 10), most)
}

var (
	unreachableWebhook = regexp.MustCompile(`failed calling webhook "([^"]+)"`)
	refusingWebhook    = regexp.MustCompile(`admission webhook "([^"]+)" denied the request`)
)

// inTreeUnknownRemedy says what to do about a look that was not answered, which is a dry run in the manager's own namespace.
func inTreeUnknownRemedy(namespace string, err error) string {
	text := err.Error()
	if found := unreachableWebhook.FindStringSubmatch(text); found != nil {
		return fmt.Sprintf("look at the Service and the pods behind webhook %s", found[1])
	}
	switch {
	case errors.Is(err, trainjob.ErrNoRuntime):
		return fmt.Sprintf("create a ClusterTrainingRuntime, or a TrainingRuntime in namespace %s", namespace)
	case errors.Is(err, errSuspendsAll):
		return fmt.Sprintf("have the policy or webhook that suspends TrainJobs leave namespace %s out", namespace)
	case strings.Contains(text, "exceeded quota"):
		return fmt.Sprintf("take TrainJobs out of the ResourceQuotas of namespace %s", namespace)
	}
	if found := refusingWebhook.FindStringSubmatch(text); found != nil {
		return fmt.Sprintf("let webhook %s accept such a TrainJob in namespace %s, or add a ClusterTrainingRuntime that it accepts", found[1], namespace)
	}
	if apierrors.IsForbidden(err) {
		return fmt.Sprintf("let the manager's ServiceAccount create trainjobs in namespace %s, as config/rbac has it, and let no policy refuse that", namespace)
	}
	return "look at the API server's answer"
}
