// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"
	controllerconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobmetrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/peers"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
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

func (j *job) Object() client.Object        { return &j.TrainJob }
func (j *job) GVK() schema.GroupVersionKind { return trainjob.GVK }
func (j *job) IsSuspended() bool            { return j.Suspended() }
func (j *job) Suspend()                     { j.Spec.Suspend = ptr.To(true) }

// IsTopLevel implements jobframework.TopLevelJob: whatever owner a tenant names, its Workload is the job's own.
func (j *job) IsTopLevel() bool { return true }

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
	if stands, err := state.AdmissionStands(ctx, j.deps.live, wl); err != nil || !stands {
		return cmp.Or(err, errOutdated)
	}
	if j.ManagedExternally() {
		if j.jobSet() != nil {
			// A Trainer that does not read spec.managedBy has made it, and may be at work still.
			return peers.ErrRollingOut
		}
		j.Spec.Suspend = ptr.To(false)
		j.decision.started = jobevents.Dispatched(wl)
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
	j.decision.started = jobevents.Placed(wl)
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
		admitted, err := state.StillAdmitted(ctx, j.deps.live, &j.TrainJob)
		if err != nil {
			return false, err
		}
		if admitted {
			return false, errOutdated
		}
	}
	if stopped {
		if err := suspendNow(ctx, j, jobmetrics.StopReason(j.holdingQuota(), reason)); err != nil {
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

// Finished implements jobframework.GenericJob, with the message of the TrainJob.
func (j *job) Finished(context.Context) (message string, success, finished bool) {
	end := ptr.Deref(j.end(trainer.TrainJobComplete, trainer.TrainJobFailed), metav1.Condition{})
	return end.Message, end.Type == trainer.TrainJobComplete, end.Type != ""
}

// alignWithWorkload changes this view of the job, and nothing that is stored, to what its Workload says, where jobframework would
// otherwise return before it releases quota: it ignores a job without a queue label, and it writes an admission gate back that an
// admin removed from the Workload, which Kueue refuses. keepPriority does the same for the priority class.
func alignWithWorkload(ctx context.Context, j *job) result {
	wl := j.unfinishedWorkload()
	if wl == nil || !state.HoldsQuota(wl) && wl.DeletionTimestamp.IsZero() {
		return keepPriority(ctx, j)
	}
	const gate = kueueconstants.AdmissionGatedByAnnotation
	if len(j.Annotations) > 0 && j.Annotations[gate] != wl.Annotations[gate] {
		// Not deleted: a start tests whether there are annotations.
		metav1.SetMetaDataAnnotation(&j.ObjectMeta, gate, wl.Annotations[gate])
	}
	// Of a suspended job that left its queue, follow releases a Workload that neither ends nor is deactivated.
	followed := j.phase() == phaseSuspended && wl.DeletionTimestamp.IsZero() && kueuelib.IsActive(wl) && !deactivation.Pending(wl)
	if jobframework.QueueName(j) == "" && wl.Spec.QueueName != "" && !followed {
		metav1.SetMetaDataLabel(&j.ObjectMeta, controllerconstants.QueueLabel, string(wl.Spec.QueueName))
	}
	return keepPriority(ctx, j)
}

// keepPriority has jobframework leave the priority of a job alone whose label names a class that is not
// there. It looks for that before it does anything else with a Workload, so that it could not even stop
// the job. Only this view of the job is changed, and not for a start, which is for what the job says:
// that fails, and the quota goes back.
func keepPriority(ctx context.Context, j *job) result {
	class := jobframework.WorkloadPriorityClassName(j.Object())
	if class == "" {
		return result{}
	}
	missing := j.deps.client.Get(ctx, client.ObjectKey{Name: class}, &kueue.WorkloadPriorityClass{})
	if !apierrors.IsNotFound(missing) {
		return ofError(missing)
	}
	wl := j.unfinishedWorkload()
	if wl == nil || j.phase() == phaseSuspended && state.MayRun(wl) && wl.DeletionTimestamp.IsZero() {
		return result{}
	}
	delete(j.Labels, controllerconstants.WorkloadPriorityClassLabel)
	if kueuelib.HasWorkloadPriorityClass(wl) {
		j.Labels[controllerconstants.WorkloadPriorityClassLabel] = wl.Spec.PriorityClassRef.Name
	}
	if jobframework.WorkloadPriorityClassName(j.Object()) != class {
		tellClassMissing(j, missing)
		return result{again: longestClass}
	}
	return result{}
}

// tellClassMissing tells the user of a priority class that is not there.
func tellClassMissing(j *job, missing error) {
	j.warn(jobevents.ReasonNoPriority, jobevents.ActionQueue,
		"keeps the priority that it has, if any: %v; ask an admin to create it, or name another one", missing)
}

// keepTimeLimit has jobframework take a job for the one of wl though its time limit was changed: it would make another
// Workload of it, which nobody has deactivated. Only this view of the job is changed.
func keepTimeLimit(j *job, wl *kueue.Workload) {
	delete(j.Labels, controllerconstants.MaxExecTimeSecondsLabel)
	if limit := wl.Spec.MaximumExecutionTimeSeconds; limit != nil {
		metav1.SetMetaDataLabel(&j.ObjectMeta, controllerconstants.MaxExecTimeSecondsLabel, strconv.Itoa(int(*limit)))
	}
}
