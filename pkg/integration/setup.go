// SPDX-License-Identifier: Apache-2.0

// Package integration makes TrainJobs a kind that Kueue manages: the frame of a reconcile (reconciler.go), what it goes by
// (observe.go), the rules of each phase (rules.go, and a file for each subject), the adapter for Kueue's jobframework
// (job.go), and the set-up of these and of the packages below (setup.go). docs/architecture.md says what is where.
package integration

import (
	"cmp"
	"context"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	authenticationv1 "k8s.io/api/authentication/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/heap"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobmetrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/peers"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podungate"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/watches"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/webhook"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/logging"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
)

// dependencies are what adapter and reconciler go by. What works on a part of them is made from them
// where it is used: so it has the Trainer, and the view of a TrainJob, that this has.
type dependencies struct {
	// Describer is for the Trainer that is served; see of.
	*podsets.Describer

	client client.Client
	// live asks the API server itself.
	live client.Reader

	// waitForJobSet is how long a TrainJob waits for its JobSet, before it queues without, startTimeout how long
	// an admitted one may be without what it needs to run.
	waitForJobSet, startTimeout time.Duration

	// refusals are what other controllers say about what they could not make.
	refusals *jobevents.Refusals

	// What is remembered of TrainJobs from one reconcile to the next.
	expectations *jobclient.Expectations
	records      *records

	// Whether to act, and for which Trainer. all looks at every TrainJob when that changes.
	inTree  *peers.InTree
	trainer *peers.Trainer
	all     *peers.TrainJobs

	metrics *metrics.Recorder

	// kueue has the settings that are Kueue's, labels are those of its metrics.
	kueue  *kueueconfig.Follower
	labels *kueuelib.CustomLabels
	queues *queues.Queues

	// ledger keeps account of what TrainJobs hold.
	ledger *ledger.Ledger
}

// of returns them for a generation of Trainer. A reconcile keeps what it got, so that it sees the same generation from
// its beginning to its end.
func (e *dependencies) of(served trainjob.TrainerVersion) *dependencies {
	deps := *e
	deps.Describer = e.Describer.For(served)
	return &deps
}

// Options are the settings of the integration.
type Options struct {
	// Namespace is the manager's own.
	Namespace string
	// Kueue has the settings that Kueue has, too, as they are now.
	Kueue *kueueconfig.Follower
	// TolerationRules are applied to pods beside what pkg/gpu knows of NVIDIA's. Nil: none.
	TolerationRules []podset.TolerationRule
	// StartTimeout is how long an admitted TrainJob may be without what it needs to run. 0
	// means 2 minutes.
	StartTimeout time.Duration
	// WaitForJobSet is how long a new TrainJob waits for its JobSet, before it queues without. 0
	// means not at all.
	WaitForJobSet time.Duration
	// Concurrency is the number of TrainJobs reconciled at a time. 0 means 1.
	Concurrency int
	// UserLabel is the label of TrainJobs whose value tells the ledger whose they are. Empty: none.
	UserLabel string
	// Scarce reports whether memory is scarce: then TrainJobs are looked at one by one.
	Scarce func() bool
	// Metrics record what happens, and tell what there is.
	Metrics *metrics.Recorder
}

// Setup adds controllers and webhooks to mgr, which has to be starting meanwhile. It
// reads the identity of this process from the API server, so that the webhooks know our
// own writes. It returns the integration's parts of the manager's readiness.
//
// Every call into jobframework's registration and set-up stands in this file.
func Setup(ctx context.Context, mgr ctrl.Manager, opts Options) (*Checks, error) {
	deps, err := newDependencies(ctx, mgr, opts)
	if err != nil {
		return nil, err
	}
	if err := setupLedger(ctx, mgr, deps, opts); err != nil {
		return nil, fmt.Errorf("setting up the ledger: %w", err)
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := mgr.GetClient().Create(ctx, review); err != nil {
		return nil, fmt.Errorf("asking the API server for this manager's own user name: %w", err)
	}
	self := review.Status.UserInfo.Username
	// The webhooks read these: no request shall have to wait for them.
	for _, obj := range []client.Object{
		&corev1.Namespace{}, &schedulingv1.PriorityClass{},
		&trainer.ClusterTrainingRuntime{}, &trainer.TrainingRuntime{}, &jobsetapi.JobSet{},
		&kueue.LocalQueue{}, &kueue.ClusterQueue{}, &kueue.AdmissionCheck{}, &kueue.ResourceFlavor{}, &kueue.WorkloadPriorityClass{},
	} {
		if _, err := mgr.GetCache().GetInformer(ctx, obj); err != nil {
			return nil, fmt.Errorf("caching %T: %w", obj, err)
		}
	}
	// Our own writes of TrainJobs pass the webhooks, too: a controller that is faster
	// than them is refused, again and again.
	webhook.Register(mgr, webhook.Options{
		Client: deps.client, InTree: deps.inTree, Trainer: deps.trainer, Describer: deps.Describer,
		Queues: deps.queues, Kueue: deps.kueue, Self: self, Metrics: deps.metrics,
	})
	// That the server cannot be started ends the manager, and with it ctx.
	started := mgr.GetWebhookServer().StartedChecker()
	err = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) { return started(nil) == nil, nil })
	if err != nil {
		return nil, err
	}
	if err := setupReconciler(mgr, deps, opts); err != nil {
		return nil, fmt.Errorf("setting up the TrainJob controller: %w", err)
	}
	if err := setupRemainders(mgr, deps, opts); err != nil {
		return nil, fmt.Errorf("setting up the controller of remainders: %w", err)
	}
	pods := &podungate.Controller{Client: deps.client, InTree: deps.inTree, Trainer: deps.trainer, Describer: deps.Describer, Recorder: deps.Recorder, Metrics: deps.metrics}
	if err := pods.SetupWithManager(mgr); err != nil {
		return nil, fmt.Errorf("setting up the ungater: %w", err)
	}
	scope, err := webhookconfig.AddScope(mgr, self, opts.Kueue)
	if err != nil {
		return nil, fmt.Errorf("setting up the scope of the webhooks: %w", err)
	}
	counts := &jobmetrics.Counts{Cached: mgr.GetClient(), Leads: mgr.Elected(), StuckReason: deps.Recorder.StuckReason, Labels: deps.metrics.QueueLabels, Managed: deps.queues.ManagesNamespace}
	standing := &jobmetrics.Standing{Trainer: deps.trainer, InTree: deps.inTree, Kueue: deps.kueue, Scope: scope}
	deps.metrics.Register(
		metrics.NewScraped(counts.Tell, metrics.TrainJobs, metrics.StuckTrainJobs, metrics.GatedPods),
		metrics.NewScraped(standing.Tell, metrics.TrainerInfo, metrics.InTree, metrics.KueueConfigurationRead, metrics.SettingDiffers, metrics.WebhooksEveryTrainJob))
	// Runnables of the leader's, controllers among them, start when it begins to lead.
	err = mgr.Add(manager.RunnableFunc(func(context.Context) error {
		deps.expectations.Lead()
		mgr.GetLogger().Info("Began to lead")
		return nil
	}))
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(deps.inTree); err != nil {
		return nil, fmt.Errorf("adding the look for Kueue's in-tree integration: %w", err)
	}
	return &Checks{
		InTreeOff: deps.inTree.Check, InTreeKnown: deps.inTree.CheckKnown, TrainerKnown: deps.trainer.Check,
		Facts: standing.Facts,
	}, nil
}

// Checks are the readiness checks of the integration.
type Checks struct {
	// InTreeOff fails while Kueue's in-tree integration is active as well.
	InTreeOff healthz.Checker
	// InTreeKnown fails when it has been unknown for long whether that is so.
	InTreeKnown healthz.Checker
	// TrainerKnown fails while the served TrainJob CRD is of no generation that we know.
	TrainerKnown healthz.Checker
	// Facts returns what the manager goes by, for people, a line for each.
	Facts func() []string
}

func newDependencies(ctx context.Context, mgr ctrl.Manager, opts Options) (*dependencies, error) {
	renderer, err := trainjob.NewRenderer(ctx, mgr.GetScheme())
	if err != nil {
		return nil, err
	}
	all := peers.NewTrainJobs(mgr.GetClient())
	trainer := peers.NewTrainer(all)
	if err := trainer.FollowIn(ctx, mgr); err != nil {
		return nil, err
	}
	defaults := &podsets.Defaults{}
	if err := defaults.Follow(ctx, mgr.GetCache()); err != nil {
		return nil, err
	}
	labels, err := jobmetrics.RegisterKueues(ctx, mgr.GetCache(), opts.Kueue, opts.Metrics)
	if err != nil {
		return nil, err
	}
	runtimes := trainjob.NewRuntimes(mgr.GetClient(), mgr.GetAPIReader())
	expectations := jobclient.NewExpectations(clock.RealClock{})
	recorder, err := jobevents.Setup(ctx, mgr)
	if err != nil {
		return nil, err
	}
	deps := &dependencies{
		Describer: &podsets.Describer{
			Runtimes: runtimes, Renderer: renderer, Defaults: defaults, Remembered: lru.New(podsets.Remembers),
			TolerationRules: opts.TolerationRules, Cached: mgr.GetClient(), Recorder: recorder,
		},
		client:       jobclient.New(mgr.GetClient(), mgr.GetAPIReader(), trainer, expectations, opts.Metrics),
		live:         mgr.GetAPIReader(),
		refusals:     jobevents.NewRefusals(mgr.GetAPIReader()),
		expectations: expectations,
		records:      &records{},
		inTree:       peers.NewInTree(mgr.GetClient(), opts.Namespace, opts.Kueue, all),
		trainer:      trainer,
		all:          all,
		metrics:      opts.Metrics,
		kueue:        opts.Kueue,
		labels:       labels,
		queues:       queues.New(mgr.GetClient(), mgr.GetAPIReader(), opts.Kueue),

		waitForJobSet: opts.WaitForJobSet, startTimeout: cmp.Or(opts.StartTimeout, defaultStartTimeout),
	}
	// Trainer freezes the runtime just before it makes the JobSet: where there is one, it has looked at the job.
	runtimes.Looked = func(ctx context.Context, job *trainjob.TrainJob) bool {
		js, err := state.JobSetOf(ctx, mgr.GetClient(), job)
		return err != nil || js != nil
	}
	opts.Kueue.OnChange(all.Requeue)
	return deps, nil
}

func setupReconciler(mgr ctrl.Manager, deps *dependencies, opts Options) error {
	maps := watches.Mapper{Cached: deps.client}
	controlling := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &trainjob.TrainJob{}, handler.OnlyControllerOwner())
	return ctrl.NewControllerManagedBy(mgr).
		Named("trainjob").
		Watches(&trainjob.TrainJob{}, watches.OfTrainJobs(deps.expectations.Wrote), builder.WithPredicates(watches.ForgetDeleted(deps.forget))).
		Watches(&kueue.Workload{}, watches.DecidedFirst(controlling), builder.WithPredicates(jobmetrics.OfWorkloads(deps.metrics))).
		Watches(&jobsetapi.JobSet{}, watches.Batched(controlling)).
		Watches(&batchv1.Job{}, watches.Batched(handler.EnqueueRequestsFromMapFunc(maps.TrainJobOfChild))).
		Watches(&trainer.ClusterTrainingRuntime{}, handler.EnqueueRequestsFromMapFunc(maps.TrainJobsOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&trainer.TrainingRuntime{}, handler.EnqueueRequestsFromMapFunc(maps.TrainJobsOf), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(maps.TrainJobsIn), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&kueue.LocalQueue{}, handler.EnqueueRequestsFromMapFunc(maps.UnqueuedOf), builder.WithPredicates(watches.Made(webhookconfig.IsDefault))).
		Watches(&kueue.WorkloadPriorityClass{}, handler.EnqueueRequestsFromMapFunc(maps.NamersOf), builder.WithPredicates(watches.Made(nil))).
		Watches(&schedulingv1.PriorityClass{}, handler.EnqueueRequestsFromMapFunc(maps.NamersOf), builder.WithPredicates(watches.Made(nil))).
		WatchesRawSource(deps.all.Source()).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: max(opts.Concurrency, 1), ReconciliationTimeout: longestLook, RateLimiter: watches.RetryFailed(),
			LogConstructor: logging.ForController(mgr.GetLogger(), "trainjob", "trainJob"),
		}).
		Complete(passing(heap.NewGate(1, opts.Scarce), &reconciler{deps: deps}))
}

// passing returns a reconciler whose reconciles pass a gate.
func passing(gate *heap.Gate, r reconcile.Reconciler) reconcile.Func {
	return func(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
		leave, err := gate.Pass(ctx)
		if err != nil {
			return ctrl.Result{}, err
		}
		defer leave()
		return r.Reconcile(ctx, req)
	}
}

// longestLook is when a reconcile ends that an API server or a webhook keeps: others wait for its worker.
const longestLook = 5 * time.Minute

// setupRemainders has remainders deleted with their pods, whoever acts for TrainJobs.
func setupRemainders(mgr ctrl.Manager, deps *dependencies, opts Options) error {
	ours := predicate.NewPredicateFuncs(func(obj client.Object) bool { return obj.GetLabels()[placeholder.Label] != "" })
	return ctrl.NewControllerManagedBy(mgr).
		Named("remainder").
		For(&kueue.Workload{}, builder.WithPredicates(ours)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: max(opts.Concurrency, 1), RateLimiter: watches.RetryFailed(), LogConstructor: logging.ForController(mgr.GetLogger(), "remainder", "remainder"),
		}).
		Complete(&remainders{deps: deps})
}

// framework returns Kueue's jobframework for a job, under the settings that hold now. PodsReady is ours
// to report, see package readiness: jobframework writes it more often, and asks a cache of
// LocalQueues that only Kueue itself fills.
func (e *dependencies) framework(j *job) *jobframework.JobReconciler {
	settings := e.kueue.Settings()
	return jobframework.NewReconciler(frozen{e.client, j}, e.Recorder,
		jobframework.WithManageJobsWithoutQueueName(settings.ManageJobsWithoutQueueName),
		// Whether a namespace is managed is asked before, see leaveAlone: what has quota keeps it to its end.
		jobframework.WithManagedJobsNamespaceSelector(labels.Everything()),
		jobframework.WithLabelKeysToCopy(sets.New(settings.LabelKeysToCopy...)),
		jobframework.WithAnnotationsToCopy(sets.New(settings.AnnotationKeysToCopy...)),
		jobframework.WithObjectRetentionPolicies(settings.ObjectRetentionPolicies),
		jobframework.WithCustomLabels(e.labels),
	)
}

// setupLedger has the manager keep account of what TrainJobs hold.
func setupLedger(ctx context.Context, mgr ctrl.Manager, deps *dependencies, opts Options) error {
	deps.ledger = ledger.New(ledger.Options{
		Namespace: opts.Namespace, Live: mgr.GetAPIReader(), Writer: mgr.GetClient(), Cached: mgr.GetClient(),
		Facts: func(ctx context.Context, wl *kueue.Workload) ledger.Facts {
			return jobmetrics.FactsOf(ctx, mgr.GetClient(), wl, opts.UserLabel, deps.kueue.Settings().WaitForPodsReady != nil)
		},
		Recorder: mgr.GetEventRecorder(jobevents.ReportingController), Log: mgr.GetLogger().WithName("ledger"),
	})
	if err := deps.ledger.Follow(ctx, mgr.GetCache()); err != nil {
		return err
	}
	deps.metrics.Register(ledger.NewCollector(deps.ledger, deps.metrics.LocalQueues))
	return mgr.Add(deps.ledger)
}
