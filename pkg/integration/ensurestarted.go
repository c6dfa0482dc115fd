// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podsets"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
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
		j.record.start.lacksNothing(admissionOf(wl))
		return result{}
	}
	lacking, wait, complete := j.record.start.lacks(admissionOf(wl), j.deps.startTimeout, lack.missing)
	// Pods that were ready once since the admission are not forgotten by a restart of this process. Who took the lead after
	// the admission may have missed that the job was complete.
	ready := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady)
	wasReady := ready != nil && ready.Reason != kueue.WorkloadWaitForStart && !ready.LastTransitionTime.Time.Before(admittedAt(wl))
	ran := complete || wasReady || lack.made && admittedAt(wl).Before(j.deps.expectations.LedSince())
	if lack.live && ran {
		// A job that runs is not ours to stop; one whose last pod is gone, and that gets no other, is.
		return result{}
	}
	if !lack.pods && j.record.start.failedBefore(&j.TrainJob, j.deps.Field) {
		// The trouble that it was in while it was held back goes on.
		j.note(jobevents.ReasonCannotStart)
	}
	if wait > 0 {
		if !lack.pods && lacking >= j.deps.startTimeout {
			// It was told at the last look.
			j.note(jobevents.ReasonNotStarted)
		}
		return result{again: wait}
	}
	told := lacking
	if !ran && !j.record.start.gains {
		told += j.deps.startTimeout
	}
	return judge(ctx, j, wl, lack, lacking, told)
}

// lackNow returns what an admitted job lacks in our view of it.
func lackNow(j *job) *lack {
	if refused := j.decision.err; j.IsSuspended() {
		l := &lack{what: "the TrainJob has not been resumed"}
		if apierrors.IsInvalid(refused) || apierrors.IsForbidden(refused) || podsets.WithoutNames(refused) || classMissing(refused) ||
			jobclient.BackoffOf(refused) > 0 {
			l.quote = refused.Error()
		}
		return l
	}
	return lackOf(&j.TrainJob, j.jobSet(), j.childJobs())
}

// judge looks for a refusal within the time told and does what is to be done about a job that is late.
func judge(ctx context.Context, j *job, wl *kueue.Workload, l *lack, lacking, told time.Duration) result {
	timeout := j.deps.startTimeout
	refusal := l.quote
	if !l.pods && j.pods().Closed() {
		refusal = "its namespace is being deleted" // Events are refused there, too.
	}
	if refusal == "" {
		// Refusals since the admission count, by a clock that may be a moment ahead of those of the recorders.
		since := time.Now().Add(-told)
		if admitted := admittedAt(wl); admitted.After(since) {
			since = admitted.Add(-2 * time.Second)
		}
		last, again, err := j.deps.refusals.Last(ctx, j.Namespace, l.kind, l.asked, since, time.Time{})
		if err != nil {
			return ofError(err)
		}
		if again > 0 {
			if !l.pods {
				j.note(jobevents.ReasonNotStarted)
			}
			return result{again: again}
		}
		refusal = last
	}
	if refusal != "" || !l.pods && lacking >= silentFor*timeout {
		// A job that has a pod loses it only for a refusal, and caches may stand still.
		if !l.pods {
			left, err := j.pods().Left(ctx)
			if err != nil {
				return ofError(err)
			}
			if len(left) > 0 {
				j.warn(jobevents.ReasonNotStarted, jobevents.ActionStart, "does not start (%s) while pods of it are left, as on a lost node, and keeps its quota until they are gone", because(l.what, refusal))
				return result{again: j.record.start.lookAgain(timeout)}
			}
		}
		if j.record.start.gains {
			lacking = time.Since(admittedAt(wl))
		}
		return releaseQuota(ctx, j, wl, because(l.what, refusal), lacking)
	}
	if !l.pods {
		j.warn(jobevents.ReasonNotStarted, jobevents.ActionStart,
			"admitted, but without a pod after %s: %s. It gives its quota back after %s; look at the controller's log",
			timeout, because(l.what, ""), silentFor*timeout)
	}
	return result{again: j.record.start.lookAgain(timeout)}
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
		if err := j.deps.giveUpWorkload(ctx, wl); err != nil {
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
	hold := j.record.start.holdBack(wl.UID, sumOf(&j.TrainJob, j.deps.Field), j.deps.startTimeout)
	if err := j.deps.giveUpWorkload(ctx, wl); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsForbidden(err) {
			j.record.start = before
		}
		return ofError(err)
	}
	j.warn(jobevents.ReasonCannotStart, jobevents.ActionStart,
		"gives its quota back, could not start in %s; queues again in %s or when the TrainJob is changed: %s",
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
	if err := j.deps.patchWorkload(ctx, wl, changed, "deactivating prebuilt Workload %s"); err != nil {
		return client.IgnoreNotFound(err)
	}
	j.warn(jobevents.ReasonCannotStart, jobevents.ActionStart,
		"gives its quota back, %s: prebuilt Workload %s is deactivated; when its spec.active is false, set it to true to have the job queue again: %s",
		what, wl.Name, why)
	return nil
}

// defaultStartTimeout is how long an admitted job may be without what it needs to run.
const defaultStartTimeout = 2 * time.Minute

// longestHold bounds the time for which a job that could not start stays out of its queue.
const longestHold = time.Hour

// startRecord is what is remembered of the starts of a TrainJob, also of those that failed, for which it stays out of its
// queue.
type startRecord struct {
	// admission is what the next five are about: since when the job lacks something, when to look
	// for a refusal again, whether it once lacked nothing, the fewest pods that were missing, and whether that
	// number has fallen.
	admission admission
	lacking   time.Time
	look      time.Time
	complete  bool
	missing   int32
	gains     bool

	// tries counts the starts that failed in a row of the job as it is, by its sum. For hold it
	// stays out of its queue, until a time, since the Workload of former was given back.
	tries  int
	hold   time.Duration
	until  time.Time
	former types.UID
	sum    [sha256.Size]byte

	// unmade is what is known of a job that has no JobSet yet.
	unmade unmade
}

// admission is one of the times that a Workload was admitted: Kueue admits the same one again.
type admission struct {
	workload types.UID
	// since is in seconds, as conditions have it.
	since int64
}

func admissionOf(wl *kueue.Workload) admission {
	return admission{workload: wl.UID, since: admittedAt(wl).Unix()}
}

// lacks notes that an admitted job lacks something. It returns for how long by our own clock, the
// time until a refusal is to be looked for, first after timeout, and whether the job once lacked nothing since it was
// admitted. Each time that fewer pods are missing than ever, the time starts over: the Job controller creates thousands in
// minutes, and what it was refused meanwhile it has created since.
func (s *startRecord) lacks(by admission, timeout time.Duration, missing int32) (lacking, wait time.Duration, complete bool) {
	now := time.Now()
	if s.admission != by {
		s.admission, s.lacking, s.complete, s.missing, s.gains = by, time.Time{}, false, 0, false
	}
	fewer := missing > 0 && missing < s.missing
	if s.lacking.IsZero() || fewer {
		s.lacking, s.look, s.gains = now, now.Add(timeout), s.gains || fewer
	}
	if fewer || s.missing == 0 || missing == 0 { // JobSet or Trainer is at work: what it recreates has no pods yet.
		s.missing = missing
	}
	return now.Sub(s.lacking), max(0, s.look.Sub(now)), s.complete
}

// lookAgain notes that a refusal was looked for, and returns the time to the next look.
func (s *startRecord) lookAgain(timeout time.Duration) time.Duration {
	s.look = time.Now().Add(timeout)
	return timeout
}

// lacksNothing notes that a job has started: what it did before is forgotten.
func (s *startRecord) lacksNothing(by admission) { *s = startRecord{admission: by, complete: true} }

// holdBack keeps a job that gives a Workload back out of its queue, twice as long as the last
// time, and returns for how long.
func (s *startRecord) holdBack(wl types.UID, sum [sha256.Size]byte, timeout time.Duration) time.Duration {
	if s.sum != sum {
		s.tries = 0
	}
	hold := min(longestHold, timeout/2<<min(s.tries, 16))
	*s = startRecord{tries: s.tries + 1, hold: hold, until: time.Now().Add(hold), former: wl, sum: sum}
	return hold
}

// quotaGoes notes that the quota of a Workload goes now, which may be long after the job was held
// back for it: from here on it stays out of its queue, so that others have their turn.
func (s *startRecord) quotaGoes(wl types.UID) {
	if s.former == wl && wl != "" {
		s.until = time.Now().Add(s.hold)
	}
}

// heldBack returns how much longer a job stays out of its queue; not at all when its user
// has changed it.
func (s *startRecord) heldBack(job *trainjob.TrainJob, field patch.Field) time.Duration {
	if !time.Now().Before(s.until) || !s.failedBefore(job, field) {
		return 0
	}
	return time.Until(s.until)
}

// failedBefore reports whether the job, as it is, could not start when it was last admitted.
func (s *startRecord) failedBefore(job *trainjob.TrainJob, field patch.Field) bool {
	return s.tries > 0 && s.sum == sumOf(job, field)
}

// sumOf sums up what its user says of a job: the spec without our part and without suspend,
// labels and annotations.
func sumOf(job *trainjob.TrainJob, field patch.Field) [sha256.Size]byte {
	spec := job.DeepCopy().Spec
	field.Drop(&spec)
	spec.Suspend = nil
	data, err := json.Marshal([]any{spec, job.Labels, job.Annotations})
	if err != nil {
		// It was decoded from JSON. A change is not seen then, and time passes anyway.
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(data)
}

// lack is what an admitted job is without, and could not run without.
type lack struct {
	// what says who has not made or resumed what.
	what string
	// kind and asked are the objects that events about it regard; none where quote is all.
	kind  string
	asked []types.UID
	// quote is a refusal that is known without asking.
	quote string
	// live reports whether the job has a pod nevertheless, pods whether it has one, or had one that
	// failed and that the Job controller recreates in its own time.
	live, pods bool
	// made reports whether all child Jobs that are due are there and had all their pods once.
	made bool
	// missing is how many pods the Job controller has not made.
	missing int32
}

// lackOf returns what a resumed job is without, or nil. Pods that are there, in whatever
// state, are for the scheduler, the kubelet and Kueue's waitForPodsReady.
func lackOf(job *trainjob.TrainJob, js *jobsetapi.JobSet, jobs []batchv1.Job) *lack {
	lack := firstLack(job, js, jobs)
	for i := range jobs {
		if lack == nil {
			return nil
		}
		lack.live = lack.live || state.LivePods(&jobs[i]) > 0
		lack.pods = lack.pods || lack.live || jobs[i].Status.Failed > 0 && !podset.JobEnded(&jobs[i])
	}
	return lack
}

// firstLack returns the first of what Trainer, JobSet and the Job controller have not made or resumed.
func firstLack(job *trainjob.TrainJob, js *jobsetapi.JobSet, jobs []batchv1.Job) *lack {
	byTrainer := func(what string) *lack {
		return &lack{what: what, kind: trainjob.GVK.Kind, asked: []types.UID{job.UID}}
	}
	switch {
	case js == nil:
		return byTrainer("Trainer has not made JobSet " + job.Name)
	case js.Status.TerminalState != "":
		return nil
	case !js.DeletionTimestamp.IsZero():
		return byTrainer("JobSet " + js.Name + " is still being deleted")
	case ptr.Deref(js.Spec.Suspend, false):
		return byTrainer("Trainer has not resumed JobSet " + js.Name)
	}
	byJobSet := func(format string, args ...any) *lack {
		return &lack{what: fmt.Sprintf(format, args...), kind: "JobSet", asked: []types.UID{js.UID}}
	}
	made := map[string][]batchv1.Job{}
	for i := range jobs {
		name := jobs[i].Labels[jobsetapi.ReplicatedJobNameKey]
		made[name] = append(made[name], jobs[i])
	}
	due := podset.Due(js, statusesOf(made))
	for _, rj := range due {
		for _, child := range made[rj.Name] {
			if ptr.Deref(child.Spec.Suspend, false) && !podset.JobEnded(&child) {
				return byJobSet("JobSet has not resumed child Job %s", child.Name)
			}
		}
		if n := int32(len(made[rj.Name])); n < rj.Replicas {
			return byJobSet("JobSet has not made %d of %s of replicated job %s", rj.Replicas-n, jobevents.Count(rj.Replicas, "child Job"), rj.Name)
		}
	}
	return lackOfPods(due, jobs)
}

// lackOfPods looks for pods that the Job controller has not made.
func lackOfPods(due []jobsetapi.ReplicatedJob, jobs []batchv1.Job) *lack {
	var found *lack
	for i := range jobs {
		child := &jobs[i]
		isDue := slices.ContainsFunc(due, func(rj jobsetapi.ReplicatedJob) bool { return rj.Name == child.Labels[jobsetapi.ReplicatedJobNameKey] })
		if !isDue || !state.LacksPods(child) || awaitsLeader(child) {
			continue
		}
		missing := state.WantedPods(child) - state.LivePods(child)
		if found == nil {
			found = &lack{kind: "Job", what: fmt.Sprintf("the Job controller has not made %d of %s of child Job %s",
				missing, jobevents.Count(state.WantedPods(child), "pod"), child.Name)}
			// A Job that has never had all its pods, by its own count of them.
			found.made = !slices.ContainsFunc(jobs, func(child batchv1.Job) bool {
				return state.LivePods(&child)+child.Status.Succeeded+child.Status.Failed < ptr.Deref(child.Spec.Parallelism, 1)
			})
		}
		found.asked, found.missing = append(found.asked, child.UID), found.missing+missing
	}
	return found
}

// awaitsLeader reports whether JobSet refuses a Job the rest of its pods until the first is scheduled, to where
// it sends the others by exclusive placement: that one is for the scheduler.
func awaitsLeader(child *batchv1.Job) bool {
	annotations := child.Spec.Template.Annotations
	_, exclusive := annotations[jobsetapi.ExclusiveKey]
	_, selects := annotations[jobsetapi.NodeSelectorStrategyKey]
	return exclusive && !selects && state.LivePods(child) > 0
}

// statusesOf counts child Jobs as JobSet does. Its own status does not get there while it
// is refused a Job.
func statusesOf(made map[string][]batchv1.Job) []trainer.JobStatus {
	var statuses []trainer.JobStatus
	for name, jobs := range made {
		status := trainer.JobStatus{Name: name, Succeeded: new(int32), Failed: new(int32), Ready: new(int32)}
		for i := range jobs {
			switch child := &jobs[i]; {
			case podset.JobHas(child, batchv1.JobComplete):
				*status.Succeeded++
			case podset.JobEnded(child):
				*status.Failed++
			case ptr.Deref(child.Status.Ready, 0) >= state.WantedPods(child):
				*status.Ready++
			}
		}
		statuses = append(statuses, status)
	}
	return statuses
}

// silentFor is how many times as long a job without a pod keeps its quota where nobody says
// why: who is slow, or away for a moment, refuses nothing.
const silentFor = 5
