// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// setupLedger has the manager keep account of what TrainJobs hold.
func setupLedger(ctx context.Context, mgr ctrl.Manager, deps *dependencies, opts Options) error {
	deps.ledger = ledger.New(ledger.Options{
		Namespace: opts.Namespace, Live: mgr.GetAPIReader(), Writer: mgr.GetClient(), Cached: mgr.GetClient(),
		Facts: func(ctx context.Context, wl *kueue.Workload) ledger.Facts {
			return deps.factsOf(ctx, mgr.GetClient(), wl, opts.UserLabel)
		},
		Recorder: mgr.GetEventRecorder(controllerName), Log: mgr.GetLogger().WithName("ledger"),
	})
	if err := deps.ledger.Follow(ctx, mgr.GetCache()); err != nil {
		return err
	}
	deps.metrics.Register(ledger.NewCollector(deps.ledger, deps.metrics.LocalQueues))
	return mgr.Add(deps.ledger)
}

// factsOf finds in the caches what the ledger does not read off a Workload. What cannot be read is left out: the next look has it.
func (e *dependencies) factsOf(ctx context.Context, cached client.Reader, wl *kueue.Workload, userLabel string) ledger.Facts {
	var job *trainjob.TrainJob
	if owner := state.ControllerOfKind(wl, trainjob.GVK); owner != nil {
		found := &trainjob.TrainJob{}
		if cached.Get(ctx, client.ObjectKey{Namespace: wl.Namespace, Name: owner.Name}, found) == nil && found.UID == owner.UID {
			job = found
		}
	}
	facts := ledger.FactsOf(job, userLabel)
	facts.WaitsForPods = e.kueue.Settings().WaitForPodsReady != nil
	if job != nil && !facts.WaitsForPods {
		view, _ := state.Observe(ctx, cached, client.ObjectKeyFromObject(job))
		facts.Started = ledger.StartOf(job, wl, view.ChildJobsOf(job))
	}
	return facts
}
