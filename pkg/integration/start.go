// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// placeChildJobs brings the suspended child Jobs to the pod templates that Trainer makes of what the job is going to
// be, one write for each that differs. JobSet itself only ever merges into a Job that exists: left alone, the Job would
// keep its gate and the keys of earlier flavors. Jobs that do not exist yet are made from the rendered template anyway.
func placeChildJobs(ctx context.Context, j *job, next *trainjob.TrainJob) error {
	rendered, err := j.deps.Render(ctx, next)
	if err != nil {
		return err
	}
	templates := map[string]*corev1.PodTemplateSpec{}
	for i := range rendered.Spec.ReplicatedJobs {
		rj := &rendered.Spec.ReplicatedJobs[i]
		templates[rj.Name] = &rj.Template.Spec.Template
	}
	jobs := j.childJobs()
	for i := range jobs {
		template := templates[jobs[i].Labels[jobsetapi.ReplicatedJobNameKey]]
		if template == nil || podset.JobEnded(&jobs[i]) || !ptr.Deref(jobs[i].Spec.Suspend, false) {
			continue
		}
		placed, err := placeChildJob(ctx, j.deps, &jobs[i], template)
		if err != nil {
			return fmt.Errorf("placing child Job %s: %w", client.ObjectKeyFromObject(&jobs[i]), err)
		}
		if wl := j.holdingQuota(); wl != nil {
			if j.decision.excess = podset.ExcessOfJob(placed, wl.Spec.PodSets); j.decision.excess != "" {
				return errOutdated
			}
			if j.record.compared == nil {
				j.record.compared = &sets.Set[types.UID]{}
			}
			j.record.compared.Insert(placed.UID)
		}
	}
	return nil
}

// placeChildJob returns the Job as it is stored then: the caches have not what its pods request, which
// somebody's webhook may have changed, and not always the keys of the flavor that it had last, which a
// difference from what they have leaves where they are.
func placeChildJob(ctx context.Context, deps *dependencies, child *batchv1.Job, template *corev1.PodTemplateSpec) (*batchv1.Job, error) {
	known := child
	for range 2 {
		placed := known.DeepCopy()
		podset.PlaceTemplate(&placed.Spec.Template, template)
		var err error
		switch {
		case !equality.Semantic.DeepEqual(known.Spec.Template, placed.Spec.Template):
			if err = podset.WriteTemplate(ctx, deps.client, known, placed); err == nil {
				ctrl.LoggerFrom(ctx).V(2).Info("Placed child Job", "job", klog.KObj(known))
			}
		case known == child:
			// A former try got no further, or the cache is behind.
			placed = &batchv1.Job{}
			err = deps.live.Get(ctx, client.ObjectKeyFromObject(child), placed)
		}
		if apierrors.IsNotFound(err) {
			// JobSet replaces it, from the new template.
			return known, nil
		}
		if err != nil {
			return nil, err
		}
		known = placed
	}
	return known, nil
}

// excess says in what the JobSet of the job, and the Jobs that it made, ask for more than wl
// holds quota for, by a rule of package podset; empty: in nothing.
func excess(j *job, wl *kueue.Workload, rule func(*jobsetapi.JobSet, []batchv1.Job, []kueue.PodSet, []kueue.ReclaimablePod) string) string {
	js := j.jobSet()
	if js == nil || !js.DeletionTimestamp.IsZero() {
		return ""
	}
	return rule(js, j.childJobs(), wl.Spec.PodSets, wl.Status.ReclaimablePods)
}

// excessNow is excess by what the API server has.
func excessNow(ctx context.Context, j *job, wl *kueue.Workload) (string, error) {
	var js jobsetapi.JobSet
	if err := j.deps.live.Get(ctx, client.ObjectKeyFromObject(&j.TrainJob), &js); err != nil {
		return "", client.IgnoreNotFound(err)
	}
	if !js.DeletionTimestamp.IsZero() || !state.IsControlledBy(&js, &j.TrainJob) {
		return "", nil
	}
	var made []batchv1.Job
	err := state.EachChildJob(ctx, j.deps.live, &js, func(child *batchv1.Job) {
		child.Spec.Template, child.ManagedFields = corev1.PodTemplateSpec{}, nil
		made = append(made, *child)
	})
	return podset.Excess(&js, made, wl.Spec.PodSets, wl.Status.ReclaimablePods), err
}

// requeueExceeding releases the quota of a job whose JobSet asks for more, so that the job queues
// for what it really is. What was remembered of its runtime is read again: it is not what
// Trainer made the JobSet of. A Workload that somebody else made stays, deactivated; a copy is
// deleted, for MultiKueue would let what exceeds it run on.
func requeueExceeding(ctx context.Context, j *job, wl *kueue.Workload, excess string) error {
	if _, err := j.deps.Runtimes.SnapshotTaken(ctx, &j.TrainJob); err != nil {
		return err
	}
	why := fmt.Sprintf("JobSet %s asks for more than the job was admitted for: %s", j.Name, excess)
	if jobframework.PrebuiltWorkloadNameFor(j) != "" && !placeholder.IsCopy(wl) {
		return deactivate(ctx, j, wl, "cannot run on it", why)
	}
	return requeue(ctx, j, wl, why+". The job queues for that")
}

// startable returns an error where the JobSet that would be started asks for more than the
// job was admitted for. Where that is what Trainer makes of the job now, the job queues for
// it; else the JobSet is an old one, or was changed, and is replaced.
func startable(ctx context.Context, j *job, wl *kueue.Workload) error {
	excess := excess(j, wl, podset.Unstartable)
	if excess == "" {
		return nil
	}
	if _, err := j.deps.Runtimes.SnapshotTaken(ctx, &j.TrainJob); err != nil {
		return err
	}
	podSets, err := j.deps.PodSets(ctx, &j.TrainJob)
	if err != nil {
		return err
	}
	if podset.SameResources(podSets, wl.Spec.PodSets) {
		j.decision.excess = excess
		return errOutdated
	}
	return cmp.Or(requeueExceeding(ctx, j, wl, excess), errOutdated)
}

// renewEvery is how often a JobSet that asks for too much is replaced. One that is younger
// was made so on purpose, by somebody's webhook say, and would be again.
const renewEvery = time.Minute

// renewExceeding replaces a JobSet that asks for more than Trainer would make of its TrainJob.
// Where that was done already, or something would be lost with it, the job gives its quota back, and waits longer each time.
func renewExceeding(ctx context.Context, j *job) error {
	js := j.jobSet()
	if js == nil {
		return nil
	}
	why := fmt.Sprintf("JobSet %s asks for more than its TrainJob: %s", js.Name, j.decision.excess)
	if lost := lostWith(js, j.childJobs()); lost != "" {
		why = fmt.Sprintf("%s: %s", why, remedyFor(lost))
	} else if time.Since(js.CreationTimestamp.Time) > renewEvery {
		return renewJobSet(ctx, j, js, why)
	}
	wl := j.holdingQuota()
	if wl == nil {
		return nil
	}
	lacking := time.Since(state.AdmittedAt(wl))
	if placeholder.IsCopy(wl) && lacking < j.deps.startTimeout {
		return nil // MultiKueue makes the next one at once.
	}
	return releaseQuota(ctx, j, wl, why, lacking).err
}

// rolloutPatience is how long a JobSet may go without showing our part before it is made again.
const rolloutPatience = 30 * time.Second

// awaitRollout tells the user of an admitted job why it is not started, and has its JobSet
// made again when it stays without our part: where the releases render a runtime differently,
// JobSet lets the newer Trainer change nothing of it.
func awaitRollout(ctx context.Context, j *job) error {
	field, js := j.deps.Field.Path(), j.jobSet()
	if j.ManagedExternally() && js != nil {
		// An older Trainer would make it again, which nobody sees in time.
		j.tellOnce(jobevents.ReasonTrainerBehind, jobevents.ActionStart, fmt.Sprintf(
			"admitted, and starts when JobSet %s is gone: Trainer before 2.3 has made it, and would run the job in this cluster as well; delete the JobSet when Trainer 2.3 runs", js.Name))
		return nil
	}
	j.tellOnce(jobevents.ReasonTrainerBehind, jobevents.ActionStart, fmt.Sprintf(
		"admitted, and starts when the running Trainer is seen to read %s as Trainer %s does, whose TrainJob CRD is there now: the controller of another release may still be at work",
		field, j.deps.Runtimes.Served))
	if js == nil || podset.FieldOf(js) == j.deps.Field || !js.DeletionTimestamp.IsZero() || !ptr.Deref(js.Spec.Suspend, false) {
		return nil
	}
	since, patience := j.deps.expectations.WroteBy(&j.TrainJob), rolloutPatience
	if made := js.CreationTimestamp; made.After(since) {
		since = made.Time
		if wl := j.holdingQuota(); wl != nil {
			// The roll-out may never end: one that was made while it lasts stays twice as long as the last.
			patience = max(patience, made.Sub(state.AdmittedAt(wl)))
		}
	}
	if time.Since(since) < patience {
		return nil
	}
	return renewJobSet(ctx, j, js, fmt.Sprintf("Trainer has not brought %s to JobSet %s, whose runtime may have been edited since it was made", field, js.Name))
}

// ensurePlaced suspends an admitted TrainJob that somebody resumed before we could
// place it: its pods would stay gated, or run anywhere. The next reconcile starts it.
func ensurePlaced(ctx context.Context, j *job) result {
	if wl := j.holdingQuota(); wl == nil || !kueuelib.IsAdmitted(wl) || j.ManagedExternally() || !j.manages || placed(j) {
		return result{}
	}
	if err := suspend(ctx, j, false, metrics.StopNotAdmitted); err != nil {
		return ofError(err)
	}
	ctrl.LoggerFrom(ctx).Info("Suspended TrainJob that was resumed without its placement")
	return result{}
}

// placed reports whether our part is there and past the gate. Where it is not there at
// all, the JobSet tells what runs: an upgrade of Trainer that brings another field takes
// the old one from every TrainJob.
func placed(j *job) bool {
	if j.deps.Field.Has(&j.Spec) {
		return !j.deps.Field.HoldsGate(&j.Spec)
	}
	js := j.jobSet()
	return js != nil && !ptr.Deref(js.Spec.Suspend, false) && podset.Placed(js)
}

// ensureWithinQuota takes a job back that asks for more than it was admitted for. What a
// job runs is what its JobSet has, whenever that was made and of whatever: people may edit
// the snapshot of the runtime, or delete it together with the JobSet, and Trainer makes
// another one of what it finds then.
func ensureWithinQuota(ctx context.Context, j *job) result {
	if j.ManagedExternally() {
		return result{}
	}
	wl := j.holdingQuota()
	if wl == nil || !wl.DeletionTimestamp.IsZero() || !state.MayRun(wl) {
		// Where Kueue takes it back already, a deactivation stands in this Workload alone.
		return result{}
	}
	look := excessOfLaterJobs
	if excess(j, wl, podset.Excess) != "" {
		// A job is stopped for it: our view of its Jobs may be older than that of the Workload.
		look = excessNow
	}
	excess, err := look(ctx, j, wl)
	if err != nil || excess == "" {
		return ofError(err)
	}
	return ofError(requeueExceeding(ctx, j, wl, excess))
}

// excessOfLaterJobs looks once at each child Job that JobSet made after the admission, of a replicated job that depends on
// others, or in a restart: placeChildJobs has not seen it, and the caches have not what its pods request. What was made
// before this process led runs on, as its leader let it.
func excessOfLaterJobs(ctx context.Context, j *job, wl *kueue.Workload) (string, error) {
	known, seen, led := ptr.Deref(j.record.compared, nil), sets.Set[types.UID]{}, j.deps.expectations.LedSince()
	for _, child := range j.childJobs() {
		if made := child.CreationTimestamp.Time; podset.JobEnded(&child) || made.Before(state.AdmittedAt(wl)) || made.Before(led) {
			continue
		}
		if !known.Has(child.UID) {
			var stored batchv1.Job
			if err := j.deps.live.Get(ctx, client.ObjectKeyFromObject(&child), &stored); client.IgnoreNotFound(err) != nil {
				return "", err
			}
			if excess := podset.ExcessOfJob(&stored, wl.Spec.PodSets); excess != "" {
				return excess, nil
			}
		}
		seen.Insert(child.UID)
	}
	if j.record.compared = nil; len(seen) > 0 {
		j.record.compared = &seen
	}
	return "", nil
}
