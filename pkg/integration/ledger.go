// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// setupLedger has the manager keep account of what TrainJobs hold.
func setupLedger(ctx context.Context, mgr ctrl.Manager, deps *dependencies, opts Options) error {
	facts := accountFacts{client: mgr.GetClient(), deps: deps, userLabel: opts.UserLabel}
	deps.ledger = ledger.New(ledger.Options{
		Namespace: opts.Namespace, Live: mgr.GetAPIReader(), Writer: mgr.GetClient(), Cached: mgr.GetClient(),
		Facts: facts.of, Recorder: mgr.GetEventRecorder(controllerName), Log: mgr.GetLogger().WithName("ledger"), Clock: clock.RealClock{},
	})
	if err := deps.ledger.Follow(ctx, mgr.GetCache()); err != nil {
		return err
	}
	deps.metrics.Register(ledger.NewCollector(deps.ledger, deps.metrics.LocalQueues))
	return mgr.Add(deps.ledger)
}

// accountFacts finds in the caches what the ledger does not read off a Workload.
type accountFacts struct {
	client client.Reader
	deps   *dependencies
	// userLabel is the label of TrainJobs that says whose they are, or nothing.
	userLabel string
}

// of returns the facts about a Workload. What cannot be read is left out: the next look has it.
func (f accountFacts) of(ctx context.Context, wl *kueue.Workload) ledger.Facts {
	var job *trainjob.TrainJob
	if owner := state.ControllerOfKind(wl, trainjob.GVK); owner != nil {
		found := &trainjob.TrainJob{}
		if f.client.Get(ctx, client.ObjectKey{Namespace: wl.Namespace, Name: owner.Name}, found) == nil && found.UID == owner.UID {
			job = found
		}
	}
	facts := ledger.FactsOf(job, f.userLabel)
	facts.WaitsForPods = f.deps.kueue.Settings().WaitForPodsReady != nil
	if job != nil && !facts.WaitsForPods {
		view, _ := state.Observe(ctx, f.client, client.ObjectKeyFromObject(job))
		facts.Started = ledger.StartOf(job, wl, view.ChildJobsOf(job))
	}
	return facts
}

// leaves has the ledger know that no pod is left of a Workload that is about to be gone.
func (e *dependencies) leaves(workload types.UID) {
	if e.ledger != nil {
		e.ledger.Leave(workload)
	}
}
