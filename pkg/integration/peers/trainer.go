// SPDX-License-Identifier: Apache-2.0

// Package peers says whether the manager may act on TrainJobs, and for which Trainer: it stands aside for Kueue's in-tree
// integration (intree.go), goes by the version of the TrainJob CRD (trainer.go), and starts nothing while another Trainer is
// being rolled out (rollout.go). Whenever that changes, every TrainJob is looked at again.
package peers

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/caches"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// TrainJobs lets the TrainJob controller look at every TrainJob when something changes
// that concerns all of them.
type TrainJobs struct {
	client client.Client
	// queue is the TrainJob controller's, where this replica leads.
	queue atomic.Pointer[workqueue.TypedRateLimitingInterface[reconcile.Request]]
}

// NewTrainJobs returns the TrainJobs that c lists.
func NewTrainJobs(c client.Client) *TrainJobs { return &TrainJobs{client: c} }

// Source is the controller's source of these looks.
func (a *TrainJobs) Source() source.Source {
	return source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		a.queue.Store(&queue)
		return nil
	})
}

// Requeue has every TrainJob looked at. Before the controller starts there is nothing to
// do: it looks at all of them then.
func (a *TrainJobs) Requeue(ctx context.Context) error {
	queue := a.queue.Load()
	if queue == nil {
		return nil
	}
	var jobs trainjob.List
	if err := a.client.List(ctx, &jobs, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing the TrainJobs to look at again: %w", err)
	}
	for i := range jobs.Items {
		(*queue).Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&jobs.Items[i])})
	}
	return nil
}

// Trainer follows the version of Trainer while the manager runs. Trainer is
// upgraded by its CRD, and from that moment on the API server keeps another field of
// TrainJobs. While the CRD is of no version that we know, the manager starts and stops
// nothing, and its webhooks take no new TrainJob into a queue.
type Trainer struct {
	// Rollout is of the Trainer that runs.
	Rollout Rollout

	all *TrainJobs

	mu      sync.Mutex
	version trainjob.TrainerVersion
	err     error
}

// NewTrainer returns a Trainer of which nothing is known yet. Whenever something changes, all
// TrainJobs are looked at again.
func NewTrainer(all *TrainJobs) *Trainer { return &Trainer{all: all} }

// errNoTrainer is why the version is unknown where there is no CRD.
var errNoTrainer = fmt.Errorf("there is no CRD %s: install Trainer 2.1 or later", trainjob.CRDName)

// follow looks at the CRD now and at every change of it. It returns when crds is in step.
func (t *Trainer) follow(ctx context.Context, crds cache.Cache) error {
	look := func(crd *apiextensionsv1.CustomResourceDefinition) {
		version, err := trainjob.TrainerVersionOf(crd)
		t.Set(ctx, version, err)
	}
	gone := func() { t.Set(ctx, 0, errNoTrainer) }
	if err := caches.FollowCRD(ctx, crds, trainjob.CRDName, look, gone); err != nil {
		return err
	}
	if version, reason := t.Served(); version == 0 && reason == nil {
		gone()
	}
	return nil
}

// Set takes note of a version, 0 with the reason when it is unknown. When it is
// another one, every TrainJob is looked at again.
func (t *Trainer) Set(ctx context.Context, version trainjob.TrainerVersion, reason error) {
	t.mu.Lock()
	before, first := t.version, t.version == 0 && t.err == nil
	t.version, t.err = version, reason
	if reason == nil {
		t.Rollout.expect(version)
	}
	t.mu.Unlock()
	if version == before && !first {
		return
	}
	log := ctrl.LoggerFrom(ctx).WithName("trainer")
	if reason != nil {
		log.Error(reason, "Could not tell the version of Trainer, so no TrainJob starts or stops", "reason", jobevents.ReasonTrainerUnknown, "versionBefore", before.String())
	} else {
		log.Info("Found the version of Trainer", "version", version.String(), "versionBefore", before.String())
	}
	if err := t.all.Requeue(ctx); err != nil {
		log.Error(err, "Could not look at every TrainJob again")
	}
}

// Served returns the version of Trainer, or why it is unknown.
func (t *Trainer) Served() (trainjob.TrainerVersion, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.version, t.err
}

// Check is the readiness check: not ready while the version is unknown.
func (t *Trainer) Check(*http.Request) error {
	_, err := t.Served()
	return err
}

// FollowIn has a manager follow the CRD of TrainJob. The manager's own cache holds
// Kueue's Workload CRD alone; no selector names two, and all of them would be many.
func (t *Trainer) FollowIn(ctx context.Context, mgr ctrl.Manager) error {
	crds, err := cluster.New(mgr.GetConfig(), func(o *cluster.Options) {
		o.Scheme, o.HTTPClient = mgr.GetScheme(), mgr.GetHTTPClient()
		o.Cache.ByObject = map[client.Object]cache.ByObject{
			&apiextensionsv1.CustomResourceDefinition{}: {Field: fields.OneTermEqualSelector("metadata.name", trainjob.CRDName)},
		}
	})
	if err != nil {
		return fmt.Errorf("setting up the cache of CRD %s: %w", trainjob.CRDName, err)
	}
	if err := mgr.Add(crds); err != nil {
		return err
	}
	return t.follow(ctx, crds.GetCache())
}
