// SPDX-License-Identifier: Apache-2.0

package matchconditions

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
)

const (
	unknownSettings = "Kueue's configuration could not be read yet"

	// askAgain is how soon to look again at settings that are not known.
	askAgain = 10 * time.Second
)

// Scope keeps the matchConditions.
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

// AddTo adds the scope, which follows Kueue's settings, to a manager whose user is self; the leader keeps it.
func AddTo(mgr ctrl.Manager, self string, settings *kueueconfig.Follower) (*Scope, error) {
	s := &Scope{self: self, kueue: settings, client: mgr.GetClient(), events: make(chan event.GenericEvent, 1)}
	settings.OnChange(s.changed)
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: webhookconfig.Installed.Mutating}}}
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
	err = webhookconfig.Installed.Change(ctx, s.client, func(w webhookconfig.Webhook) {
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
