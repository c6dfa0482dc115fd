// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// Somebody's webhook may have every JobSet ask for more than its TrainJob does.
func TestDriftedJobSetIsReplacedOnce(t *testing.T) {
	tests := map[string]struct {
		age                   time.Duration
		wantJobSet, wantQuota bool
		wantTold              string
	}{
		"an old JobSet is replaced":                 {age: time.Hour, wantQuota: true, wantTold: jobevents.ReasonJobSetOutdated},
		"a new one has the job give its quota back": {age: time.Second, wantJobSet: true, wantTold: jobevents.ReasonCannotStart},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, js := suspendedJob()
			js.CreationTimestamp = metav1.NewTime(time.Now().Add(-tc.age))
			js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{Name: "node", Replicas: 2}}
			wl := inttest.WorkloadOf(stored, inttest.Admitted)
			r, recorder := newReconciler(t, js, wl)
			r.env.starts = newStarts(time.Minute)
			expect.NoError(t, r.renewExceeding(t.Context(), &job{TrainJob: *stored, env: r.env, start: start{excess: "replicated job node has 2 pods instead of 1"}}))
			expect.Same(t, "The JobSet is kept", tc.wantJobSet, inttest.Exists(t, r.env.client, js))
			expect.Same(t, "The quota is kept", tc.wantQuota, inttest.Exists(t, r.env.client, wl))
			wantTold(t, eventsSoFar(recorder, ""), tc.wantTold)
		})
	}
}
