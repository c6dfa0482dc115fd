// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/starts"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func refusalOf(uid types.UID, ago time.Duration) *eventsv1.Event {
	return inttest.Refusal(time.Now().Add(-ago), uid, "denied by policy")
}

// liveEvents returns a client that lists events without field selectors, which the fake API
// server does not know, or answers with an error.
func liveEvents(c client.Client, err error) client.Client {
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, _ ...client.ListOption) error {
			if _, ok := list.(*eventsv1.EventList); ok && err != nil {
				return err
			}
			return c.List(ctx, list, client.InNamespace("ns"))
		},
	})
}

func TestEnsureStarted(t *testing.T) {
	suspended := func(job *trainjob.TrainJob) { job.Spec.Suspend = new(true) }
	refused := func(uid types.UID, ago time.Duration) []client.Object { return []client.Object{refusalOf(uid, ago)} }
	pods := []client.Object{inttest.PodOf("ns", "job")}
	type row struct {
		// lacking is for how long the job is known to lack its JobSet.
		lacking time.Duration
		// refusal is what there is beside the job: events, or pods.
		refusal []client.Object
		reading error
		job     func(*trainjob.TrainJob)
		wl      func(*kueue.Workload)
		start   error
		// undecided is set where jobframework has not looked.
		undecided bool
		// before is set where that was noted of the admission before this one.
		before bool
		// deleted is for how long its namespace is being deleted.
		deleted                     time.Duration
		wantKept, wantWait, wantErr bool
		// wantEvicted is set where Kueue is to evict it.
		wantEvicted bool
		wantTold    string
	}
	expect.Rows(t, map[string]row{
		"refused just now":                                              {refusal: refused("uid", 0), wantKept: true, wantWait: true},
		"refused for long":                                              {lacking: 3 * time.Minute, refusal: refused("uid", time.Minute), wantTold: "CannotStart gives its quota back, could not start in 3m0s; queues again in 1m0s or when its spec is changed: Trainer has not made JobSet job: denied by policy"},
		"somebody else is refused":                                      {lacking: 3 * time.Minute, refusal: refused("other", time.Minute), wantKept: true, wantWait: true, wantTold: "NotStarted admitted, but without a pod after 2m0s"},
		"refused before it was admitted":                                {lacking: 3 * time.Minute, refusal: refused("uid", 2*time.Hour), wantKept: true, wantWait: true, wantTold: "NotStarted"},
		"late":                                                          {lacking: 3 * time.Minute, wantKept: true, wantWait: true, wantTold: "NotStarted"},
		"late in a namespace that is deleted":                           {lacking: 3 * time.Minute, deleted: time.Minute, wantTold: "CannotStart gives its quota back, could not start in 3m0s; queues again in 1m0s or when its spec is changed: Trainer has not made JobSet job: its namespace is being deleted"},
		"late for very long":                                            {lacking: 11 * time.Minute, wantTold: "CannotStart gives its quota back"},
		"late, with pods that the caches do not have":                   {lacking: 11 * time.Minute, refusal: pods, wantKept: true, wantWait: true, wantTold: "NotStarted does not start (Trainer has not made JobSet job, and no event says why) while pods of it are left"},
		"refused once, with pods that the caches do not have":           {lacking: 3 * time.Minute, refusal: append(refused("uid", time.Minute), pods...), wantKept: true, wantWait: true, wantTold: "NotStarted does not start"},
		"late before it was admitted again":                             {lacking: 11 * time.Minute, before: true, wantKept: true, wantWait: true},
		"events may not be read":                                        {lacking: 3 * time.Minute, refusal: refused("uid", 0), reading: kit.Forbidden("events"), wantKept: true, wantWait: true, wantTold: "NotStarted"},
		"events cannot be read":                                         {lacking: 3 * time.Minute, refusal: refused("uid", 0), reading: errors.New("away"), wantKept: true, wantErr: true},
		"refused as it began to lack it":                                {lacking: 3 * time.Minute, refusal: refused("uid", 4*time.Minute), wantTold: "CannotStart gives its quota back"},
		"refused a minute before that, and before its admission":        {lacking: 3 * time.Minute, refusal: refused("uid", 4*time.Minute), wl: since(3 * time.Minute), wantKept: true, wantWait: true, wantTold: "NotStarted"},
		"jobframework has not looked at it":                             {lacking: 11 * time.Minute, undecided: true, wantKept: true},
		"its Workload is deleted already":                               {lacking: 11 * time.Minute, wl: going, wantKept: true},
		"in another cluster":                                            {lacking: time.Hour, job: elsewhere, wantKept: true},
		"a prebuilt Workload":                                           {lacking: 3 * time.Minute, refusal: refused("uid", 0), job: prebuilt, wantKept: true, wantEvicted: true, wantTold: "CannotStart gives its quota back, could not start in 3m0s: prebuilt Workload"},
		"a copy of MultiKueue's":                                        {lacking: 3 * time.Minute, refusal: refused("uid", 0), job: prebuilt, wl: kit.Copied, wantTold: "CannotStart gives its quota back, could not start in 3m0s, and MultiKueue sends it again: Trainer has not made JobSet job: denied by policy"},
		"a copy of MultiKueue's with a pod that the caches do not have": {lacking: 3 * time.Minute, refusal: append(refused("uid", 0), pods...), job: prebuilt, wl: kit.Copied, wantKept: true, wantWait: true, wantTold: "NotStarted does not start"},
		"Kueue takes it back already":                                   {lacking: time.Hour, wl: kit.Deactivated, wantKept: true, wantEvicted: true},
		"the API server refuses its start":                              {lacking: 3 * time.Minute, job: suspended, start: apierrors.NewForbidden(jobclient.Resource, "job", errors.New("not today")), wantTold: "not today"},
		"its start is not valid":                                        {lacking: 3 * time.Minute, job: suspended, start: apierrors.NewInvalid(trainjob.GVK.GroupKind(), "job", nil), wantTold: "CannotStart gives its quota back"},
		"its runtime is gone":                                           {lacking: 3 * time.Minute, job: suspended, start: trainjob.ErrRuntimeNotFound, wantTold: "CannotStart gives its quota back"},
		"its priority class is not there":                               {lacking: 3 * time.Minute, job: suspended, start: apierrors.NewNotFound(schema.GroupResource{Resource: "WorkloadPriorityClass"}, "gone"), wantTold: `"gone" not found`},
		"it could not be started by now":                                {lacking: 3 * time.Minute, job: suspended, start: errOutdated, wantKept: true, wantWait: true, wantTold: "NotStarted"},
		"it can never be started":                                       {lacking: 11 * time.Minute, job: suspended, start: errOutdated, wantTold: "CannotStart gives its quota back"},
		"somebody undoes each start":                                    {lacking: 3 * time.Minute, job: suspended, start: undoneStart(t), wantTold: "spec.suspend is not stored as kueue-trainer writes it"},
		"each start is overtaken by a change":                           {lacking: 11 * time.Minute, job: suspended, start: apierrors.NewConflict(jobclient.Resource, "job", errors.New("changed")), wantTold: "CannotStart gives its quota back"},
		"its start fails without a refusal":                             {lacking: 3 * time.Minute, job: suspended, start: errors.New("timeout"), wantKept: true, wantWait: true, wantTold: "NotStarted admitted, but without a pod after 2m0s: the TrainJob has not been resumed"},
	}, func(t *testing.T, tc row) {
		stored, _ := disagreeing(false, false, false, time.Now())
		kit.With(stored, tc.job)
		wl := inttest.WorkloadOf(stored, kit.Admitted, since(time.Hour), tc.wl)
		wl.UID = "wl"
		r, recorder := newReconciler(t, append(tc.refusal, stored, wl)...)
		r.deps.refusals = jobevents.NewRefusals(liveEvents(r.deps.client, tc.reading))
		r.deps.startTimeout = defaultStartTimeout
		by := starts.AdmissionOf(wl)
		if tc.before {
			by = starts.AdmissionOf(kit.With(wl.DeepCopy(), since(2*time.Hour)))
		}
		r.deps.records.of(jobKey, stored.UID).start = starts.Record{
			Admission: by, Lacking: time.Now().Add(-tc.lacking), Look: time.Now().Add(2*time.Minute - tc.lacking)}
		j := decidedOf(t, r, stored, tc.start)
		j.decision.made = !tc.undecided
		if tc.deleted > 0 {
			j.view.NamespaceDeleted = time.Now().Add(-tc.deleted)
		}
		got := ensureStarted(t.Context(), j)
		expect.That(t, (got.err != nil) == tc.wantErr && (got.again > 0) == tc.wantWait, "ensureStarted() = %+v", got)
		expect.Same(t, "The job keeps its Workload", tc.wantKept, inttest.Exists(t, r.deps.client, wl))
		if tc.wantKept {
			inttest.Reload(t, r.deps.client, wl)
			expect.Same(t, "It is deactivated, for it has no pod", tc.wantEvicted, !kueuelib.IsActive(wl))
		}
		wantTold(t, eventsSoFar(recorder, "Warning"), tc.wantTold)
	})
}

// What was told counts until the next look for a refusal, and from one admission in vain to the next.
func TestLateJobIsInTroubleBetweenTwoLooks(t *testing.T) {
	type row struct {
		lacking time.Duration
		failed  bool
		change  func(*trainjob.TrainJob)
		want    string
	}
	expect.Rows(t, map[string]row{
		"told":                             {lacking: 3 * time.Minute, want: jobevents.ReasonNotStarted},
		"not late":                         {lacking: time.Second},
		"not late, and could not start":    {lacking: time.Second, failed: true, want: jobevents.ReasonCannotStart},
		"told, and could not start":        {lacking: 3 * time.Minute, failed: true, want: jobevents.ReasonCannotStart},
		"could not start, and was changed": {lacking: time.Second, failed: true, change: func(job *trainjob.TrainJob) { job.Annotations = map[string]string{"try-again": "now"} }},
	}, func(t *testing.T, tc row) {
		stored, _ := disagreeing(false, false, false, time.Now())
		wl := inttest.WorkloadOf(stored, kit.Admitted, since(time.Hour))
		r, _ := newReconciler(t, stored, wl)
		r.deps.startTimeout = defaultStartTimeout
		known := &r.deps.records.of(jobKey, stored.UID).start
		if tc.failed {
			known.HoldBack("former", stored, r.deps.Field, time.Minute)
		}
		known.Admission, known.Lacking, known.Look = starts.AdmissionOf(wl), time.Now().Add(-tc.lacking), time.Now().Add(time.Minute)
		expect.NoError(t, ensureStarted(t.Context(), decidedOf(t, r, kit.With(stored, tc.change), nil)).err)
		r.deps.Recorder.EndLook(stored.UID)
		expect.Same(t, "Unexpected trouble", tc.want, r.deps.Recorder.StuckReason(stored.UID))
	})
}

// Where the answer is lost, the quota may be given back; where it is not, the job does not stay out of its queue.
func TestJobThatKeepsItsQuotaIsNotHeldBack(t *testing.T) {
	expect.Rows(t, map[string]struct {
		err  error
		want bool
	}{
		"its Workload was admitted again": {err: apierrors.NewConflict(kueue.Resource("workloads"), "wl", nil)},
		"somebody refuses that":           {err: kit.Forbidden("workloads")},
		"there is no answer":              {err: errors.New("timeout"), want: true},
	}, func(t *testing.T, tc struct {
		err  error
		want bool
	}) {
		stored, _ := suspendedJob()
		r, _ := newReconciler(t, stored, inttest.WorkloadOf(stored, kit.Admitted))
		r.deps.client = kit.Writes(r.deps.client, func(kit.Write) error { return tc.err })
		j := jobOf(t, r, stored)
		got := releaseQuota(t.Context(), j, j.holdingQuota(), "", 0)
		expect.That(t, errors.Is(got.err, tc.err), "releaseQuota() = %+v", got)
		expect.Same(t, "It is held back", tc.want, j.record.start.HeldBack(stored, r.deps.Field) > 0)
	})
}

// undoneStart is what a start comes to that somebody's webhook undoes.
func undoneStart(t *testing.T) error {
	t.Helper()
	stored, _ := suspendedJob()
	r, _ := newReconciler(t, stored)
	undoing := kit.Writes(r.deps.client, func(w kit.Write) error {
		w.Object.(*trainjob.TrainJob).Spec.Suspend = new(true)
		return kit.ErrAnswered
	})
	c := jobclient.New(undoing, undoing, r.deps.trainer, r.deps.expectations, r.deps.metrics)
	job := storedJob(t, r)
	return kueuelib.Patch(t.Context(), c, job, func() (bool, error) {
		job.Spec.Suspend = new(false)
		return true, nil
	})
}

// A job that has run is not ours to stop as long as it has a pod, or will have one. That it ran is forgotten with a process,
// and what its Jobs count is not.
func TestEnsureStartedAgain(t *testing.T) {
	says := func(status metav1.ConditionStatus, reason string, ago time.Duration) func(*kueue.Workload) {
		return kit.Says(metav1.Condition{Type: kueue.WorkloadPodsReady, Status: status, Reason: reason, LastTransitionTime: metav1.NewTime(time.Now().Add(-ago))})
	}
	failed, active := batchv1.JobStatus{Failed: 1}, batchv1.JobStatus{Active: 1}
	type row struct {
		// jobs are the statuses of child Jobs of so many pods each; the first is refused what it lacks.
		jobs []batchv1.JobStatus
		pods int32
		// refused is how long ago that was; 0: never.
		refused time.Duration
		// lacking is 3 minutes where it is not said.
		lacking time.Duration
		// led is since when this process leads; 0: for ever, and it saw the job complete.
		led time.Duration
		// missing is how many pods were at the last look.
		missing  int32
		gains    bool
		wl       func(*kueue.Workload)
		wantKept bool
	}
	expect.Rows(t, map[string]row{
		"without a pod, which is refused":                      {jobs: []batchv1.JobStatus{failed}, pods: 2, refused: time.Minute},
		"without a pod, which was refused it once":             {jobs: []batchv1.JobStatus{failed}, pods: 2, refused: 4 * time.Minute, wantKept: true},
		"without a pod, which comes in its time":               {jobs: []batchv1.JobStatus{failed}, pods: 2, wantKept: true},
		"without a pod, which may take an hour":                {jobs: []batchv1.JobStatus{failed}, pods: 2, lacking: time.Hour, wantKept: true},
		"with one of two, and refused the second":              {jobs: []batchv1.JobStatus{active}, pods: 2, refused: time.Minute, wantKept: true},
		"a new leader finds a lost pod whose Job is refused":   {jobs: []batchv1.JobStatus{failed, active}, pods: 1, refused: time.Minute, led: time.Minute, wantKept: true},
		"a new leader finds a Job that never had a pod":        {jobs: []batchv1.JobStatus{{}, active}, pods: 1, refused: time.Minute, led: time.Minute},
		"its pods were ready since the admission":              {jobs: []batchv1.JobStatus{{}, active}, pods: 1, refused: time.Minute, led: 2 * time.Hour, wl: says(metav1.ConditionTrue, kueue.WorkloadStarted, 0), wantKept: true},
		"its pods were ready before the admission":             {jobs: []batchv1.JobStatus{{}, active}, pods: 1, refused: time.Minute, led: 2 * time.Hour, wl: says(metav1.ConditionTrue, kueue.WorkloadStarted, 2*time.Hour)},
		"its pods have yet to get ready":                       {jobs: []batchv1.JobStatus{{}, active}, pods: 1, refused: time.Minute, led: 2 * time.Hour, wl: says(metav1.ConditionFalse, kueue.WorkloadWaitForStart, 0)},
		"who led before the admission knows that it never ran": {jobs: []batchv1.JobStatus{failed, active}, pods: 1, refused: time.Minute, led: 2 * time.Hour},
		"with one of four, and none at the last look":          {jobs: []batchv1.JobStatus{active}, pods: 4, refused: time.Minute, led: 2 * time.Hour, missing: 4, wantKept: true},
		"with one of four, as at the last look":                {jobs: []batchv1.JobStatus{active}, pods: 4, refused: time.Minute, led: 2 * time.Hour, missing: 3},
		"with one of four, which was refused before it":        {jobs: []batchv1.JobStatus{active}, pods: 4, refused: 4 * time.Minute, led: 2 * time.Hour, missing: 3, gains: true, wantKept: true},
	}, func(t *testing.T, tc row) {
		stored, _ := disagreeing(false, false, false, time.Now())
		js := inttest.JobSetOf(stored, false, jobsetapi.ReplicatedJob{Name: "node", Replicas: int32(len(tc.jobs))})
		wl := inttest.WorkloadOf(stored, kit.Admitted, since(time.Hour), tc.wl)
		objects := []client.Object{stored, js, wl}
		for i, status := range tc.jobs {
			runs := kit.ChildJob(js, "node")
			runs.Name, runs.UID = fmt.Sprint("child-", i), types.UID(fmt.Sprint(i))
			runs.Spec.Parallelism, runs.Spec.Completions, runs.Status = &tc.pods, &tc.pods, status
			objects = append(objects, runs)
		}
		if tc.refused > 0 {
			objects = append(objects, refusalOf("0", tc.refused))
		}
		r, _ := newReconciler(t, objects...)
		r.deps.startTimeout = defaultStartTimeout
		if tc.led > 0 {
			r.deps.expectations = testenv.LedSince(time.Now().Add(-tc.led))
		}
		r.deps.records.of(jobKey, stored.UID).start = starts.Record{
			Admission: starts.AdmissionOf(wl), Complete: tc.led == 0, Missing: tc.missing, Gains: tc.gains, Lacking: time.Now().Add(-cmp.Or(tc.lacking, 3*time.Minute))}
		err := ensureStarted(t.Context(), decidedOf(t, r, stored, nil)).err
		expect.That(t, err == nil && inttest.Exists(t, r.deps.client, wl) == tc.wantKept, "ensureStarted() = %v, want it to keep its Workload: %t", err, tc.wantKept)
	})
}

// decidedOf is jobOf after jobframework has looked.
func decidedOf(t *testing.T, r *reconciler, stored *trainjob.TrainJob, refused error) *job {
	t.Helper()
	j := jobOf(t, r, stored)
	j.decision = decision{made: true, err: refused}
	return j
}

// since has Kueue have said some time ago what a Workload says.
func since(ago time.Duration) func(*kueue.Workload) { return kit.Since(time.Now().Add(-ago)) }

// What was read before it had waited its time may lack what Trainer said since.
func TestLateJobWaitsForNewsOfItsTime(t *testing.T) {
	stored, _ := suspendedJob()
	r, _ := newReconciler(t, stored)
	_, again, err := r.deps.refusals.Last(t.Context(), "ns", trainjob.GVK.Kind, []types.UID{"other"}, time.Time{}, time.Time{})
	expect.Need(t, again <= 0 && err == nil, "Reading for another job: again %s, %v", again, err)
	j := jobOf(t, r, stored)
	j.record.waiting.began = time.Now().Add(-config.WaitForJobSet)
	got := awaitJobSet(t.Context(), j)
	expect.That(t, got.err == nil && got.unqueued && got.again > 0, "awaitJobSet() = %+v, want it to ask again", got)
	j.record.waiting.began = time.Now().Add(-time.Minute)
	got = awaitJobSet(t.Context(), j)
	expect.That(t, got.err == nil && !got.ends(), "awaitJobSet() = %+v for one that waited before that was read, want it to queue", got)
}

// What somebody means is told, and is no trouble. Kueue's words for a queue that is stopped are those
// for one that lacks a flavor.
func TestTroubleOfNotices(t *testing.T) {
	notAdmissible := kit.Says(metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse,
		Reason: kueue.WorkloadQuotaReservedReasonSuspended, Message: "ClusterQueue cq is inactive"})
	deactivated := func(reason string) func(*kueue.Workload) {
		return kit.All(kit.Deactivated, kit.Is(kueue.WorkloadEvicted, reason))
	}
	type row struct {
		says   func(*kueue.Workload)
		policy kueue.StopPolicy
		want   string
	}
	expect.Rows(t, map[string]row{
		"nothing":                          {policy: kueue.None},
		"the ClusterQueue is held":         {says: notAdmissible, policy: kueue.Hold},
		"the ClusterQueue lacks a flavor":  {says: notAdmissible, policy: kueue.None, want: jobevents.ReasonNotAdmissible},
		"somebody deactivated it":          {says: deactivated(kueue.WorkloadDeactivated), policy: kueue.None},
		"Kueue deactivated it":             {says: deactivated("DeactivatedDueToRequeuingLimitExceeded"), policy: kueue.None, want: jobevents.ReasonDeactivated},
		"Kueue did while the queue stands": {says: deactivated("DeactivatedDueToRequeuingLimitExceeded"), policy: kueue.Hold, want: jobevents.ReasonDeactivated},
	}, func(t *testing.T, tc row) {
		stored, _ := suspendedJob()
		cq := inttest.ClusterQueue()
		cq.Spec.StopPolicy = &tc.policy
		r, recorder := newReconciler(t, inttest.WorkloadOf(stored, tc.says), kit.LocalQueue("ns", "q", "cq"), cq)
		expect.NoError(t, tellNotice(t.Context(), jobOf(t, r, stored)).err)
		r.deps.Recorder.EndLook(stored.UID)
		expect.Same(t, "Unexpected trouble", tc.want, r.deps.Recorder.StuckReason(stored.UID))
		expect.Same(t, "It is told", tc.says != nil, len(recorder.Events) > 0)
	})
}

// Kueue may delete a finished Workload in a second, and the next one would take quota for a start that fails like the last.
func TestAStartThatFailedIsNotTriedAgainAtOnce(t *testing.T) {
	stored, js := suspendedJob()
	wl := inttest.WorkloadOf(stored, kit.Is(kueue.WorkloadFinished, "FailedToStart"))
	wl.UID = "failed"
	r, recorder := newReconciler(t, stored, js, wl)
	r.deps.startTimeout, r.deps.waitForJobSet = defaultStartTimeout, 0
	for range 2 {
		expect.Must(look(t, r, jobKey))(t)
	}
	wantTold(t, eventsSoFar(recorder, "Warning CannotStart"), "was finished because the job could not be started")
	expect.NoError(t, r.deps.client.Delete(t.Context(), wl))
	result := expect.Must(look(t, r, jobKey))(t)
	expect.That(t, result.RequeueAfter > 50*time.Second && !inttest.Exists(t, r.deps.client, wl), "The job queues again at once, or in %s", result.RequeueAfter)
}
