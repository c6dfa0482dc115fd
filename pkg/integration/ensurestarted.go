// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/starts"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
)

// ensureStarted releases the quota of a job that was admitted and cannot start, or not again after its
// last pod: Trainer, JobSet or the Job controller were refused what they had to make, by a webhook, a
// ResourceQuota or validation, or do not answer. They try again for ever, and say so by
// events alone. So do we where a start fails: whatever it fails by may never end.
func ensureStarted(ctx context.Context, j *job) result {
	if !j.decision.made || j.ManagedExternally() {
		return result{}
	}
	wl := j.holdingQuota()
	if wl == nil || !wl.DeletionTimestamp.IsZero() || !state.MayRun(wl) {
		return result{}
	}
	lack := lackNow(j)
	if lack == nil {
		j.record.start.LacksNothing(starts.AdmissionOf(wl))
		return result{}
	}
	lacking, wait, complete := j.record.start.Lacks(starts.AdmissionOf(wl), j.deps.startTimeout, lack.Missing)
	// Pods that were ready once since the admission are not forgotten by a restart of this process. Who took the lead after
	// the admission may have missed that the job was complete.
	ready := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady)
	wasReady := ready != nil && ready.Reason != kueue.WorkloadWaitForStart && !ready.LastTransitionTime.Time.Before(state.AdmittedAt(wl))
	ran := complete || wasReady || lack.Made && state.AdmittedAt(wl).Before(j.deps.expectations.LedSince())
	if lack.Live && ran {
		// A job that runs is not ours to stop; one whose last pod is gone, and that gets no other, is.
		return result{}
	}
	if !lack.Pods && j.record.start.FailedBefore(&j.TrainJob, j.deps.Field) {
		// The trouble that it was in while it was held back goes on.
		j.note(jobevents.ReasonCannotStart)
	}
	if wait > 0 {
		if !lack.Pods && lacking >= j.deps.startTimeout {
			// It was told at the last look.
			j.note(jobevents.ReasonNotStarted)
		}
		return result{again: wait}
	}
	told := lacking
	if !ran && !j.record.start.Gains {
		told += j.deps.startTimeout
	}
	return judge(ctx, j, wl, lack, lacking, told)
}

// lackNow returns what an admitted job lacks in our view of it.
func lackNow(j *job) *starts.Lack {
	if refused := j.decision.err; j.IsSuspended() {
		l := &starts.Lack{What: "the TrainJob has not been resumed"}
		if apierrors.IsInvalid(refused) || apierrors.IsForbidden(refused) || podsets.WithoutNames(refused) || classMissing(refused) ||
			jobclient.BackoffOf(refused) > 0 {
			l.Quote = refused.Error()
		}
		return l
	}
	return starts.Of(&j.TrainJob, j.jobSet(), j.childJobs())
}

// judge looks for a refusal within the time told and does what is to be done about a job that is late.
func judge(ctx context.Context, j *job, wl *kueue.Workload, l *starts.Lack, lacking, told time.Duration) result {
	timeout := j.deps.startTimeout
	refusal := l.Quote
	if !l.Pods && j.pods().Closed() {
		refusal = "its namespace is being deleted" // Events are refused there, too.
	}
	if refusal == "" {
		// Refusals since the admission count, by a clock that may be a moment ahead of those of the recorders.
		since := time.Now().Add(-told)
		if admitted := state.AdmittedAt(wl); admitted.After(since) {
			since = admitted.Add(-2 * time.Second)
		}
		last, again, err := j.deps.refusals.Last(ctx, j.Namespace, l.Kind, l.Asked, since, time.Time{})
		if err != nil {
			return ofError(err)
		}
		if again > 0 {
			if !l.Pods {
				j.note(jobevents.ReasonNotStarted)
			}
			return result{again: again}
		}
		refusal = last
	}
	if refusal != "" || !l.Pods && lacking >= silentFor*timeout {
		// A job that has a pod loses it only for a refusal, and caches may stand still.
		if !l.Pods {
			left, err := j.pods().Left(ctx)
			if err != nil {
				return ofError(err)
			}
			if len(left) > 0 {
				j.warn(jobevents.ReasonNotStarted, jobevents.ActionStart, "does not start (%s) while pods of it are left, as on a lost node, and keeps its quota until they are gone", because(l.What, refusal))
				return result{again: j.record.start.LookAgain(timeout)}
			}
		}
		if j.record.start.Gains {
			lacking = time.Since(state.AdmittedAt(wl))
		}
		return releaseQuota(ctx, j, wl, because(l.What, refusal), lacking)
	}
	if !l.Pods {
		j.warn(jobevents.ReasonNotStarted, jobevents.ActionStart,
			"admitted, but without a pod after %s: %s. It gives its quota back after %s; look at the controller's log",
			timeout, because(l.What, ""), silentFor*timeout)
	}
	return result{again: j.record.start.LookAgain(timeout)}
}

func because(what, refusal string) string {
	if refusal == "" {
		return what + ", and no event says why"
	}
	return what + ": " + refusal
}

// releaseQuota deletes the Workload, and with it the quota when the last pod is gone, and has
// the job wait before it queues again. One that somebody else made is deactivated. Where a copy is gone, MultiKueue gives the
// quota in its own cluster back, too, and sends the job again, to whatever worker is free.
func releaseQuota(ctx context.Context, j *job, wl *kueue.Workload, why string, lacking time.Duration) result {
	if placeholder.IsCopy(wl) {
		if err := jobclient.GiveUpWorkload(ctx, j.deps.client, wl); err != nil {
			return ofError(err)
		}
		j.warn(jobevents.ReasonCannotStart, jobevents.ActionStart,
			"gives its quota back, could not start in %s, and MultiKueue sends it again: %s", lacking.Round(time.Second), why)
		return result{}
	}
	if jobframework.PrebuiltWorkloadNameFor(j) != "" {
		return ofError(deactivate(ctx, j, wl, fmt.Sprintf("could not start in %s", lacking.Round(time.Second)), why))
	}
	// It may be done although the answer is lost.
	before := j.record.start
	hold := j.record.start.HoldBack(wl.UID, &j.TrainJob, j.deps.Field, j.deps.startTimeout)
	if err := jobclient.GiveUpWorkload(ctx, j.deps.client, wl); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsForbidden(err) {
			j.record.start = before
		}
		return ofError(err)
	}
	j.warn(jobevents.ReasonCannotStart, jobevents.ActionStart,
		"gives its quota back, could not start in %s; queues again in %s or when its spec is changed: %s",
		lacking.Round(time.Second), hold.Round(time.Second), why)
	return result{}
}

// deactivate has a Workload that somebody made give its quota back. Whoever activates it again has the job queue again.
func deactivate(ctx context.Context, j *job, wl *kueue.Workload, what, why string) error {
	changed := wl.DeepCopy()
	if j.active(ctx) {
		deactivation.Mark(changed)
	} else {
		changed.Spec.Active = ptr.To(false)
	}
	if err := jobclient.PatchWorkload(ctx, j.deps.client, wl, changed, "deactivating prebuilt Workload %s"); err != nil {
		return client.IgnoreNotFound(err)
	}
	j.warn(jobevents.ReasonCannotStart, jobevents.ActionStart,
		"gives its quota back, %s: prebuilt Workload %s is deactivated; when its spec.active is false, set it to true to have the job queue again: %s",
		what, wl.Name, why)
	return nil
}

// defaultStartTimeout is how long an admitted job may be without what it needs to run.
const defaultStartTimeout = 2 * time.Minute

// silentFor is how many times as long a job without a pod keeps its quota where nobody says
// why: who is slow, or away for a moment, refuses nothing.
const silentFor = 5

// tellNotice tells a TrainJob what its Workload says, once while it says so. It is trouble unless
// somebody means it. Kueue says of queues that are stopped what it says of queues that lack a flavor.
func tellNotice(ctx context.Context, j *job) result {
	n := jobevents.NoticeFor(j.workloads())
	if n.Reason == jobevents.ReasonNotAdmissible {
		var err error
		if n.Meant, err = j.deps.queues.Stopped(ctx, &j.TrainJob); err != nil {
			return ofError(err)
		}
	}
	if wl := failedStart(j); wl != nil && j.record.start.Former != wl.UID {
		// Kueue may delete it soon, and the next one would fail like it.
		j.record.start.HoldBack(wl.UID, &j.TrainJob, j.deps.Field, j.deps.startTimeout)
	}
	if n.Reason != "" && !n.Meant {
		j.note(n.Reason)
	}
	j.deps.Recorder.WarnOfState(&j.TrainJob, n)
	return result{}
}

// failedStart returns the Workload with which a start was given up, or nil.
func failedStart(j *job) *kueue.Workload {
	for _, wl := range j.workloads() {
		if state.ReasonOf(wl, kueue.WorkloadFinished) == jobframework.FailedToStartFinishedReason && j.unfinishedWorkload() == nil {
			return wl
		}
	}
	return nil
}
