// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// Quota must not hang on a ConfigMap that every tenant can break.
func TestStopNeedsNoRuntime(t *testing.T) {
	tests := map[string]struct {
		// entry and jobSet name the replicated jobs of the job.
		entry, jobSet bool
		snapshot      string
		wantGate      bool
		wantTold      bool
	}{
		"our entry names what the runtime did":   {entry: true, snapshot: "no: [runtime", wantGate: true, wantTold: true},
		"the JobSet names it":                    {jobSet: true, snapshot: "no: [runtime", wantGate: true, wantTold: true},
		"nothing names it, so nothing could run": {snapshot: "no: [runtime", wantTold: true},
		"a snapshot without replicated jobs":     {entry: true, snapshot: "spec: {}", wantGate: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, js := disagreeing(false, false, true, time.Now().Add(-time.Minute))
			if tc.entry {
				place(t, stored, patch.Placement{Name: "node"})
			}
			js.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{Name: "node"}}
			r, recorder := newReconciler(t, stored, snapshotFor(stored, tc.snapshot))
			if tc.jobSet {
				expect.NoError(t, r.env.client.Create(t.Context(), js))
			}
			for range 2 {
				expect.Must(jobOf(r, storedJob(t, r)).Stop(t.Context(), r.env.client, nil, jobframework.StopReasonWorkloadEvicted, ""))(t)
			}
			stored = storedJob(t, r)
			expect.That(t, stored.Suspended() && r.env.Field.HoldsGate(&stored.Spec) == tc.wantGate,
				"suspended: %t, at the gate: %t, want %t", stored.Suspended(), r.env.Field.HoldsGate(&stored.Spec), tc.wantGate)
			told := eventsSoFar(recorder, "Warning "+jobevents.ReasonNotDescribed)
			expect.That(t, (len(told) == 1 && strings.Contains(told[0], "job-runtime-snapshot")) == tc.wantTold,
				"The user is told %q, want: %t", told, tc.wantTold)
		})
	}
}

// snapshotFor is what stands where Trainer froze the runtime of a job.
func snapshotFor(job client.Object, content string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: inttest.Owned(job, job.GetName()+"-runtime-snapshot"), Data: map[string]string{"runtime": content},
	}
}
