// SPDX-License-Identifier: Apache-2.0

package podtracking

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestStoppedJobIsActiveUntilTrainerAnswered(t *testing.T) {
	long := time.Now().Add(-time.Hour)
	// past is what the manager remembers of a job before it was stopped.
	type past struct {
		*jobclient.Expectations
		clock *clocktesting.FakePassiveClock
		job   *trainjob.TrainJob
	}
	// Before it was resumed it had an earlier generation.
	starts := func(p past) func() {
		before := p.job.DeepCopy()
		before.Generation--
		return p.ExpectResume(before)
	}
	started := func(p past) { starts(p) }
	stoppedLongAgo := func(p past) {
		starts(p)
		p.clock.SetTime(long)
		p.StoppedBeforeResume(p.job)
		p.clock.SetTime(time.Now())
	}
	running := func(job *trainjob.TrainJob) { job.Spec.Suspend = new(false) }
	elsewhere := func(job *trainjob.TrainJob) { job.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue") }
	placed := func(at time.Time) func(*trainjob.TrainJob) {
		return func(job *trainjob.TrainJob) { job.Spec.RuntimePatches = entryAt(t, at, patch.Placement{Name: "node"}) }
	}
	cases := map[string]struct {
		began  time.Time
		before func(past)
		change func(*trainjob.TrainJob)
		// noJobSet: Trainer has not made one, or somebody deleted it.
		noJobSet bool
		want     bool
	}{
		"it was never started":                                  {began: long},
		"it was started, and Trainer may have that in hand":     {began: long, before: started, want: true},
		"and has no JobSet, which Trainer may be about to make": {began: long, before: started, noJobSet: true, want: true},
		"Trainer had time enough since":                         {began: long, before: stoppedLongAgo},
		"Trainer resumed it, and suspended it again":            {began: long, before: func(p past) { starts(p); p.SawResumed(p.job) }},
		"a job of the same name was started": {began: long, before: func(p past) {
			p.job = kit.With(p.job.DeepCopy(), func(job *trainjob.TrainJob) { job.UID = "former" })
			starts(p)
		}},
		"another process may have started it a moment ago": {began: time.Now(), change: placed(time.Now()), want: true},
		"another process had never placed it":              {began: time.Now()},
		"another process did not write it lately":          {began: time.Now(), change: placed(long)},
		"the start is not in this view":                    {began: long, before: func(p past) { p.ExpectResume(p.job) }},
		"the start was refused":                            {began: long, before: func(p past) { starts(p)() }},
		"it is not stopped":                                {began: long, before: started, change: running},
		"it is in another cluster":                         {began: long, before: started, noJobSet: true, change: elsewhere},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := inttest.Job("a")
			job.Generation, job.Spec.Suspend = 5, new(true)
			kit.With(job, tc.change)
			var there []client.Object
			if !tc.noJobSet {
				there = append(there, inttest.JobSetOf(job, true))
			}
			c := inttest.Fake(there...).Build()
			expectations, clock := testenv.LedSinceByClock(tc.began)
			pods := Pods{View: viewOf(t, c, job), Field: patch.Of(trainjob.Trainer23), Expectations: expectations}
			if tc.before != nil {
				tc.before(past{expectations, clock, job})
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
		"a JobSet and a Job of it run":                 {child: kit.Active(1), want: true},
		"the Job controller says that it has resumed":  {child: func(j *batchv1.Job) { j.Status.StartTime = new(metav1.Now()) }, want: true},
		"the Job controller has not seen that it runs": {},
		"a Job of the run before has ended":            {child: kit.All(kit.Completed, func(j *batchv1.Job) { j.Status.StartTime = new(metav1.Now()) })},
		"a JobSet is still suspended":                  {suspended: true, child: kit.Active(1)},
	} {
		t.Run(name, func(t *testing.T) {
			job := inttest.Job("a")
			js := inttest.JobSetOf(job, tc.suspended)
			c := inttest.Fake(js, kit.ChildJob(js, "node", tc.child)).Build()
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
