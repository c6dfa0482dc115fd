// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// leaveAlone ends the look at a TrainJob that is none of Kueue's because of its namespace, by managedJobsNamespaceSelector.
// Where the selector, or the labels of the namespace, were others before, nothing is stopped for that: what has quota
// keeps it to its end, and what began without any goes on. What waits loses its Workload, and then the gate.
func leaveAlone(ctx context.Context, j *job) result {
	if j.UID == "" || !j.unmanaged && len(j.view.Workloads) > 0 {
		return result{}
	}
	if !j.unmanaged {
		began, err := beganUnmanaged(ctx, j)
		return result{done: began, err: err}
	}
	if former := awaitPodsOfFormer(ctx, j); former.ends() {
		return former
	}
	workloads := j.workloads()
	if !j.alive() || !j.deps.expectations.Satisfied(&j.TrainJob) {
		return result{done: len(workloads) == 0}
	}
	if slices.ContainsFunc(workloads, func(wl *kueue.Workload) bool {
		return !wl.DeletionTimestamp.IsZero() && (wl.Spec.QueueName != "" || state.HoldsQuota(wl)) || state.HoldsQuota(wl) && (!j.IsSuspended() || j.active(ctx))
	}) {
		return result{}
	}
	for _, wl := range workloads {
		if !wl.DeletionTimestamp.IsZero() && controllerutil.ContainsFinalizer(wl, kueue.ResourceInUseFinalizerName) {
			// jobframework lets it go of jobs with a queue alone.
			return done(client.IgnoreNotFound(kueuelib.RemoveFinalizer(ctx, j.deps.client, wl.DeepCopy())))
		}
		if wl.DeletionTimestamp.IsZero() && !kueuelib.IsFinished(wl) {
			return done(j.deps.deleteWorkload(ctx, wl, "deleting Workload %s of a namespace that Kueue does not manage"))
		}
	}
	if err := free(ctx, j); err != nil {
		return ofError(err)
	}
	if queue := jobframework.QueueName(j); queue != "" {
		becomes := "runs outside of all quotas"
		if j.IsSuspended() {
			becomes = "waits for nobody, and runs outside of all quotas when you set spec.suspend to false"
		} else if j.deps.Field.HoldsGate(&j.Spec) {
			becomes = "was resumed with the admission gate of its queue: set spec.suspend to true, and to false when the gate is gone"
		}
		j.warn(jobevents.ReasonNotManaged, jobevents.ActionQueue,
			"names queue %s, but Kueue does not manage namespace %s, by its managedJobsNamespaceSelector: the job %s", queue, j.Namespace, becomes)
	}
	return done(nil)
}

// beganUnmanaged reports whether a job runs since before its namespace was Kueue's: nothing was ever charged for it,
// and nothing of it was ever placed. It queues when somebody suspends it.
func beganUnmanaged(ctx context.Context, j *job) (bool, error) {
	if !j.alive() || j.IsSuspended() || j.ManagedExternally() || !j.manages {
		return false, nil
	}
	if placed, err := placedByUs(j); err != nil || placed {
		return false, err
	}
	js := j.jobSet()
	if js == nil || podset.Placed(js) {
		return false, nil
	}
	labelled, err := j.deps.queues.LabelledAt(ctx, j.key.Namespace)
	return err == nil && begun(js, j.childJobs(), labelled), err
}

// begun reports whether all that a JobSet runs had started at a time: what it has yet to make, or to resume, would ask
// for more than anybody ran then.
func begun(js *jobsetapi.JobSet, jobs []batchv1.Job, at time.Time) bool {
	pods, made := map[string]int32{}, 0
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		pods[rj.Name] = ptr.Deref(rj.Template.Spec.Parallelism, 1)
		made += int(rj.Replicas)
	}
	return len(jobs) == made && !slices.ContainsFunc(jobs, func(child batchv1.Job) bool {
		started := child.Status.StartTime
		return !podset.JobEnded(&child) && (started == nil || started.After(at) ||
			ptr.Deref(child.Spec.Parallelism, 1) > pods[child.Labels[jobsetapi.ReplicatedJobNameKey]])
	})
}

// free takes gate and placement from a job that waits for nobody any more: from its child Jobs, where JobSet leaves
// them, and from our entry, in two writes, see patch.Stamp: our webhook is not asked in such a namespace.
func free(ctx context.Context, j *job) error {
	placements, err := freed(j)
	if err != nil || len(placements) == 0 {
		return err
	}
	if js := j.jobSet(); !j.IsSuspended() {
		if j.deps.Field.Has(&j.Spec) || js == nil || !js.DeletionTimestamp.IsZero() || !ptr.Deref(js.Spec.Suspend, false) {
			return nil
		}
		// Its user resumed it between the two writes. A running TrainJob takes no patch, and removing the last label of an
		// untyped metadata leaves null, which JobSet's CRD refuses.
		return renewJobSet(ctx, j, js, fmt.Sprintf("Trainer could not take admission gate or placement from JobSet %s", js.Name))
	}
	free := j.DeepCopy()
	if !j.deps.Field.Set(&free.Spec, placements) {
		return nil
	}
	if err := patch.Stamp(free.Spec.RuntimePatches, metav1.Now()); err != nil {
		return err
	}
	if err := placeChildJobs(ctx, j, free); podsets.RuntimeMissing(err) {
		// Nor could its user resume it before there is one, which brings the job here again.
		return nil
	} else if err != nil {
		return err
	}
	without := j.DeepCopy().Spec
	j.deps.Field.Drop(&without)
	for _, spec := range []trainjob.Spec{without, free.Spec} {
		if err := j.writeSpec(ctx, spec); err != nil {
			return err
		}
	}
	ctrl.LoggerFrom(ctx).Info("Took the admission gate away")
	return nil
}

// freed returns the placements of a job without gates: of what our entry patches, or, where a former call got no
// further than to take that away, of what its JobSet keeps of it.
func freed(j *job) ([]patch.Placement, error) {
	if j.deps.Field.Has(&j.Spec) {
		return patch.AllFreed(j.deps.Field, &j.Spec)
	}
	return podset.FreedIn(j.jobSet()), nil
}

// placedByUs reports whether our entry says more than that nothing is placed.
func placedByUs(j *job) (bool, error) {
	if !j.deps.Field.Has(&j.Spec) {
		return false, nil
	}
	placements, err := patch.AllFreed(j.deps.Field, &j.Spec)
	if err != nil {
		return false, err
	}
	return j.deps.Field.Set(&j.DeepCopy().Spec, placements), nil
}
