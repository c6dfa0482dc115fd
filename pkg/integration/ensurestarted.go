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
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/remainder"
)

// ensureStarted releases the quota of a job that was admitted and cannot start, or not again after its
// last pod: Trainer, JobSet or the Job controller were refused what they had to make, by a webhook, a
// ResourceQuota or validation, or do not answer. They try again for ever, and say so by
// events alone.
func ensureStarted(ctx context.Context, j *job) result {
	if !j.decision.made || j.ManagedExternally() {
		return result{}
	}
	refused := j.decision.err
	if expectedRetry(refused) && !classMissing(refused) && !lagsLong(j.env.expectations, &j.TrainJob, refused) {
		return result{}
	}
	wl := j.holdingQuota()
	if wl == nil || !wl.DeletionTimestamp.IsZero() || !state.MayRun(wl) {
		return result{}
	}
	lack := lackNow(j, refused)
	if lack == nil {
		j.record.start.lacksNothing(admissionOf(wl))
		return result{}
	}
	lacking, wait, complete := j.record.start.lacks(admissionOf(wl), j.env.startTimeout)
	ran := complete || wasReady(wl) || lack.made && ledAfter(j, wl)
	if lack.live && ran {
		// A job that runs is not ours to stop; one whose last pod is gone, and that gets no other, is.
		return result{}
	}
	if wait > 0 {
		if !lack.pods && lacking >= j.env.startTimeout {
			// It was told at the last look.
			j.env.Recorder.Note(j.UID, jobevents.ReasonNotStarted)
		}
		return result{again: wait}
	}
	told := lacking
	if !ran {
		told += j.env.startTimeout
	}
	return judge(ctx, j, wl, lack, lacking, told)
}

// lackNow returns what an admitted job lacks in our view of it.
func lackNow(j *job, refused error) *lack {
	if j.IsSuspended() {
		l := &lack{what: "the TrainJob has not been resumed"}
		if apierrors.IsInvalid(refused) || apierrors.IsForbidden(refused) || podsets.WithoutNames(refused) || classMissing(refused) {
			l.quote = refused.Error()
		}
		return l
	}
	return lackOf(&j.TrainJob, j.jobSet(), j.childJobs())
}

// wasReady reports whether the pods of an admitted Workload were ready once since, which a
// restart of this process does not make us forget.
func wasReady(wl *kueue.Workload) bool {
	ready := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady)
	admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted)
	return ready != nil && ready.Reason != kueue.WorkloadWaitForStart && !ready.LastTransitionTime.Before(&admitted.LastTransitionTime)
}

// ledAfter reports whether this process took the lead after the admission of a Workload, and so may have missed that
// its job was complete.
func ledAfter(j *job, wl *kueue.Workload) bool {
	admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted)
	return admitted != nil && admitted.LastTransitionTime.Time.Before(j.env.expectations.LedSince())
}

// judge looks for a refusal within the time told and does what is to be done about a job that is late.
func judge(ctx context.Context, j *job, wl *kueue.Workload, l *lack, lacking, told time.Duration) result {
	timeout := j.env.startTimeout
	refusal := l.quote
	if refusal == "" {
		last, again, err := j.env.refusals.Last(ctx, j.Namespace, l.kind, l.asked, toldSince(wl, told), time.Time{})
		if err != nil {
			return failed(err)
		}
		if again > 0 {
			if !l.pods {
				j.env.Recorder.Note(j.UID, jobevents.ReasonNotStarted)
			}
			return result{again: again}
		}
		refusal = last
	}
	switch l.decide(lacking, timeout, refusal) {
	case quotaGoes:
		return releaseQuota(ctx, j, wl, because(l.what, refusal), lacking)
	case tellSilence:
		j.env.Recorder.Warn(&j.TrainJob, jobevents.ReasonNotStarted, jobevents.ActionStart, fmt.Errorf(
			"admitted, but without a pod after %s: %s. It gives its quota back after %s; look at the controller's log",
			timeout, because(l.what, ""), silentFor*timeout))
	}
	return result{again: j.record.start.looked(j.env.startTimeout)}
}

// toldSince returns the time from which refusals count: within the time given, and since the
// admission, by a clock that may be a moment ahead of those of the recorders.
func toldSince(wl *kueue.Workload, ago time.Duration) time.Time {
	since := time.Now().Add(-ago)
	admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted)
	if admitted != nil && admitted.LastTransitionTime.After(since) {
		since = admitted.LastTransitionTime.Add(-2 * time.Second)
	}
	return since
}

func because(what, refusal string) string {
	if refusal == "" {
		return what + ", and no event says why"
	}
	return what + ": " + refusal
}

// releaseQuota deletes the Workload, and with it the quota when the last pod is gone, and has
// the job wait before it queues again. One that somebody else made is deactivated, and a copy is MultiKueue's.
func releaseQuota(ctx context.Context, j *job, wl *kueue.Workload, why string, lacking time.Duration) result {
	if remainder.IsCopy(wl) {
		j.env.Recorder.Warn(&j.TrainJob, jobevents.ReasonCannotStart, jobevents.ActionStart, fmt.Errorf(
			"cannot start, and holds quota by Workload %s, which only MultiKueue can take back: %s", wl.Name, why))
		return result{again: j.record.start.looked(j.env.startTimeout)}
	}
	if jobframework.PrebuiltWorkloadNameFor(j) != "" {
		return failed(deactivate(ctx, j, wl, why, lacking))
	}
	if err := deleteWorkload(ctx, j, wl); err != nil {
		return failed(err)
	}
	hold := j.record.start.holdBack(wl.UID, sumOf(&j.TrainJob, j.env.Field), j.env.startTimeout)
	j.env.Recorder.Warn(&j.TrainJob, jobevents.ReasonCannotStart, jobevents.ActionStart, fmt.Errorf(
		"gives its quota back, could not start in %s; queues again in %s or when the TrainJob is changed: %s",
		lacking.Round(time.Second), hold.Round(time.Second), why))
	return result{}
}

// deactivate has a Workload that somebody made give its quota back. Whoever activates it again has the job queue again.
func deactivate(ctx context.Context, j *job, wl *kueue.Workload, why string, lacking time.Duration) error {
	before := wl.DeepCopy()
	wl = wl.DeepCopy()
	if j.active(ctx) {
		deactivation.Mark(wl)
	} else {
		wl.Spec.Active = ptr.To(false)
	}
	err := j.env.client.Patch(ctx, wl, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deactivating prebuilt Workload %s: %w", client.ObjectKeyFromObject(wl), err)
	}
	j.env.Recorder.Warn(&j.TrainJob, jobevents.ReasonCannotStart, jobevents.ActionStart, fmt.Errorf(
		"gives its quota back, could not start in %s: prebuilt Workload %s is deactivated; when its spec.active is false, set it to true to have the job queue again: %s",
		lacking.Round(time.Second), wl.Name, why))
	return nil
}
