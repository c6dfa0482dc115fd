// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podtracking"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// releaseCopies lets the Workloads go that MultiKueue has deleted here, with what they are charged
// handed on to a remainder where pods are left. Whoever acts for TrainJobs, this has to be done: nobody else takes
// the finalizer off.
func releaseCopies(ctx context.Context, j *job) result {
	for _, wl := range j.view.Workloads {
		released := wl.DeepCopy()
		if wl.DeletionTimestamp.IsZero() || !placeholder.OfCopy(wl) || !placeholder.Release(released) {
			continue
		}
		if owner := state.ControllerOfKind(wl, trainjob.GVK); controllerutil.ContainsFinalizer(wl, kueue.ResourceInUseFinalizerName) &&
			owner != nil && owner.UID == j.UID && j.DeletionTimestamp.IsZero() {
			// Its job is there, and stops before it goes, as in any cluster: MultiKueue deletes the job first and takes Kueue's
			// finalizer off.
			continue
		}
		rest, err := state.ReadWorkload(ctx, j.deps.live, "Workload", client.ObjectKey{Namespace: wl.Namespace, Name: placeholder.NameOf(wl)})
		if err != nil {
			return ofError(err)
		}
		// Kueue does not count one that is deactivated: others may have its quota.
		if state.HoldsQuota(wl) && wl.Status.Admission != nil && kueuelib.IsActive(wl) {
			if wait, err := ensureRemainder(ctx, j, wl, rest); err != nil || wait > 0 {
				return result{again: wait, err: err}
			}
		} else if rest != nil && rest.Labels[placeholder.Label] != "" && !kueuelib.HasQuotaReservation(rest) {
			// It was made just before Kueue deactivated the Workload. Without a charge it would be first in its queue for as long
			// as its pods last, and nobody might pass it.
			if err := jobclient.DeleteWorkload(ctx, j.deps.client, rest, "deleting Workload %s, which is charged nothing"); err != nil {
				return ofError(err)
			}
		}
		err = jobclient.PatchWorkload(ctx, j.deps.client, wl, released, "releasing Workload %s that MultiKueue deleted")
		if client.IgnoreNotFound(err) != nil {
			return ofError(err)
		}
	}
	return result{}
}

// ensureRemainder has another Workload charged for the pods that are left, rest where there is one already. It returns when to
// look again, 0 where that is done or no pod is left.
func ensureRemainder(ctx context.Context, j *job, wl, rest *kueue.Workload) (time.Duration, error) {
	if rest == nil {
		return makeRemainder(ctx, j, wl)
	}
	// When Kueue says that it does not admit a remainder, it writes that over whatever stands there, and so over what the
	// remainder is charged.
	reserved := apimeta.FindStatusCondition(rest.Status.Conditions, kueue.WorkloadQuotaReserved)
	judged := reserved != nil && reserved.Reason != kueue.WorkloadQuotaReservedReasonPendingEvaluation
	switch {
	case rest.Labels[placeholder.Label] != j.key.Name:
		// Somebody else made it, and it is charged whatever they like.
		return awaitLastPod(ctx, j, wl)
	case kueuelib.HasQuotaReservation(rest):
		return 0, nil
	case judged:
		return 0, chargeRemainder(ctx, j, wl, rest)
	case time.Since(rest.CreationTimestamp.Time).Abs() > judgedWithin:
		// Kueue may be about to judge it after all: see that the charge stays.
		return judgedSoon, chargeRemainder(ctx, j, wl, rest)
	}
	return judgedSoon, nil
}

// makeRemainder creates the Workload for the pods that are left and not charged to another one: where
// a run waits for the pods of a former one, these are.
func makeRemainder(ctx context.Context, j *job, wl *kueue.Workload) (time.Duration, error) {
	pods, err := j.pods().Left(ctx)
	if err != nil {
		return 0, err
	}
	if len(pods) == 0 {
		return awaitLastPod(ctx, j, wl)
	}
	var others kueue.WorkloadList
	if err := j.deps.client.List(ctx, &others, client.InNamespace(j.key.Namespace), client.MatchingLabels{placeholder.Label: j.key.Name}); err != nil {
		return 0, fmt.Errorf("listing the remainders of TrainJob %s: %w", j.key, err)
	}
	pods = placeholder.Uncharged(pods, others.Items)
	if len(pods) == 0 {
		return 0, nil
	}
	queue := &kueue.ClusterQueue{}
	err = j.deps.client.Get(ctx, client.ObjectKey{Name: string(wl.Status.Admission.ClusterQueue)}, queue)
	if apierrors.IsNotFound(err) {
		// There is no quota to be kept.
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading ClusterQueue %s: %w", wl.Status.Admission.ClusterQueue, err)
	}
	rest := placeholder.Of(wl, queue, j.key.Name, pods)
	err = j.deps.client.Create(ctx, rest)
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
		// A namespace that is deleted, or a quota for objects: then the Workload itself has to stay.
		ctrl.LoggerFrom(ctx).V(1).Info("Could not hand the quota of pods that are left to another Workload", "remainder", klog.KObj(rest), "error", err)
		return awaitLastPod(ctx, j, wl)
	}
	if err != nil {
		return 0, fmt.Errorf("creating the remainder of Workload %s: %w", client.ObjectKeyFromObject(wl), err)
	}
	return judgedSoon, nil
}

// awaitLastPod returns when to look again for the pods of a Workload that nothing is charged for in
// its place, 0 when none is left and none comes.
func awaitLastPod(ctx context.Context, j *job, wl *kueue.Workload) (time.Duration, error) {
	wait, _, err := j.pods().AwaitLast(ctx, &j.TrainJob, wl.DeletionTimestamp.Time)
	return wait, err
}

func chargeRemainder(ctx context.Context, j *job, wl, rest *kueue.Workload) error {
	charged := rest.DeepCopy()
	charged.Status = placeholder.Charge(wl)
	charging := fmt.Sprintf("charging Workload %%s for the pods left of TrainJob %s", rest.Labels[placeholder.Label])
	if err := jobclient.PatchWorkloadStatus(ctx, j.deps.client, rest, charged, charging); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Kept the quota of a TrainJob that MultiKueue deleted for its pods", "remainder", klog.KObj(rest))
	return nil
}

const (
	// judgedSoon is how long that takes as a rule. Meanwhile MultiKueue takes the job for admitted.
	judgedSoon = 50 * time.Millisecond
	// judgedWithin is how long Kueue has for it. In a queue whose head waits, it does not look at
	// others at all. The time of an object is in whole seconds, by a clock that may be ahead of ours.
	judgedWithin = 2 * time.Second
)

// remainders deletes the Workloads that keep the quota of pods which are left, with the last of them.
type remainders struct{ deps *dependencies }

// chargedWithin is how long a remainder may be without a charge. Where the API server's clock is ahead
// of ours, it may be so for longer. Who makes it sees to that in seconds, or makes another.
const chargedWithin = 10 * time.Second

func (r *remainders) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	rest := &kueue.Workload{}
	err := r.deps.client.Get(ctx, req.NamespacedName, rest)
	if err != nil || !rest.DeletionTimestamp.IsZero() || len(placeholder.Runs(rest)) == 0 {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	job := types.NamespacedName{Namespace: rest.Namespace, Name: rest.Labels[placeholder.Label]}
	view, err := state.Observe(ctx, r.deps.client, job)
	if err != nil {
		return ctrl.Result{}, err
	}
	// Pods that were admitted by a Workload which nobody has are somebody else's.
	view.Workloads = append(view.Workloads, placeholder.Former(rest))
	pods, err := r.deps.podsIn(view).Left(ctx)
	if err != nil {
		return ctrl.Result{}, err
	}
	since := rest.CreationTimestamp.Time
	left := len(placeholder.PodsOf(rest, pods)) > 0
	if left && (kueuelib.HasQuotaReservation(rest) || time.Since(since) < chargedWithin) {
		return ctrl.Result{RequeueAfter: podtracking.RecheckIn(since)}, nil
	}
	// It may be charged at this moment.
	err = jobclient.GiveUpWorkload(ctx, r.deps.client, rest)
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: retrySoon}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	if left {
		ctrl.LoggerFrom(ctx).Info("Deleted a Workload that was made for pods which are left and never charged")
	} else {
		ctrl.LoggerFrom(ctx).Info("Found no pod left of a TrainJob that MultiKueue deleted and let the quota go")
	}
	return ctrl.Result{}, nil
}

// forgetDone unsets the quota of a job that was evicted from another cluster and empties its reclaimable pods in one write:
// the next cluster runs all of them, and Kueue refuses a shorter list once it has reserved quota again, which it may do
// before jobframework's next write.
func forgetDone(ctx context.Context, j *job) error {
	wl := j.holdingQuota()
	if wl == nil || !j.ManagedExternally() || !kueuelib.IsEvicted(wl) || len(wl.Status.ReclaimablePods) == 0 {
		return nil
	}
	waits := wl.DeepCopy()
	waits.Status.ReclaimablePods = nil
	kueuelib.Unreserve(waits)
	return cmp.Or(jobclient.PatchWorkloadStatus(ctx, j.deps.client, wl, waits, "giving back the quota of Workload %s"), errOutdated)
}

// askedAgainAnnotation is on the Workload of a job that Kueue asks no worker cluster for: when we
// last had it look again.
const askedAgainAnnotation = "kueue-trainer.dev/dispatch-asked-again"

const (
	// undispatchedAfter is how long Kueue has to ask a worker cluster for a job that has quota. It
	// takes seconds where one is connected.
	undispatchedAfter = time.Minute
	// longestUndispatched is how long we leave Kueue alone after that: no worker may be connected.
	longestUndispatched = 10 * time.Minute
)

// ensureDispatched has no job of another cluster forgotten by MultiKueue. Kueue 0.19.2 looks at a
// Workload once; where that was before a worker cluster was connected, after a restart, nothing
// brings it there again. And it takes a Workload for over that an integration in a worker cluster
// finished because the job was taken from there.
func ensureDispatched(ctx context.Context, j *job) result {
	if !j.ForMultiKueue() {
		return result{}
	}
	for _, wl := range j.workloads() {
		// Its successor would be active, so one that somebody deactivated stays.
		takenForGone := kueuelib.IsActive(wl) && state.ReasonOf(wl, kueue.WorkloadFinished) == kueue.WorkloadFinishedReasonOwnerNotFound
		switch {
		case !wl.DeletionTimestamp.IsZero():
		case takenForGone && jobframework.PrebuiltWorkloadNameFor(j) == "":
			return queueAgain(ctx, j, wl)
		case awaitsDispatch(wl):
			return askAgain(ctx, j, wl)
		}
	}
	j.deps.Recorder.Resolve(j.UID, jobevents.ReasonNotDispatched)
	return result{}
}

// queueAgain deletes the Workload of a job that is not over, so that it gets another: one a minute,
// since a worker cluster may have one of that name which stays finished.
func queueAgain(ctx context.Context, j *job, wl *kueue.Workload) result {
	if wait := undispatchedAfter - time.Since(wl.CreationTimestamp.Time); wait > 0 {
		return result{again: wait}
	}
	if err := jobclient.DeleteWorkload(ctx, j.deps.client, wl, "deleting Workload %s, which was finished without a run"); err != nil {
		return ofError(err)
	}
	j.tell(jobevents.ReasonRequeued, jobevents.ActionQueue,
		"Workload %s was finished because a worker cluster did not find the TrainJob any more; the job queues again", wl.Name)
	return result{}
}

// awaitsDispatch reports whether nothing but MultiKueue stands between a job and a worker cluster,
// and it has not asked one.
func awaitsDispatch(wl *kueue.Workload) bool {
	if !state.HoldsQuota(wl) || kueuelib.IsAdmitted(wl) || kueuelib.IsEvicted(wl) || !kueuelib.IsActive(wl) ||
		wl.Status.ClusterName != nil || len(wl.Status.NominatedClusterNames) > 0 {
		return false
	}
	// MultiKueue is one of the checks, and the last one: it waits for the others.
	left := slices.DeleteFunc(slices.Clone(wl.Status.AdmissionChecks), func(c kueue.AdmissionCheckState) bool { return c.State == kueue.CheckStateReady })
	return len(left) == 1 && left[0].State == kueue.CheckStatePending
}

// askAgain changes the Workload, which has Kueue look at it, and tells the user. Each time Kueue is left alone for as long as
// it has taken so far.
func askAgain(ctx context.Context, j *job, wl *kueue.Workload) result {
	reserved := state.True(wl, kueue.WorkloadQuotaReserved).LastTransitionTime.Time
	since, patience := reserved, undispatchedAfter
	// Nobody has asked in the future: a clock was wrong.
	asked, err := time.Parse(time.RFC3339, wl.Annotations[askedAgainAnnotation])
	if err == nil && !asked.Before(reserved) && time.Until(asked) <= time.Minute {
		j.note(jobevents.ReasonNotDispatched)
		since, patience = asked, min(max(asked.Sub(reserved), undispatchedAfter), longestUndispatched)
	}
	if wait := patience - time.Since(since); wait > 0 {
		return result{again: wait}
	}
	changed := wl.DeepCopy()
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, askedAgainAnnotation, time.Now().UTC().Format(time.RFC3339))
	if err := j.deps.client.Patch(ctx, changed, client.MergeFrom(wl)); err != nil {
		return ofError(fmt.Errorf("having Kueue look again at Workload %s: %w", client.ObjectKeyFromObject(wl), err))
	}
	j.warn(jobevents.ReasonNotDispatched, jobevents.ActionStart,
		"the job has quota, and Kueue has asked no worker cluster for it; see that one is connected: kubectl get multikueueclusters")
	return result{again: undispatchedAfter}
}
