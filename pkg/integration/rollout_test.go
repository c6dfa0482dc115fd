// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestAwaitReading(t *testing.T) {
	long, now := time.Now().Add(-time.Minute), time.Now()
	cases := map[string]struct {
		// made and written are when the JobSet was made and we wrote the job.
		made, written time.Time
		volumes       bool
		wantJobSet    string
		wantEvents    []string
	}{
		"a JobSet that was made just now":           {made: now, written: long, wantJobSet: "suspended", wantEvents: []string{jobevents.ReasonTrainerBehind}},
		"a job that was written just now":           {made: long, written: now, wantJobSet: "suspended", wantEvents: []string{jobevents.ReasonTrainerBehind}},
		"a JobSet that stays as it is":              {made: long, written: long, wantJobSet: "gone", wantEvents: []string{jobevents.ReasonTrainerBehind, jobevents.ReasonJobSetOutdated}},
		"one that would take volume claims with it": {made: long, written: long, volumes: true, wantJobSet: "suspended", wantEvents: []string{jobevents.ReasonTrainerBehind, jobevents.ReasonJobSetOutdated}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stored, js := disagreeing(true, true, true, long)
			js.CreationTimestamp = metav1.NewTime(tc.made)
			if tc.volumes {
				js.Spec.VolumeClaimPolicies = []jobsetapi.VolumeClaimPolicy{{}}
			}
			r, recorder := newReconciler(t, stored, js)
			r.env.expectations, r.env.trainer = testenv.LedSince(tc.written), testenv.Served(t, trainjob.Trainer22)
			env := expect.Must(r.env.now())(t)
			expect.NoError(t, (&attempt{env: env}).awaitRollout(t.Context(), &job{TrainJob: *stored, env: env}))
			expect.Same(t, "Unexpected state of the JobSet", tc.wantJobSet, jobSetState(t, env.client, js))
			var got []string
			for _, event := range eventsSoFar(recorder, "") {
				got = append(got, strings.Fields(event)[1])
			}
			expect.Same(t, "Unexpected events", tc.wantEvents, got)
		})
	}
}
