// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"time"

	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// setupLedger has the manager keep account of what TrainJobs hold.
func setupLedger(ctx context.Context, mgr ctrl.Manager, env *environment, opts Options) error {
	facts := accountFacts{client: mgr.GetClient(), env: env, userLabel: opts.UserLabel}
	env.ledger = ledger.New(ledger.Options{
		Namespace: opts.Namespace, Live: mgr.GetAPIReader(), Writer: mgr.GetClient(), Cached: mgr.GetClient(),
		Facts: facts.of, Recorder: mgr.GetEventRecorder(controllerName), Log: mgr.GetLogger().WithName("ledger"), Clock: clock.RealClock{},
	})
	if err := env.ledger.Follow(ctx, mgr.GetCache()); err != nil {
		return err
	}
	env.metrics.Register(ledger.NewCollector(env.ledger, env.metrics.LocalQueues))
	return mgr.Add(env.ledger)
}

// accountFacts finds in the caches what the ledger does not read off a Workload.
type accountFacts struct {
	client client.Reader
	env    *environment
	// userLabel is the label of TrainJobs that says whose they are, or nothing.
	userLabel string
}

// of returns the facts about a Workload. What cannot be read is left out: the next look has it.
func (f accountFacts) of(ctx context.Context, wl *kueue.Workload) ledger.Facts {
	facts := ledger.Facts{WaitsForPods: f.env.kueue.Settings().WaitForPodsReady != nil}
	owner := state.ControllerOfKind(wl, trainjob.GVK.Kind)
	if owner == nil {
		return facts
	}
	var job trainjob.TrainJob
	err := f.client.Get(ctx, client.ObjectKey{Namespace: wl.Namespace, Name: owner.Name}, &job)
	if err != nil || job.UID != owner.UID {
		facts.UserUnknown = true
		return facts
	}
	facts.JobEnded, facts.Outcome = ledger.EndOf(&job)
	if f.userLabel != "" {
		facts.User = job.Labels[f.userLabel]
	}
	if !facts.WaitsForPods {
		jobs, _ := state.ChildJobsOf(ctx, f.env.state, &job)
		facts.Started = ledger.StartOf(&job, wl, jobs)
	}
	return facts
}

// accounted reports whether the ledger has saved what is known of a Workload, before that changes
// to one that does not tell it any more. Otherwise the job is looked at again when it is saved, and
// when the ledger does not want to be waited for any more.
func (j *job) accounted(ctx context.Context, wl *kueue.Workload) bool {
	return j.env.ledger == nil || j.awaitLedger(j.env.ledger.Keep(ctx, wl, j.lookWhenSaved))
}

// accountedGone is accounted for a Workload without pods that is about to be gone.
func (j *job) accountedGone(ctx context.Context, wl *kueue.Workload) bool {
	return j.env.ledger == nil || j.awaitLedger(j.env.ledger.Leave(ctx, wl, j.lookWhenSaved))
}

// lookWhenSaved has the job looked at before those that wait: it was about to give its quota back.
func (j *job) lookWhenSaved() { j.env.all.RequeueOne(j.key, decidedPriority) }

// awaitLedger has the job looked at again after a time, and reports whether there is nothing to
// wait for.
func (j *job) awaitLedger(wait time.Duration) bool {
	if wait > 0 && (j.unaccounted == 0 || wait < j.unaccounted) {
		j.unaccounted = wait
	}
	return wait == 0
}

// accountedHolding is accounted for the Workload of a job that holds quota, which it gives back
// before it has finished. podless is whether it has no pods any more, and so may be gone next.
func (j *job) accountedHolding(ctx context.Context, podless bool) (bool, error) {
	wl, err := state.HoldingQuota(ctx, state.Latest(j.env.state), &j.TrainJob)
	if err != nil || wl == nil {
		return err == nil, err
	}
	if j.TrainJob.Finished() && wl.DeletionTimestamp.IsZero() && !kueuelib.IsEvicted(wl) {
		// It finishes, and then says so itself.
		return true, nil
	}
	if podless && !wl.DeletionTimestamp.IsZero() {
		return j.accountedGone(ctx, wl), nil
	}
	return j.accounted(ctx, wl), nil
}

// accountedEnd is accounted for the Workloads of a finished job, which may go as soon as they have
// no finalizer.
func (j *job) accountedEnd(ctx context.Context) (bool, error) {
	workloads, err := state.WorkloadsOf(ctx, j.env.state, &j.TrainJob)
	for i := range workloads {
		wl := &workloads[i]
		if kueuelib.IsFinished(wl) && controllerutil.ContainsFinalizer(wl, kueue.ResourceInUseFinalizerName) && !j.accounted(ctx, wl) {
			return false, nil
		}
	}
	return err == nil, err
}

// accountedAll is accounted for the Workloads of a deleted job, none of which has pods any more.
func (j *job) accountedAll(ctx context.Context, workloads []kueue.Workload) outcome {
	for i := range workloads {
		wl := &workloads[i]
		if controllerutil.ContainsFinalizer(wl, kueue.ResourceInUseFinalizerName) && !j.accountedGone(ctx, wl) {
			return done(nil)
		}
	}
	return outcome{}
}
