// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/queues"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// follow brings the Workload of a suspended job in line with what jobframework does not
// compare: the queue, where quota is held, and what the job asks for beside its containers. Where
// that ends the reconcile, the event of what it did, or of the last pod that goes, brings
// the job here again.
func follow(ctx context.Context, j *job) result {
	wl := j.unfinishedWorkload()
	if wl == nil {
		if j.endedWorkload() != nil && over(j) {
			// It has ended, and needs no more than the gate.
			return result{done: true, unqueued: true, err: jobclient.MarkEnded(ctx, j.deps.client, &j.TrainJob)}
		}
		if jobclient.HasEnded(&j.TrainJob) {
			// It failed, and neither Trainer nor a Workload says so any more: the JobSet and the Workload have gone.
			j.warn(jobevents.ReasonEnded, jobevents.ActionStop, "the job has ended and its quota is given back; to run it again, delete it and create it again")
			return result{done: true, unqueued: true}
		}
		if failedStart(j) != nil {
			// jobframework lets it go when it is deleted.
			return result{}
		}
		return notYet(ctx, j)
	}
	j.deps.expectations.SawWorkload(&j.TrainJob)
	j.record.waiting = waiting{}
	if !wl.DeletionTimestamp.IsZero() {
		return result{}
	}
	if kueuelib.HasQuotaReservation(wl) && (!kueuelib.IsActive(wl) || deactivation.Pending(wl)) {
		// It is about to be evicted. It must not be replaced meanwhile: it alone says that
		// the job is not to run.
		return result{done: !kueuelib.IsEvicted(wl)}
	}
	active := j.active(ctx)
	if active && kueuelib.IsAdmitted(wl) && !kueuelib.IsEvicted(wl) {
		// Its user stopped it. Started again now, it would run new pods beside the old ones,
		// and both on one quota.
		return awaitPods(ctx, j)
	}
	if jobframework.PrebuiltWorkloadNameFor(j) != "" {
		// It is somebody else's to write, and what it says counts.
		return result{}
	}
	variants := kueuelib.HasVariants(wl)
	if variants && !kueuelib.IsActive(wl) {
		// It stays what keeps the job from running.
		return result{}
	}
	if changed := movedOn(j, wl); changed != "" && (kueuelib.HasQuotaReservation(wl) || variants) {
		// jobframework would start the job again on the quota that it had before, and variants go on queuing.
		if active {
			return awaitPods(ctx, j)
		}
		return done(requeue(ctx, j, wl, changed))
	}
	if active {
		return result{}
	}
	if !kueuelib.HasQuotaReservation(wl) && !variants {
		if updated, err := followLabels(ctx, j, wl); updated || err != nil {
			return done(err)
		}
	}
	return followSelection(ctx, j, wl)
}

// followLabels brings the queue and a first priority class to a Workload that waits, and reports whether it wrote. jobframework
// brings no queue to one that was evicted before, and no class to one whose pods have a PriorityClass.
func followLabels(ctx context.Context, j *job, wl *kueue.Workload) (bool, error) {
	waits := wl.DeepCopy()
	waits.Spec.QueueName = cmp.Or(jobframework.QueueName(j), wl.Spec.QueueName)
	if wl.Spec.PriorityClassRef != nil && !kueuelib.HasWorkloadPriorityClass(wl) && jobframework.WorkloadPriorityClassName(j) != "" {
		if err := jobframework.PrepareWorkloadPriority(ctx, j.deps.client, j.Object(), waits, nil); err != nil {
			return false, fmt.Errorf("finding the priority of Workload %s: %w", client.ObjectKeyFromObject(wl), err)
		}
	}
	if equality.Semantic.DeepEqual(waits.Spec, wl.Spec) {
		return false, nil
	}
	if err := j.deps.client.Update(ctx, waits); err != nil {
		return false, fmt.Errorf("updating Workload %s to the labels of its TrainJob: %w", client.ObjectKeyFromObject(wl), err)
	}
	ctrl.LoggerFrom(ctx).Info("Updated the Workload to the labels of TrainJob")
	return true, nil
}

// awaitPods ends the look at a job that was stopped until its pods are gone. Kueue need not wait for them where it does not go on
// with this Workload.
func awaitPods(ctx context.Context, j *job) result {
	return result{done: true, again: retrySlowly, err: reportPodsLeft(ctx, j)}
}

// movedOn says which of the job's labels are not for the Workload that holds quota, or
// nothing. Kueue takes no priority class for one that was admitted without. One with another
// time limit jobframework would delete, and its quota with it, while pods are left. Where concurrent admission has copied
// it into variants, these keep the class that it had.
func movedOn(j *job, wl *kueue.Workload) string {
	if wl.Spec.QueueName != jobframework.QueueName(j) {
		return "The queue changed; the job queues again"
	}
	switch class := jobframework.WorkloadPriorityClassName(j); {
	case class != "" && !kueuelib.HasWorkloadPriorityClass(wl):
		return "The job got a priority class; it queues again"
	case class != "" && kueuelib.HasVariants(wl) && class != wl.Spec.PriorityClassRef.Name:
		return "The job got another priority class; it queues again"
	}
	if !state.SameTimeLimit(wl, &j.TrainJob) {
		return "The time limit changed; the job queues again"
	}
	return ""
}

// followSelection updates a Workload that waits. One that holds quota holds it for the
// wrong nodes perhaps, so it is given up and the job queues again.
func followSelection(ctx context.Context, j *job, wl *kueue.Workload) result {
	podSets, err := j.describe(ctx)
	if err != nil {
		return dropUnfit(ctx, j, wl, err)
	}
	variants := kueuelib.HasVariants(wl)
	if (!variants || podset.SameResources(podSets, wl.Spec.PodSets)) &&
		(len(podSets) != len(wl.Spec.PodSets) || podset.SameSelection(podSets, wl.Spec.PodSets)) {
		return result{}
	}
	if variants || kueuelib.HasQuotaReservation(wl) {
		return done(requeue(ctx, j, wl, "What this job asks for changed; it queues again"))
	}
	waits := wl.DeepCopy()
	if err := setPodSets(ctx, j, waits, podSets); err != nil {
		return done(err)
	}
	if err := j.deps.client.Update(ctx, waits); err != nil {
		return done(fmt.Errorf("updating Workload %s to what its TrainJob asks for: %w", client.ObjectKeyFromObject(wl), err))
	}
	ctrl.LoggerFrom(ctx).Info("Updated the Workload to what TrainJob asks for")
	return done(nil)
}

// setPodSets replaces the PodSets of a Workload that waits, and its priority where that is the one of the former pods by the
// one of these. What a WorkloadPriorityClass or an admin has said stays.
func setPodSets(ctx context.Context, j *job, wl *kueue.Workload, podSets []kueue.PodSet) error {
	former := wl.DeepCopy()
	wl.Spec.PodSets = podSets
	if jobframework.WorkloadPriorityClassName(j.Object()) != "" {
		return nil
	}
	err := jobframework.PrepareWorkloadPriority(ctx, j.deps.client, j.Object(), former, nil)
	if apierrors.IsNotFound(err) || err == nil && (!equality.Semantic.DeepEqual(former.Spec.PriorityClassRef, wl.Spec.PriorityClassRef) ||
		ptr.Deref(former.Spec.Priority, 0) != ptr.Deref(wl.Spec.Priority, 0)) {
		return nil
	}
	if err == nil {
		err = jobframework.PrepareWorkloadPriority(ctx, j.deps.client, j.Object(), wl, nil)
	}
	if err != nil {
		return fmt.Errorf("finding the priority of the pods of Workload %s: %w", client.ObjectKeyFromObject(wl), err)
	}
	return nil
}

// requeue deletes the Workload as we know it; jobframework makes another.
func requeue(ctx context.Context, j *job, wl *kueue.Workload, why string) error {
	if err := jobclient.GiveUpWorkload(ctx, j.deps.client, wl); err != nil {
		return err
	}
	j.tell(jobevents.ReasonRequeued, jobevents.ActionDescribe, "%s", why)
	return nil
}

// unfinishedWorkload returns the job's own Workload, or nil.
func (o *observed) unfinishedWorkload() *kueue.Workload {
	for _, wl := range o.workloads() {
		if !kueuelib.IsFinished(wl) {
			return wl
		}
	}
	return nil
}

// endedWorkload returns the Workload of a job that has ended, whatever Trainer makes of it
// since; nil if the job has another one.
func (o *observed) endedWorkload() *kueue.Workload {
	workloads := o.workloads()
	if o.unfinishedWorkload() != nil || !slices.ContainsFunc(workloads, state.Ended) {
		return nil
	}
	return workloads[len(workloads)-1]
}

// retryRoute is how often a job of MultiKueue is looked at whose queue leads to no other cluster: of
// queues and their checks no event comes here.
const retryRoute = time.Minute

// unfit reports whether err says that a job could not use quota, whatever the cluster has:
// people have to change the TrainJob, its runtime or its queue.
func unfit(err error) bool {
	return errors.Is(err, podset.ErrCannotRun) || errors.Is(err, patch.ErrInvalidPatches) || errors.Is(err, queues.ErrNoOtherCluster)
}

// dropUnfit takes the Workload of a job that waits and could not run: the webhook saw it as
// something else, or was away. PodSets tells the user, and keeps another from being made.
// A job whose runtime is gone for a moment keeps its place in the queue, but no quota.
func dropUnfit(ctx context.Context, j *job, wl *kueue.Workload, why error) result {
	lost := podsets.RuntimeMissing(why) && kueuelib.HasQuotaReservation(wl)
	if !unfit(why) && !lost || !kueuelib.IsActive(wl) || deactivation.Pending(wl) {
		// jobframework asks again and reports it.
		return result{}
	}
	j.warn(jobevents.ReasonNotDescribed, jobevents.ActionDescribe, "%v", why)
	return done(jobclient.GiveUpWorkload(ctx, j.deps.client, wl))
}

// retryPrebuilt is how soon a TrainJob is looked at again that waits for its prebuilt Workload, longestPrebuilt how often one
// that has waited for long. No event of that tells whose it is before it has an owner.
const (
	retryPrebuilt   = 5 * time.Second
	longestPrebuilt = time.Minute
)

// prebuiltOf returns the Workload that somebody made for the job, or nil where the job names none or
// it is missing.
func prebuiltOf(ctx context.Context, j *job) (*kueue.Workload, error) {
	name := jobframework.PrebuiltWorkloadNameFor(j)
	if name == "" {
		return nil, nil
	}
	return state.ReadWorkload(ctx, j.deps.client, "prebuilt Workload", client.ObjectKey{Namespace: j.Namespace, Name: name})
}

// asPrebuilt returns the PodSets of job's prebuilt Workload in place of its own where these
// differ only in tolerations that are added to its pods: jobframework would finish the
// Workload. The pods get them at the start all the same. Of one that is charged for something
// else it returns none: jobframework does not compare all of that, and has to finish it.
func asPrebuilt(ctx context.Context, j *job, own []kueue.PodSet) ([]kueue.PodSet, error) {
	wl, err := prebuiltOf(ctx, j)
	if err != nil || wl == nil {
		return own, err
	}
	difference := podset.Difference(own, wl.Spec.PodSets, j.deps.TolerationRules)
	switch {
	case otherTopology(own, wl) != "", difference != "" && !podset.SameResources(own, wl.Spec.PodSets), claimsForOthers(&j.observed, wl):
		return nil, nil
	case difference != "":
		return own, nil
	}
	return wl.DeepCopy().Spec.PodSets, nil
}

// claimsForOthers reports whether a Workload that others own claims devices by a template: as long as it is not the job's, the
// policies let the template be replaced that it was charged for.
func claimsForOthers(j *observed, wl *kueue.Workload) bool {
	return slices.ContainsFunc(wl.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.UID != j.UID }) &&
		slices.ContainsFunc(wl.Spec.PodSets, func(ps kueue.PodSet) bool {
			return slices.ContainsFunc(ps.Template.Spec.ResourceClaims, func(claim corev1.PodResourceClaim) bool { return claim.ResourceClaimTemplateName != nil })
		})
}

// otherTopology says in what topology a prebuilt Workload asks for another one than its job. A copy has what the manager
// cluster of MultiKueue goes by, and would be made again and again.
func otherTopology(own []kueue.PodSet, wl *kueue.Workload) string {
	if placeholder.IsCopy(wl) {
		return ""
	}
	return podset.TopologyDifference(own, wl.Spec.PodSets)
}

// tellPrebuilt says why a job cannot use the prebuilt Workload that it names, and what to do.
func tellPrebuilt(ctx context.Context, j *job) error {
	wl, err := prebuiltOf(ctx, j)
	if err != nil {
		return err
	}
	tell := func(format string, args ...any) {
		j.warn(jobevents.ReasonPrebuilt, jobevents.ActionDescribe, "prebuilt Workload %s %s", jobframework.PrebuiltWorkloadNameFor(j), fmt.Sprintf(format, args...))
	}
	if wl == nil {
		tell("is not there; create it in namespace %s, and the job queues", j.Namespace)
		return nil
	}
	if owner := metav1.GetControllerOfNoCopy(wl); owner != nil && !state.IsControlledBy(wl, &j.TrainJob) {
		tell("belongs to %s %s; create another, and the TrainJob again with its name", owner.Kind, owner.Name)
		return nil
	}
	own, err := j.describe(ctx)
	if err != nil {
		// PodSets tells why.
		return nil
	}
	difference := cmp.Or(podset.Difference(own, wl.Spec.PodSets, j.deps.TolerationRules), otherTopology(own, wl))
	if difference == "" && !state.SameTimeLimit(wl, &j.TrainJob) {
		difference = "spec.maximumExecutionTimeSeconds is not what the TrainJob's label says"
	}
	switch {
	case difference != "":
		tell("is not what this TrainJob is: %s; delete the Workload and create it like the TrainJob", difference)
	case claimsForOthers(&j.observed, wl):
		tell("claims devices, and has other owners; delete it and create it without owners")
	case kueuelib.IsFinished(wl):
		tell("is finished; create another, and the TrainJob again with its name")
	}
	return nil
}
