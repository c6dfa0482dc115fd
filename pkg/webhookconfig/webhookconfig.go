// SPDX-License-Identifier: Apache-2.0

// Package webhookconfig changes the webhook configurations of the manager while it runs.
package webhookconfig

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/logging"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Names are those of the two configurations.
type Names struct {
	Mutating, Validating string
}

// Installed are the configurations as config/webhook names them.
var Installed = Names{
	Mutating:   "kueue-trainer-mutating-webhook-configuration",
	Validating: "kueue-trainer-validating-webhook-configuration",
}

// Webhook is what is changed in one webhook of a configuration.
type Webhook struct {
	// Validating tells the webhooks of the two configurations apart.
	Validating      bool
	Rules           []admissionregistrationv1.RuleWithOperations
	ClientConfig    *admissionregistrationv1.WebhookClientConfig
	MatchConditions *[]admissionregistrationv1.MatchCondition
}

// Change has change look at each webhook of both configurations, and writes those that are
// others afterwards. A conflict is an error: the next look goes by the newer version.
func (n Names) Change(ctx context.Context, c client.Client, change func(Webhook)) error {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	err := changeOne(ctx, c, n.Mutating, mutating, func() {
		for i := range mutating.Webhooks {
			w := &mutating.Webhooks[i]
			change(Webhook{Rules: w.Rules, ClientConfig: &w.ClientConfig, MatchConditions: &w.MatchConditions})
		}
	})
	if err != nil {
		return err
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	return changeOne(ctx, c, n.Validating, validating, func() {
		for i := range validating.Webhooks {
			w := &validating.Webhooks[i]
			change(Webhook{Validating: true, Rules: w.Rules, ClientConfig: &w.ClientConfig, MatchConditions: &w.MatchConditions})
		}
	})
}

// changeOne reads a configuration into configuration, which change changes.
func changeOne(ctx context.Context, c client.Client, name string, configuration client.Object, change func()) error {
	if err := c.Get(ctx, client.ObjectKey{Name: name}, configuration); err != nil {
		return fmt.Errorf("reading the webhook configuration %s: %w", name, err)
	}
	before := configuration.DeepCopyObject()
	change()
	if equality.Semantic.DeepEqual(before, configuration) {
		return nil
	}
	if err := c.Update(ctx, configuration); err != nil {
		return fmt.Errorf("changing the webhook configuration %s: %w", name, err)
	}
	return nil
}

// The conditions of scopes; those of others in a configuration stay as they are.
const (
	// Queued is met by TrainJobs that have, or had, a queue or our patch entry.
	Queued = "queued"
	// NotOwn is met by requests of anybody but the manager.
	NotOwn = "not-own"
)

// Includes reports whether the mutating webhook is for all TrainJobs of a namespace that were made at a time, whatever
// the conditions of scopes said then. Where there are others, it is not known to be.
func Includes(c *admissionregistrationv1.MutatingWebhookConfiguration, namespace *corev1.Namespace, made metav1.Time) (bool, error) {
	if made.Before(&c.CreationTimestamp) || len(c.Webhooks) == 0 {
		return false, nil
	}
	// The first one is of config/webhook.
	own := []string{"not-deleting", Queued, NotOwn}
	for _, condition := range c.Webhooks[0].MatchConditions {
		if !slices.Contains(own, condition.Name) {
			return false, nil
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(cmp.Or(c.Webhooks[0].NamespaceSelector, &metav1.LabelSelector{}))
	if err != nil {
		return false, fmt.Errorf("reading the namespaceSelector of %s: %w", c.Name, err)
	}
	return selector.Matches(labels.Set(namespace.Labels)), nil
}

// ofTrainJobs tells the webhooks of TrainJobs from that of Workloads.
func ofTrainJobs(rules []admissionregistrationv1.RuleWithOperations) bool {
	return slices.ContainsFunc(rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(rule.Resources, "trainjobs")
	})
}

// queued is met where a queue label or our part of the patches is in the object, or was
// there before, and patches something: see patch.Patched. In podTemplateOverrides our part has a mark.
var queued = fmt.Sprintf(`[object, oldObject].exists(o, o != null && (`+
	`%q in o.metadata.?labels.orValue({}) || `+
	`o.?spec.?runtimePatches.orValue([]).exists(p, p.?manager.orValue('') == %q && `+
	`p.?trainingRuntimeSpec.?template.?spec.?replicatedJobs.orValue([]).size() > 0) || `+
	`o.?spec.?podTemplateOverrides.orValue([]).exists(p, p.?metadata.?annotations[?%q].orValue('') == %q)))`,
	kueueconstants.QueueLabel, trainjob.Manager, trainjob.ManagerAnnotation, trainjob.Manager)

// conditions returns those of a webhook: its others, and ours where they hold. With every
// TrainJob in scope nothing is left out. self is the manager's user, or empty where its
// writes have to pass.
func conditions(have []admissionregistrationv1.MatchCondition, every bool, self string) []admissionregistrationv1.MatchCondition {
	out := slices.DeleteFunc(slices.Clone(have), func(c admissionregistrationv1.MatchCondition) bool {
		return c.Name == Queued || c.Name == NotOwn
	})
	if !every {
		out = append(out, admissionregistrationv1.MatchCondition{Name: Queued, Expression: queued})
	}
	if self != "" {
		out = append(out, admissionregistrationv1.MatchCondition{Name: NotOwn, Expression: fmt.Sprintf("request.userInfo.username != %q", self)})
	}
	if equality.Semantic.DeepEqual(out, have) {
		return have
	}
	return out
}

const (
	unknownSettings = "Kueue's configuration could not be read yet"

	// askAgain is how soon to look again at settings that are not known.
	askAgain = 10 * time.Second
)

// Scope keeps TrainJobs that are none of Kueue's away from the webhooks, so that people can write those while the manager is
// down: the matchConditions follow Kueue's settings.
type Scope struct {
	// self is the manager's user. Its writes do not go to the validating webhook; the mutating
	// one puts back what Trainer's makes of them.
	self   string
	kueue  *kueueconfig.Follower
	client client.Client
	events chan event.GenericEvent
	// told is why all TrainJobs mattered when it was logged last; nil: it was not.
	told *string

	// known is set once the scope was brought in step, which the leader does; all is what it is.
	known, all atomic.Bool
}

// All reports whether the webhooks are asked about every TrainJob, and whether this process knows.
func (s *Scope) All() (all, known bool) { return s.all.Load(), s.known.Load() }

// AddScope adds the scope, which follows Kueue's settings, to a manager whose user is self; the leader keeps it.
func AddScope(mgr ctrl.Manager, self string, settings *kueueconfig.Follower) (*Scope, error) {
	s := &Scope{self: self, kueue: settings, client: mgr.GetClient(), events: make(chan event.GenericEvent, 1)}
	settings.OnChange(s.changed)
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: Installed.Mutating}}}
	})
	err := ctrl.NewControllerManagedBy(mgr).Named("webhook-scope").
		WithLogConstructor(logging.ForController(mgr.GetLogger(), "webhook-scope", "webhookConfiguration")).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, one).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, one).
		Watches(&kueue.LocalQueue{}, one, builder.WithPredicates(predicate.NewPredicateFuncs(IsDefault), predicate.Funcs{
			// What Kueue says of one is none of this.
			UpdateFunc: func(event.UpdateEvent) bool { return false },
		})).
		WatchesRawSource(source.Channel(s.events, one)).
		Complete(s)
	return s, err
}

// changed brings other settings into the configurations. One event that waits stands for all.
func (s *Scope) changed(context.Context) error {
	select {
	case s.events <- event.GenericEvent{Object: &metav1.PartialObjectMetadata{}}:
	default:
	}
	return nil
}

// IsDefault reports whether TrainJobs of a LocalQueue's namespace get it without asking.
func IsDefault(queue client.Object) bool {
	return queue.GetName() == string(kueueconstants.DefaultLocalQueueName)
}

// Reconcile brings the matchConditions in step.
func (s *Scope) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	why, err := s.every(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	err = Installed.Change(ctx, s.client, func(w Webhook) {
		if !ofTrainJobs(w.Rules) {
			return
		}
		self := ""
		if w.Validating {
			self = s.self
		}
		*w.MatchConditions = conditions(*w.MatchConditions, why != "", self)
	})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("telling the API server which TrainJobs matter: %w", err)
	}
	s.tell(ctx, why)
	if why == unknownSettings {
		// That they are known, and nothing new, is no change.
		return reconcile.Result{RequeueAfter: askAgain}, nil
	}
	return reconcile.Result{}, nil
}

// every says why all TrainJobs matter; empty: only those with a queue do.
func (s *Scope) every(ctx context.Context) (string, error) {
	switch {
	case s.kueue.Settings().ManageJobsWithoutQueueName:
		return "Kueue manages jobs without a queue name", nil
	case !s.kueue.Known():
		return unknownSettings, nil
	}
	var queues kueue.LocalQueueList
	if err := s.client.List(ctx, &queues, client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("listing LocalQueues: %w", err)
	}
	// Caches list in no order.
	first := ""
	for i := range queues.Items {
		if queue := &queues.Items[i]; IsDefault(queue) && (first == "" || queue.Namespace < first) {
			first = queue.Namespace
		}
	}
	if first == "" {
		return "", nil
	}
	return fmt.Sprintf("namespace %s has a LocalQueue %s", first, kueueconstants.DefaultLocalQueueName), nil
}

// tell logs a scope that is another than before.
func (s *Scope) tell(ctx context.Context, why string) {
	s.all.Store(why != "")
	s.known.Store(true)
	switch log := ctrl.LoggerFrom(ctx); {
	case s.told != nil && *s.told == why:
	case why == "":
		log.Info("Narrowed the webhooks to TrainJobs with a queue")
	default:
		log.Info("Widened the webhooks to every TrainJob", "detail", why)
	}
	s.told = &why
}
