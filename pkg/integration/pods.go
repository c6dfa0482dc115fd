// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/readiness"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// IsActive implements jobframework.GenericJob, by what was found out before jobframework's look.
func (j *job) IsActive() bool { return j.stopping || j.podsThere == nil || j.podsThere.may }

// active reports whether pods of the job are there or may still come.
func (j *job) active(ctx context.Context) bool { return j.stopping || j.mayHavePods(ctx) }

// mayHavePods asks the API server for pods, and then whether the job is as the cache has it, only where the caches say no and
// quota is given back, once within this reconcile: a job that starts has none since that was done the last time. A job whose
// state cannot be read may have pods: its quota must not be given away. So may one that was changed since, unless it has ended:
// a leader before this one may have started it, or this one without hearing of it.
func (j *job) mayHavePods(ctx context.Context) bool {
	if j.podsThere != nil {
		return j.podsThere.may
	}
	j.podsThere = &podsAnswer{}
	if active, err := j.pods().Active(ctx, &j.TrainJob); err != nil || active {
		j.podsThere.may = true
	} else if j.podsThere.releases = releases(ctx, j); j.podsThere.releases != "" {
		pods, err := j.pods().Left(ctx)
		j.podsThere.may = err != nil || len(pods) > 0 || !j.TrainJob.Finished() && !j.notStarted(ctx)
	}
	return j.podsThere.may
}

// podsAnswer is whether pods of a job may be there.
type podsAnswer struct {
	may bool
	// releases is set where the caches know of none, and quota is given back if that is so.
	releases string
}

// notStarted reports whether the API server is known to have the job as it is here, in what a start changes: its users shall not put
// a stop off by changing the rest all the time.
func (j *job) notStarted(ctx context.Context) bool {
	var stored trainjob.TrainJob
	err := j.deps.live.Get(ctx, client.ObjectKeyFromObject(&j.TrainJob), &stored)
	field := j.deps.Field
	return err == nil && stored.UID == j.UID && stored.Suspended() == j.Suspended() &&
		(!field.Has(&stored.Spec) && !field.Has(&j.Spec) || field.Same(&stored.Spec, &j.Spec) && field.Time(&stored.Spec).Equal(field.Time(&j.Spec)))
}

// releases says for the log why quota is given back once the job is not active any more; empty: none is.
func releases(ctx context.Context, j *job) string {
	switch wl := j.holdingQuota(); {
	case wl == nil:
		return ""
	case j.TrainJob.Finished():
		return "Finished"
	case !wl.DeletionTimestamp.IsZero():
		return "WorkloadDeleted"
	case kueuelib.IsEvicted(wl):
		return state.ReasonOf(wl, kueue.WorkloadEvicted)
	case !kueuelib.IsActive(wl):
		return "Deactivated"
	case wl.Spec.QueueName != jobframework.QueueName(j):
		return "QueueChanged"
	case !state.SameTimeLimit(wl, &j.TrainJob):
		return "TimeLimitChanged"
	case j.IsSuspended() && changedPodSets(ctx, j, wl):
		return "PodSetsChanged"
	}
	return ""
}

// changedPodSets reports whether the job asks for something else than its Workload, which jobframework deletes for it.
func changedPodSets(ctx context.Context, j *job, wl *kueue.Workload) bool {
	podSets, err := j.describe(ctx)
	return err == nil && podset.Difference(podSets, wl.Spec.PodSets, j.deps.TolerationRules) != ""
}

// letQuotaGo notes that nothing keeps the quota of a job that releases it any more.
func letQuotaGo(ctx context.Context, j *job) {
	if j.podsThere == nil || j.podsThere.releases == "" {
		return
	}
	wl := j.holdingQuota()
	ctrl.LoggerFrom(ctx).Info("Found no pod left and let the quota go", "reason", j.podsThere.releases)
	j.record.start.QuotaGoes(wl.UID)
	if !wl.DeletionTimestamp.IsZero() {
		j.deps.ledger.Leave(wl.UID)
	}
}

// keepsQuota returns errStillActive where jobframework would go on and give up the quota that
// the pods which are left are charged to.
func keepsQuota(j *job, reason jobframework.StopReason) error {
	if reason == jobframework.StopReasonWorkloadDeleted || reason == jobframework.StopReasonNoMatchingWorkload && j.holdingQuota() != nil {
		return errStillActive
	}
	return nil
}

// PodsReady reports whether every replicated job that could have started is ready or
// done. One whose dependsOn is not met yet does not count: its pods cannot exist, and
// a long download before them is not a start that fails. What runs is in the JobSet,
// whatever became of the runtime since. While Trainer has not resumed the job, its counts are
// those of the last run.
func (j *job) PodsReady(ctx context.Context, _ client.Client) bool {
	js, err := runs(ctx, j)
	if err != nil && j.ManagedExternally() {
		// Its runtime is another one by now, and that of the other cluster counts.
		wl := j.holdingQuota()
		return wl != nil && apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadPodsReady)
	}
	if err != nil || js == nil {
		return false
	}
	if j.awaitsCluster() > 0 {
		return false
	}
	// Trainer says that it has resumed a job together with the counts of pods; of one that it never saw suspended it says nothing.
	resumed := !ptr.Deref(js.Spec.Suspend, false) && !apimeta.IsStatusConditionTrue(j.Status.Conditions, trainer.TrainJobSuspended)
	return (resumed || j.ManagedExternally()) && podset.Ready(js, j.Status.JobsStatus)
}

// runs returns the JobSet that runs, or nil. Another cluster's JobSet is not here; what it
// looks like is rendered.
func runs(ctx context.Context, j *job) (*jobsetapi.JobSet, error) {
	if !j.ManagedExternally() {
		return j.jobSet(), nil
	}
	js, err := j.deps.Render(ctx, &j.TrainJob)
	if wl := j.holdingQuota(); err == nil && wl != nil {
		// What came into the runtime since does not run there.
		js.Spec.ReplicatedJobs = slices.DeleteFunc(js.Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) bool {
			return podset.Of(rj.Name, wl.Spec.PodSets) == nil
		})
		for n := range js.Spec.ReplicatedJobs {
			rj := &js.Spec.ReplicatedJobs[n]
			if runs := podset.Of(rj.Name, wl.Spec.PodSets).Count; rj.Replicas*podset.PodsPerReplica(rj) != runs {
				return nil, fmt.Errorf("the runtime has another number of pods for replicated job %s by now than the %d that run", rj.Name, runs)
			}
		}
	}
	return js, err
}

// ReclaimablePods returns the pods whose work is done while the job still runs. Kueue
// refuses to take back what was given while the quota is held, so it never gets less.
func (j *job) ReclaimablePods(ctx context.Context, _ client.Client) ([]kueue.ReclaimablePod, error) {
	var given []kueue.ReclaimablePod
	if wl := j.holdingQuota(); wl != nil {
		given = wl.Status.ReclaimablePods
	}
	if !podset.AnySucceeded(j.Status.JobsStatus) || j.awaitsCluster() > 0 {
		return given, nil
	}
	js, err := runs(ctx, j)
	if err != nil && j.ManagedExternally() {
		// An error would keep it from being evicted.
		return given, nil
	}
	if err != nil || js == nil {
		return given, err
	}
	reclaimable := podset.Reclaimable(js, j.Status.JobsStatus, given)
	if j.ManagedExternally() || equality.Semantic.DeepEqual(reclaimable, given) {
		return reclaimable, nil
	}
	lasting, err := lastingSuccesses(ctx, j, js)
	return podset.Reclaimable(js, lasting, given), err
}

// lastingSuccesses returns how many child Jobs of each replicated job have succeeded for good: JobSet runs one again
// that was deleted before it had, and the policies let nobody delete it afterwards.
func lastingSuccesses(ctx context.Context, j *job, js *jobsetapi.JobSet) ([]trainer.JobStatus, error) {
	succeeded := map[string]int32{}
	err := state.EachChildJob(ctx, j.deps.live, js, func(child *batchv1.Job) {
		if podset.JobHas(child, batchv1.JobComplete) && child.DeletionTimestamp.IsZero() {
			succeeded[child.Labels[jobsetapi.ReplicatedJobNameKey]]++
		}
	})
	if err != nil {
		return nil, err
	}
	var statuses []trainer.JobStatus
	for name, count := range succeeded {
		statuses = append(statuses, trainer.JobStatus{Name: name, Succeeded: &count})
	}
	return statuses, nil
}

// clusterTells is how long another cluster may take to say something of a job that was admitted there. One that was lost and
// comes back may have nothing new to say.
const clusterTells = time.Minute

// awaitsCluster returns how long the status of a job is taken for what the cluster said that it ran in before: MultiKueue
// leaves it until the next one says something.
func (j *job) awaitsCluster() time.Duration {
	if !j.ManagedExternally() || j.record.former == nil || !equality.Semantic.DeepEqual(*j.record.former, j.Status) {
		return 0
	}
	wl := j.holdingQuota()
	if wl == nil || !kueuelib.IsAdmitted(wl) {
		return clusterTells
	}
	return max(0, state.AdmittedAt(wl).Add(clusterTells).Sub(j.view.At))
}

// noteFormerCluster remembers the status of a suspended job that is not admitted: whatever cluster runs it next has yet to say
// something.
func noteFormerCluster(_ context.Context, j *job) result {
	wl := j.holdingQuota()
	if j.ManagedExternally() && len(j.Status.JobsStatus) > 0 && (wl == nil || !kueuelib.IsAdmitted(wl) || kueuelib.IsEvicted(wl)) {
		j.record.former = j.Status.DeepCopy()
	}
	return result{}
}

// reportPodsReady brings PodsReady of a TrainJob's Workload in step, where Kueue waits for it, and
// the metrics in any case.
func reportPodsReady(ctx context.Context, j *job) result {
	// A job that is suspended, or was a moment ago, may have the counts of its last pods.
	ready := sync.OnceValue(func() bool {
		return j.decision.started == "" && (!j.IsSuspended() || j.ManagedExternally()) && j.PodsReady(ctx, j.deps.client)
	})
	j.record.run.Runs(j.deps.metrics, &j.TrainJob, j.holdingQuota(), ready)
	workloads := j.workloads()
	if !j.deps.kueue.WaitsForPodsReady() || len(workloads) == 0 || j.deps.expectations.Outdated(j.key, workloads) {
		return result{}
	}
	for _, wl := range workloads {
		if j.deps.blocksAdmission() && state.HoldsQuota(wl) && kueuelib.IsEvicted(wl) {
			// Stop says what becomes of it.
			continue
		}
		if _, err := j.deps.reporter().Report(ctx, j.key, wl, ready()); err != nil {
			return ofError(err)
		}
	}
	if j.IsSuspended() {
		return result{}
	}
	return result{again: j.awaitsCluster()}
}

// reportPodsLeft has Kueue admit others while Workloads of the job hold quota only for the pods that are left of a run: they
// never get ready again.
func reportPodsLeft(ctx context.Context, j *job) error {
	if !j.deps.blocksAdmission() {
		return nil
	}
	for _, wl := range j.view.Workloads {
		if !state.HoldsQuota(wl) || j.alive() && state.StoppedSince(wl).IsZero() && !(j.IsSuspended() && movedOn(j, wl) != "") ||
			apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadPodsReady) {
			continue
		}
		if err := j.deps.reporter().ReportPodsLeft(ctx, j.key, wl); err != nil {
			return err
		}
	}
	return nil
}

// startReadinessOver resets PodsReady of a Workload that is evicted, before its quota is given
// back: Kueue's scheduler writes the condition as it last saw it when it admits the
// Workload again, and would evict it at once for a recovery that is long over. The quota
// follows with the next view of the Workload. Where Kueue would admit nothing meanwhile, that waits for the last pod.
func startReadinessOver(ctx context.Context, j *job) error {
	wl := j.holdingQuota()
	if wl == nil || !j.deps.kueue.WaitsForPodsReady() || j.deps.blocksAdmission() && j.active(ctx) {
		return nil
	}
	reported, err := j.deps.reporter().Report(ctx, j.key, wl, false)
	if err != nil || !reported {
		return err
	}
	j.stopping = true
	return nil
}

// blocksAdmission reports whether Kueue admits nothing, in no queue, while a Workload that holds quota is not ready.
func (e *dependencies) blocksAdmission() bool {
	waits := e.kueue.Settings().WaitForPodsReady
	return waits != nil && ptr.Deref(waits.BlockAdmission, false)
}

// reporter returns what reports PodsReady.
func (e *dependencies) reporter() readiness.Reporter {
	return readiness.Reporter{Client: e.client, Expectations: e.expectations, Queues: e.queues, Labels: e.labels}
}
