// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestAwaitTrainer(t *testing.T) {
	tests := map[string]struct {
		// suspended: the TrainJob, what Trainer says of it, the JobSet.
		job, said, jobSet bool
		// written is how long ago the TrainJob was.
		written time.Duration
		// changed is set where it is seen to be changed just now.
		changed   bool
		notKueues bool

		wantWait bool
		wantTold string
	}{
		"Trainer has heard":                         {job: true, said: true, jobSet: true, written: time.Hour},
		"what it heard is for somebody else":        {job: true, said: true, jobSet: false, written: time.Hour},
		"a stop just now":                           {job: true, said: false, jobSet: false, wantWait: true},
		"a stop long ago":                           {job: true, said: false, jobSet: false, written: time.Hour, wantWait: true, wantTold: "still runs"},
		"a stop by somebody else just now":          {job: true, said: false, jobSet: false, written: time.Hour, changed: true, wantWait: true},
		"a start just now":                          {job: false, said: true, jobSet: true, wantWait: true},
		"a start long ago":                          {job: false, said: true, jobSet: true, written: time.Hour, wantWait: true, wantTold: "is still suspended"},
		"a start that the JobSet shows already":     {job: false, said: true, jobSet: false, written: time.Hour},
		"a job that is not Kueue's":                 {job: true, said: false, jobSet: false, written: time.Hour, notKueues: true},
		"a stop that the JobSet shows, with a gate": {job: true, said: false, jobSet: true, written: time.Hour},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, js := disagreeing(tc.job, tc.said, tc.jobSet, time.Now())
			if tc.notKueues {
				stored.Labels = nil
			}
			r, recorder := newReconciler(t, stored, js)
			r.env.expectations = testenv.LedSince(time.Now().Add(-tc.written))
			if tc.changed {
				r.env.expectations.Satisfied(stored)
			}
			wait, err := r.awaitTrainer(t.Context(), jobOf(r, stored))
			expect.That(t, err == nil && (wait > 0) == tc.wantWait && wait <= trainerSilent,
				"awaitTrainer() = %s, %v; want to wait: %t", wait, err, tc.wantWait)
			wantTold(t, eventsSoFar(recorder, ""), tc.wantTold)
		})
	}
}
