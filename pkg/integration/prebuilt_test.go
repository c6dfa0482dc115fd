// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/util/equality"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// jobframework compares containers and tolerations, and starts a job whose prebuilt Workload has those.
func TestPrebuiltWorkloadHasWhatTheJobIsChargedFor(t *testing.T) {
	tests := map[string]struct {
		change func(*kueue.PodSet)
		want   bool
	}{
		"the same":       {change: func(*kueue.PodSet) {}, want: true},
		"other pods":     {change: func(ps *kueue.PodSet) { ps.Count++ }},
		"ranks left out": {change: func(ps *kueue.PodSet) { ps.TopologyRequest = nil }, want: true},
		"another topology": {change: func(ps *kueue.PodSet) {
			ps.TopologyRequest = &kueue.PodSetTopologyRequest{Required: new("block")}
		}},
		"another runtime class": {change: func(ps *kueue.PodSet) { ps.Template.Spec.RuntimeClassName = new("slim") }},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, _ := disagreeing(true, false, false, time.Now())
			wl := inttest.WorkloadOf(stored)
			stored.Labels[kueueconstants.PrebuiltWorkloadLabel] = wl.Name
			r, _ := newReconciler(t, stored)
			wl.Spec.PodSets = expect.Must(jobOf(t, r, stored).describe(t.Context()))(t)
			tc.change(&wl.Spec.PodSets[0])
			expect.NoError(t, r.deps.client.Create(t.Context(), wl))
			got := expect.Must(jobOf(t, r, stored).PodSets(t.Context(), nil))(t)
			expect.Same(t, "jobframework takes the Workload for the job's", tc.want, equality.ComparePodSetSlices(got, wl.Spec.PodSets))
		})
	}
}
