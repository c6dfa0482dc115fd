// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// driftPatience is how long a JobSet may be seen in another state than Trainer says,
// before we look twice: our views of TrainJob and JobSet come from two watches.
const driftPatience = 2 * time.Second

// jobSetPatience is how long JobSet may take to suspend the Jobs of a JobSet that is suspended.
const jobSetPatience = 10 * time.Second

// correctDrift stops and starts what Trainer cannot. Trainer 2.1 and 2.2 render the JobSet
// from the runtime as it is now, 2.3 from a snapshot that people may edit, and JobSet refuses
// all of that, suspend included, when either was edited beyond what may change in a JobSet:
// an image is enough. Trainer still reports the TrainJob as suspended, or resumed. So an
// evicted job would run on, and an admitted one hold its quota without a pod, until somebody
// undoes the edit.
func correctDrift(ctx context.Context, j *job) result {
	js := j.jobSet()
	switch {
	case js == nil || !js.DeletionTimestamp.IsZero():
		return result{}
	case !j.IsSuspended() && !j.alive():
		// What is deleted and kept by a finalizer, or has failed, is stopped like any other, and not started.
		return result{}
	case j.TrainJob.Finished() && (comesBack(j) == nil || js.Status.TerminalState != ""):
		return result{}
	}
	since, again := saidSince(j)
	if since.IsZero() {
		return result{again: again}
	}
	follows, patience := ptr.Deref(js.Spec.Suspend, false) == j.IsSuspended(), driftPatience
	var jobs []batchv1.Job
	if follows {
		jobs, patience = slices.DeleteFunc(j.childJobs(), func(child batchv1.Job) bool {
			return ptr.Deref(child.Spec.Suspend, false) || podset.JobEnded(&child) || !child.DeletionTimestamp.IsZero()
		}), jobSetPatience
		if !j.IsSuspended() || len(jobs) == 0 {
			return result{}
		}
	}
	if !managed(j) {
		return result{}
	}
	// Every start and stop comes by here; only what lasts is worth asking the API server.
	if wait := time.Until(since.Add(patience)); wait > 0 {
		return result{again: wait}
	}
	// Our view of the Jobs may be newer than that of what has them run again.
	if current, err := state.AreCurrent(ctx, j.deps.live, &j.TrainJob, js); err != nil || !current {
		return result{again: driftPatience, err: err}
	}
	switch {
	case follows:
		return ofError(suspendChildJobs(ctx, j, js, jobs))
	case j.IsSuspended():
		return ofError(suspendJobSet(ctx, j, js))
	}
	if predates, err := snapshotPredatesJobSet(ctx, j, js); err != nil {
		return ofError(err)
	} else if predates {
		// Trainer tries again until it is heard, unless it renders another JobSet of the same snapshot: since its own
		// gates or its release have changed. Then it says that JobSet refused it.
		resumed := slices.MaxFunc([]time.Time{since, js.CreationTimestamp.Time}, time.Time.Compare)
		refusal, again, err := j.deps.refusals.Last(ctx, j.Namespace, trainjob.GVK.Kind, []types.UID{j.UID}, resumed, time.Time{})
		if refusal == "" || err != nil {
			return result{again: cmp.Or(again, jobSetPatience), err: err}
		}
	}
	suspended := apimeta.FindStatusCondition(js.Status.Conditions, string(jobsetapi.JobSetSuspended))
	if suspended == nil || suspended.Status != metav1.ConditionTrue || suspended.LastTransitionTime.After(since) {
		// By somebody else, and for them to resume.
		return result{}
	}
	return ofError(restart(ctx, j, js))
}

// saidSince returns since when Trainer says what the spec of the job does, or the zero time and when to look again. What Trainer
// says brings the job here by itself; one that never says that a job is suspended is not waited for.
func saidSince(j *job) (since time.Time, again time.Duration) {
	if trainerAgrees(j) {
		return apimeta.FindStatusCondition(j.Status.Conditions, trainer.TrainJobSuspended).LastTransitionTime.Time, 0
	}
	if !j.IsSuspended() {
		return time.Time{}, 0
	}
	silent := j.deps.expectations.ChangedBy(&j.TrainJob).Add(trainerSilent)
	if wait := time.Until(silent); wait > 0 {
		return time.Time{}, wait
	}
	return silent, 0
}

// restart has the JobSet made again, unless what Trainer would make is not what the job was
// admitted for: then it is for Kueue to decide again.
func restart(ctx context.Context, j *job, js *jobsetapi.JobSet) error {
	matches := true
	if wl := j.holdingQuota(); wl != nil {
		podSets, err := j.deps.PodSets(ctx, &j.TrainJob)
		// Where its runtime is missing nothing can be made of it, so nothing exceeds the quota.
		if err != nil && !podsets.RuntimeMissing(err) {
			return err
		}
		matches = err != nil || podset.SameResources(podSets, wl.Spec.PodSets)
	}
	if matches {
		return renewJobSet(ctx, j, js, fmt.Sprintf("Trainer could not start JobSet %s, as after an edit of its runtime", js.Name))
	}
	if err := suspend(ctx, j, false, metrics.StopRuntimeChanged); err != nil {
		return err
	}
	j.tell(jobevents.ReasonRequeued, jobevents.ActionStart,
		"Its runtime asks for other resources than the job was admitted for; it queues again")
	return nil
}

// snapshotPredatesJobSet reports whether Trainer renders the JobSet from the runtime that it was made of.
// Trainer 2.3 does, unless an older one made the JobSet: then the snapshot is of the
// runtime as it was found after the upgrade, which often brings another image.
func snapshotPredatesJobSet(ctx context.Context, j *job, js *jobsetapi.JobSet) (bool, error) {
	if j.deps.Runtimes.Served < trainjob.Trainer23 {
		return false, nil
	}
	taken, err := j.deps.Runtimes.SnapshotTaken(ctx, &j.TrainJob)
	return !taken.After(js.CreationTimestamp.Time), err
}

// suspendJobSet writes the one field that Trainer would have written.
func suspendJobSet(ctx context.Context, j *job, js *jobsetapi.JobSet) error {
	suspended := js.DeepCopy()
	suspended.Spec.Suspend = ptr.To(true)
	if err := j.deps.client.Patch(ctx, suspended, client.MergeFrom(js)); err != nil {
		return client.IgnoreNotFound(err)
	}
	j.tell(jobevents.ReasonJobSetSuspended, jobevents.ActionStop,
		"Trainer has not suspended JobSet %s, as after an edit of its runtime or snapshot, or when its controller fails (its events on the TrainJob, or its log, say why): it was suspended for Trainer", js.Name)
	return nil
}

// suspendChildJobs stops the Jobs that JobSet should have stopped. JobSet makes what is missing, Jobs, their volumes and the
// Service, before it suspends what is there: where it cannot, it gets no further.
func suspendChildJobs(ctx context.Context, j *job, js *jobsetapi.JobSet, jobs []batchv1.Job) error {
	var failed error
	for i := range jobs {
		// Whatever else is changed of it meanwhile: nobody shall be able to put that off.
		suspend := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"uid":%q},"spec":{"suspend":true}}`, jobs[i].UID))
		if err := j.deps.client.Patch(ctx, jobs[i].DeepCopy(), suspend); client.IgnoreNotFound(err) != nil {
			failed = cmp.Or(failed, fmt.Errorf("suspending child Job %s: %w", client.ObjectKeyFromObject(&jobs[i]), err))
		}
	}
	if failed != nil {
		return failed
	}
	j.warn(jobevents.ReasonStopping, jobevents.ActionStop,
		"JobSet %s is suspended and its Job %s was not, so it was suspended for JobSet: look at the JobSet's events for what JobSet cannot make", js.Name, jobs[0].Name)
	return nil
}

// renewJobSet lets Trainer make the JobSet again where nothing is lost with it, and says
// why; or what there is to do where something is.
func renewJobSet(ctx context.Context, j *job, js *jobsetapi.JobSet, why string) error {
	if lost := lostWith(js, j.childJobs()); lost != "" {
		j.warn(jobevents.ReasonJobSetOutdated, jobevents.ActionStart, "%s: %s", why, remedyFor(lost))
		return nil
	}
	err := j.deps.client.Delete(ctx, js, client.Preconditions{UID: &js.UID, ResourceVersion: &js.ResourceVersion},
		// Gone only with its Jobs, so that the next ones of their names are not taken for them.
		client.PropagationPolicy(metav1.DeletePropagationForeground))
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	j.tell(jobevents.ReasonJobSetOutdated, jobevents.ActionStart,
		"%s: it is made again", why)
	return nil
}

// remedyFor says what people can do about a JobSet with which they would lose something. The policies let nobody delete it
// whose Jobs are done in part.
func remedyFor(lost string) string {
	return fmt.Sprintf("undo the edit, or delete the TrainJob, and %s with it, and create it again", lost)
}

// lostWith names what people would lose with the JobSet; empty: nothing.
func lostWith(js *jobsetapi.JobSet, jobs []batchv1.Job) string {
	if len(js.Spec.VolumeClaimPolicies) > 0 {
		// Deleted with it, they are lost. Retained, they keep JobSet's webhook from taking another JobSet: it compares
		// them with the template, which lacks what the API server and the volume's controller have set since.
		return "its volume claims"
	}
	if slices.ContainsFunc(jobs, func(child batchv1.Job) bool {
		return state.HasPods(child) || child.Status.Succeeded > 0 || podset.JobEnded(&child)
	}) {
		return "what its Jobs have done"
	}
	return ""
}

// trainerSilent is how long Trainer may take no note of a start or a stop before people
// are told: its controller may be away, and no event comes then.
const trainerSilent = 30 * time.Second

// awaitTrainer looks again at a job whose start or stop Trainer has not taken
// note of, or may still undo. It tells people when that takes long. What
// Trainer did take note of is correctDrift's.
func awaitTrainer(_ context.Context, j *job) result {
	if j.ManagedExternally() {
		return result{}
	}
	js := j.jobSet()
	if taken := j.pods().MayStillResume(&j.TrainJob, js); taken > 0 {
		return result{again: taken}
	}
	if js == nil || trainerAgrees(j) || !j.manages {
		return result{}
	}
	var behind string
	switch suspended := ptr.Deref(js.Spec.Suspend, false); {
	case suspended && !j.IsSuspended():
		behind = "is still suspended"
	case !suspended && j.IsSuspended():
		behind = "still runs"
	case suspended && state.LacksGate(js, &j.TrainJob, j.deps.Field):
		behind = "still lacks the admission gate"
	default:
		return result{}
	}
	if wait := time.Until(j.deps.expectations.ChangedBy(&j.TrainJob).Add(trainerSilent)); wait > 0 {
		return result{again: wait}
	}
	j.warn(jobevents.ReasonTrainerSilent, jobevents.ActionWrite,
		"JobSet %s %s although the TrainJob says otherwise: Trainer has not taken note of it for %s; look at Trainer's controller and its log", js.Name, behind, trainerSilent)
	return result{again: trainerSilent}
}

// trainerAgrees reports whether Trainer says of the job what its spec says.
func trainerAgrees(j *job) bool {
	said := apimeta.FindStatusCondition(j.Status.Conditions, trainer.TrainJobSuspended)
	return said != nil && (said.Status == metav1.ConditionTrue) == j.IsSuspended()
}
