// SPDX-License-Identifier: Apache-2.0

package podtracking

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestStoppedJobIsActiveUntilTrainerAnswered(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	// Before it was resumed it had an earlier generation.
	starts := func(e *jobclient.Expectations, job *trainjob.TrainJob) func() {
		before := job.DeepCopy()
		before.Generation--
		return e.ExpectResume(before)
	}
	started := func(e *jobclient.Expectations, _ *clocktesting.FakePassiveClock, job *trainjob.TrainJob) {
		starts(e, job)
	}
	stoppedLongAgo := func(e *jobclient.Expectations, clock *clocktesting.FakePassiveClock, job *trainjob.TrainJob) {
		starts(e, job)
		clock.SetTime(long)
		e.StoppedBeforeResume(job)
		clock.SetTime(time.Now())
	}
	cases := map[string]struct {
		// before is what happened before the job was stopped.
		before func(*jobclient.Expectations, *clocktesting.FakePassiveClock, *trainjob.TrainJob)
		began  time.Time
		// noJobSet: Trainer has not made one, or somebody deleted it.
		noJobSet  bool
		running   bool
		elsewhere bool
		// entryWritten is the time in our patch entry; zero: there is none.
		entryWritten time.Time
		want         bool
	}{
		"it was never started":                                  {began: long},
		"it was started, and Trainer may have that in hand":     {began: long, before: started, want: true},
		"and has no JobSet, which Trainer may be about to make": {began: long, before: started, noJobSet: true, want: true},
		"Trainer had time enough since":                         {began: long, before: stoppedLongAgo},
		"Trainer resumed it, and suspended it again": {began: long, before: func(e *jobclient.Expectations, _ *clocktesting.FakePassiveClock, job *trainjob.TrainJob) {
			starts(e, job)
			e.SawResumed(job)
		}},
		"a job of the same name was started": {began: long, before: func(e *jobclient.Expectations, _ *clocktesting.FakePassiveClock, job *trainjob.TrainJob) {
			former := job.DeepCopy()
			former.UID = "former"
			starts(e, former)
		}},
		"another process may have started it a moment ago": {began: time.Now(), entryWritten: time.Now(), want: true},
		"another process had never placed it":              {began: time.Now()},
		"another process did not write it lately":          {began: time.Now(), entryWritten: long},
		"the start is not in this view": {began: long, before: func(e *jobclient.Expectations, _ *clocktesting.FakePassiveClock, job *trainjob.TrainJob) {
			e.ExpectResume(job)
		}},
		"the start was refused": {began: long, before: func(e *jobclient.Expectations, _ *clocktesting.FakePassiveClock, job *trainjob.TrainJob) {
			starts(e, job)()
		}},
		"it is not stopped":        {began: long, before: started, running: true},
		"it is in another cluster": {began: long, before: started, noJobSet: true, elsewhere: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "a", Generation: 5}}
			job.Spec.Suspend = new(!tc.running)
			if tc.elsewhere {
				job.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue")
			}
			if !tc.entryWritten.IsZero() {
				job.Spec.RuntimePatches = entryAt(t, tc.entryWritten, patch.Placement{Name: "node"})
			}
			builder := inttest.Fake()
			if !tc.noJobSet {
				builder = builder.WithObjects(inttest.JobSetOf(job, true))
			}
			c := builder.Build()
			expectations, clock := testenv.LedSinceByClock(tc.began)
			pods := Pods{View: viewOf(t, c, job), Field: patch.Of(trainjob.Trainer23), Expectations: expectations}
			if tc.before != nil {
				tc.before(expectations, clock, job)
			}
			for range 2 {
				expect.Same(t, "Unexpected Active", tc.want, expect.Must(pods.Active(t.Context(), job))(t))
			}
		})
	}
}

func TestJobSetThatRunsIsTrainersAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		suspended bool
		child     func(*batchv1.Job)
		want      bool
	}{
		"a JobSet and a Job of it run":                 {child: func(j *batchv1.Job) { j.Status.Active = 1 }, want: true},
		"the Job controller says that it has resumed":  {child: func(j *batchv1.Job) { j.Status.StartTime = new(metav1.Now()) }, want: true},
		"the Job controller has not seen that it runs": {child: func(*batchv1.Job) {}},
		"a Job of the run before has ended": {child: func(j *batchv1.Job) {
			j.Status.StartTime = new(metav1.Now())
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
		}},
		"a JobSet is still suspended": {suspended: true, child: func(j *batchv1.Job) { j.Status.Active = 1 }},
	} {
		t.Run(name, func(t *testing.T) {
			job := inttest.Job("a")
			js := inttest.JobSetOf(job, tc.suspended)
			child := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: js.Namespace, Name: "a-node-0",
				Labels: map[string]string{jobsetapi.JobSetNameKey: js.Name}, OwnerReferences: []metav1.OwnerReference{
					*metav1.NewControllerRef(js, jobsetapi.SchemeGroupVersion.WithKind("JobSet"))}}}
			tc.child(child)
			c := inttest.Fake(js, child).Build()
			expectations := testenv.LedSince(time.Time{})
			expectations.ExpectResume(job)
			Pods{View: viewOf(t, c, job), Expectations: expectations}.NoteResumed(job)
			job.Generation++
			_, waits := expectations.StoppedBeforeResume(job)
			expect.That(t, waits != tc.want, "Trainer has answered: %t, want %t", !waits, tc.want)
		})
	}
}

// viewOf returns what c has of a TrainJob.
func viewOf(t *testing.T, c client.Client, job *trainjob.TrainJob) state.View {
	t.Helper()
	return expect.Must(state.Observe(t.Context(), c, client.ObjectKeyFromObject(job)))(t)
}

// entryAt returns our entry, written at a time.
func entryAt(t *testing.T, at time.Time, placements ...patch.Placement) []trainjob.RuntimePatch {
	t.Helper()
	var spec trainjob.Spec
	expect.Must(patch.Of(trainjob.Trainer23).Set(&spec, placements))(t)
	expect.NoError(t, patch.Stamp(spec.RuntimePatches, metav1.NewTime(at)))
	return spec.RuntimePatches
}
