// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func suspended(job *batchv1.Job) { job.Spec.Suspend = new(true) }

func TestAwaitTrainer(t *testing.T) {
	type row struct {
		// suspended: the TrainJob, what Trainer says of it, the JobSet.
		job, said, jobSet bool
		// written is how long ago the TrainJob was.
		written time.Duration
		// begun is set where a start is under way that was taken back.
		begun bool
		// changed is set where it is seen to be changed just now.
		changed  bool
		change   func(*trainjob.TrainJob)
		wantWait bool
		wantTold string
	}
	expect.Rows(t, map[string]row{
		"Trainer has heard":                         {job: true, said: true, jobSet: true, written: time.Hour},
		"what it heard is for somebody else":        {job: true, said: true, jobSet: false, written: time.Hour},
		"a stop just now":                           {job: true, said: false, jobSet: false, wantWait: true},
		"a stop that Trainer may still undo":        {job: true, said: true, jobSet: true, written: time.Hour, begun: true, wantWait: true},
		"a stop long ago":                           {job: true, said: false, jobSet: false, written: time.Hour, wantWait: true, wantTold: "still runs"},
		"a stop by somebody else just now":          {job: true, said: false, jobSet: false, written: time.Hour, changed: true, wantWait: true},
		"a start just now":                          {job: false, said: true, jobSet: true, wantWait: true},
		"a start long ago":                          {job: false, said: true, jobSet: true, written: time.Hour, wantWait: true, wantTold: "is still suspended"},
		"a start that the JobSet shows already":     {job: false, said: true, jobSet: false, written: time.Hour},
		"a job that is not Kueue's":                 {job: true, said: false, jobSet: false, written: time.Hour, change: withoutQueue},
		"a stop that the JobSet shows, with a gate": {job: true, said: false, jobSet: true, written: time.Hour},
	}, func(t *testing.T, tc row) {
		stored, js := disagreeing(tc.job, tc.said, tc.jobSet, time.Now())
		r, recorder := newReconciler(t, kit.With(stored, tc.change), js)
		r.deps.expectations = testenv.LedSince(time.Now().Add(-tc.written))
		if tc.begun {
			r.deps.expectations.ExpectResume(stored)
			stored.Generation++
		}
		if tc.changed {
			r.deps.expectations.Satisfied(stored)
		}
		wait := awaitTrainer(t.Context(), jobOf(t, r, stored)).again
		expect.That(t, (wait > 0) == tc.wantWait && wait <= trainerSilent, "awaitTrainer() = %s; want to wait: %t", wait, tc.wantWait)
		wantTold(t, eventsSoFar(recorder, ""), tc.wantTold)
	})
}
