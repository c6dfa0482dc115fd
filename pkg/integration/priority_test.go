// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// jobframework looks for a class that is new to a Workload before it does anything else.
func TestKeepPriority(t *testing.T) {
	tests := map[string]struct {
		named string
		// starts is set where the job waits, and its Workload is admitted.
		starts bool
		// charged is the class of the job's Workload; nil: it has none.
		charged  *string
		want     string
		wantTold string
	}{
		"a class that is there":                       {named: "there", charged: new("low"), want: "there"},
		"one that is not":                             {named: "gone", charged: new("low"), want: "low", wantTold: `PriorityClassMissing keeps the priority that it has, if any: workloadpriorityclasses.kueue.x-k8s.io "gone" not found`},
		"one that is not, of a job that starts":       {named: "gone", charged: new("low"), starts: true, want: "gone"},
		"one that was deleted since":                  {named: "gone", charged: new("gone"), want: "gone"},
		"one that is not, of a job without":           {named: "gone", charged: new(""), wantTold: "PriorityClassMissing"},
		"one that is not, of a job without Workload":  {named: "gone", want: "gone"},
		"no class at all, where the Workload has one": {charged: new("low")},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, _ := disagreeing(tc.starts, false, false, time.Now())
			if tc.named != "" {
				stored.Labels[kit.PriorityLabel] = tc.named
			}
			objects := []client.Object{stored, kit.Priority("there", 1)}
			if tc.charged != nil {
				wl := inttest.WorkloadOf(stored, inttest.Admitted)
				if *tc.charged != "" {
					wl.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(*tc.charged)
				}
				objects = append(objects, wl)
			}
			r, recorder := newReconciler(t, objects...)
			j := jobOf(t, r, stored.DeepCopy())
			expect.NoError(t, keepPriority(t.Context(), j).err)
			expect.Same(t, "jobframework sees another class", tc.want, j.Labels[kit.PriorityLabel])
			expect.Same(t, "The TrainJob is written", tc.named, storedJob(t, r).Labels[kit.PriorityLabel])
			wantTold(t, eventsSoFar(recorder, "Warning"), tc.wantTold)
		})
	}
}
