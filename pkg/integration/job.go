// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/peers"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// job is a TrainJob in the eyes of Kueue's jobframework, for one reconcile.
type job struct {
	observed

	deps *dependencies
	// decision is what jobframework's look came to.
	decision decision
	// stopping is set when this reconcile suspended the job.
	stopping bool
	// described remembers the PodSets within this reconcile.
	described []kueue.PodSet
	// podsThere remembers within this reconcile whether pods may be there.
	podsThere *podsAnswer
}

// decision is what jobframework's look at a job came to.
type decision struct {
	// made is set when jobframework looked, err is what kept it from what it had to do.
	made bool
	err  error
	// started says where the job was sent, if it was started.
	started string
	// excess is in what the JobSet asks for more than Trainer would make of the job now; the
	// job did not start for it.
	excess string
	// again is when to look again for what no event tells of, 0 is never.
	again time.Duration
}

var (
	_ jobframework.GenericJob             = (*job)(nil)
	_ jobframework.JobWithCustomStop      = (*job)(nil)
	_ jobframework.JobWithReclaimablePods = (*job)(nil)
	_ jobframework.TopLevelJob            = (*job)(nil)
)

func (j *job) Object() client.Object { return &j.TrainJob }

func (j *job) GVK() schema.GroupVersionKind { return trainjob.GVK }

// IsTopLevel implements jobframework.TopLevelJob: whatever owner a tenant names, its Workload is the job's own.
func (j *job) IsTopLevel() bool { return true }

func (j *job) IsSuspended() bool { return j.Suspended() }

func (j *job) Suspend() { j.Spec.Suspend = ptr.To(true) }

// describe returns the PodSets of the effective TrainJob, as jobframework compares them, or why it could not run. The list
// is the caller's.
func (j *job) describe(ctx context.Context) ([]kueue.PodSet, error) {
	if j.described == nil {
		if err := j.deps.queues.Reachable(ctx, &j.TrainJob, j.deps.Runtimes.Served); err != nil {
			return nil, err
		}
		podSets, err := j.deps.PodSets(ctx, &j.TrainJob)
		if err != nil {
			return nil, err
		}
		j.described = (&kueue.WorkloadSpec{PodSets: podSets}).DeepCopy().PodSets
		jobframework.SanitizePodSets(j.described)
	}
	return (&kueue.WorkloadSpec{PodSets: j.described}).DeepCopy().PodSets, nil
}

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
	} else if j.podsThere.release = releases(ctx, j); j.podsThere.release != nil {
		pods, err := j.pods().Left(ctx)
		j.podsThere.may = err != nil || len(pods) > 0 || !j.TrainJob.Finished() && !notStarted(ctx, j.deps, &j.TrainJob)
	}
	return j.podsThere.may
}

// PodSets describes the pods that Trainer creates for the job. A job that runs is
// described by its Workload: what it runs was decided at its start, and neither an
// edited runtime nor a newer rendering library may make it look like another job. So is one
// that has ended, and one that was evicted, until its quota is free: then jobframework brings the Workload up
// to date, where before it would delete it, and a deactivation would be forgotten.
func (j *job) PodSets(ctx context.Context, _ client.Client) ([]kueue.PodSet, error) {
	wl := j.holdingQuota()
	if wl != nil && (!j.IsSuspended() || j.TrainJob.Finished() || kueuelib.IsEvicted(wl) || !wl.DeletionTimestamp.IsZero() || j.active(ctx)) {
		return wl.DeepCopy().Spec.PodSets, nil
	}
	if ended := j.endedWorkload(); ended != nil {
		return ended.DeepCopy().Spec.PodSets, nil
	}
	podSets, err := j.describe(ctx)
	if err == nil {
		j.deps.Recorder.Resolve(j.UID, jobevents.ReasonNotDescribed)
		return asPrebuilt(ctx, j, podSets)
	}
	if wl := j.unfinishedWorkload(); wl != nil && !wl.DeletionTimestamp.IsZero() {
		// jobframework compares before it lets a deleted Workload go, and its quota with it.
		return wl.DeepCopy().Spec.PodSets, nil
	}
	j.warn(jobevents.ReasonNotDescribed, jobevents.ActionDescribe, "%v", err)
	if errors.Is(err, queues.ErrNoOtherCluster) {
		j.decision.again = retryRoute
	}
	if podsets.RuntimeMissing(err) || unfit(err) {
		// The user has to act; trying again before something changes is of no use.
		return nil, jobframework.UnretryableError(err.Error())
	}
	return nil, err
}

// RunWithPodSetsInfo places the job by its admission, which the API server has to
// confirm: pods must not be bound on the word of a cache that is behind. The child Jobs
// are brought to the placement here; entry and suspend are set on the object, which
// jobframework then writes, in as many requests as Trainer wants (jobclient). A job that runs
// in another cluster is placed there.
func (j *job) RunWithPodSetsInfo(ctx context.Context, _ client.Client, infos []kueuelib.PodSetInfo) error {
	if err := j.deps.trainer.Rollout.Check(ctx, j.deps.client, j.deps.Runtimes, j.deps.Field, &j.TrainJob); err != nil {
		return err
	}
	wl := j.holdingQuota()
	if wl == nil {
		return errOutdated
	}
	if err := confirm(ctx, j.deps.live, wl); err != nil {
		return err
	}
	if j.ManagedExternally() {
		if j.jobSet() != nil {
			// A Trainer that does not read spec.managedBy has made it, and may be at work still.
			return peers.ErrRollingOut
		}
		j.Spec.Suspend = ptr.To(false)
		j.decision.started = dispatchedMessage(wl)
		return nil
	}
	if err := startable(ctx, j, wl); err != nil {
		return err
	}
	podSets, err := j.describe(ctx)
	if err != nil {
		return err
	}
	placements, err := podset.Place(podSets, infos)
	if err != nil {
		j.warn(jobevents.ReasonPlacementError, jobevents.ActionStart, "%v", err)
		return err
	}
	started := j.DeepCopy()
	j.deps.Field.Set(&started.Spec, placements)
	if err := placeChildJobs(ctx, j, started); err != nil {
		return err
	}
	j.Spec = started.Spec
	j.Spec.Suspend = ptr.To(false)
	j.decision.started = placedMessage(wl)
	return nil
}

// RestorePodSetsInfo implements jobframework.GenericJob. Stop does its work.
func (j *job) RestorePodSetsInfo(context.Context, []kueuelib.PodSetInfo) bool { return false }

// Stop suspends the job at once and, when none of its pods is left, brings our entry
// back to the gate: before jobframework gives the quota away, so that nobody can run
// the old placement without it. It reports whether this call suspended the job.
//
// A running job is not stopped for the want of an admission that only our cache has not
// heard of, nor for an eviction that is over. What a running job is comes from its
// Workload, so an admitted one matches, unless its time limit is another.
//
// While pods are left, a Workload that is deleted keeps its finalizer, and with it the
// quota: that is what errStillActive is for.
func (j *job) Stop(ctx context.Context, _ client.Client, _ []kueuelib.PodSetInfo, reason jobframework.StopReason, _ string) (bool, error) {
	stopped := !j.IsSuspended()
	if stopped && reason != jobframework.StopReasonWorkloadDeleted {
		admitted, err := stillAdmitted(ctx, j.deps.live, &j.TrainJob)
		if err != nil {
			return false, err
		}
		if admitted {
			return false, errOutdated
		}
	}
	if stopped {
		if err := suspendNow(ctx, j, stopReason(j, reason)); err != nil {
			return false, err
		}
	}
	if reason == jobframework.StopReasonWorkloadEvicted {
		if err := startReadinessOver(ctx, j); err != nil {
			return stopped, err
		}
	}
	if j.active(ctx) {
		return stopped, cmp.Or(reportPodsLeft(ctx, j), keepsQuota(j, reason))
	}
	if err := gateStopped(ctx, j); err != nil {
		return stopped, err
	}
	if err := finishDeactivation(ctx, j); err != nil {
		return stopped, err
	}
	letQuotaGo(ctx, j)
	return stopped, forgetDone(ctx, j)
}

// letQuotaGo takes note that nothing keeps the quota of a job that gives it back any more.
func letQuotaGo(ctx context.Context, j *job) {
	if j.podsThere == nil || j.podsThere.release == nil {
		return
	}
	release := j.podsThere.release
	ctrl.LoggerFrom(ctx).Info("Found no pod left and let the quota go", "reason", release.why)
	j.record.start.quotaGoes(release.workload)
	if release.deleted {
		j.deps.ledger.Leave(release.workload)
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

// Finished implements jobframework.GenericJob, with the message of the TrainJob.
func (j *job) Finished(context.Context) (message string, success, finished bool) {
	end := ptr.Deref(j.end(trainer.TrainJobComplete, trainer.TrainJobFailed), metav1.Condition{})
	return end.Message, end.Type == trainer.TrainJobComplete, end.Type != ""
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
	return max(0, admittedAt(wl).Add(clusterTells).Sub(j.view.At))
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

// lastingSuccesses returns how many child Jobs of each replicated job have succeeded for good: JobSet runs one again
// that was deleted before it had, and the policies let nobody delete it afterwards.
func lastingSuccesses(ctx context.Context, j *job, js *jobsetapi.JobSet) ([]trainer.JobStatus, error) {
	succeeded := map[string]int32{}
	err := eachChildJob(ctx, j.deps.live, js, func(child *batchv1.Job) {
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
