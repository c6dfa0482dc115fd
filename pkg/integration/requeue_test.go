// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// A Workload that is not replaced while it gives its quota back stays deactivated.
func TestDeactivatedWorkloadStays(t *testing.T) {
	cases := map[string]struct {
		evicted  bool
		wantSkip bool
	}{
		"before Kueue evicts it, the reconcile is over": {wantSkip: true},
		"evicted, it is what describes the job":         {evicted: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wl := inttest.AdmittedOf("a", inttest.Deactivated)
			wl.Spec.PodSets = []kueue.PodSet{{Name: "as-it-ran", Count: 4}}
			if tc.evicted {
				inttest.Is(kueue.WorkloadEvicted, "")(wl)
			}
			r, _ := newReconciler(t, wl)
			j := jobOf(r, inttest.Job("a"))
			j.Suspend()
			got := j.follow(t.Context())
			expect.That(t, got.err == nil && got.ends() == tc.wantSkip, "follow() = %+v, want it to end here: %t", got, tc.wantSkip)
			if got.ends() {
				return
			}
			expect.Same(t, "Unexpected PodSets", wl.Spec.PodSets, expect.Must(j.PodSets(t.Context(), nil))(t))
		})
	}
}

// One that is deleted is stopped for by jobframework only as long as it matches, whatever its runtime
// says by now.
func TestDeletedWorkloadDescribesTheJob(t *testing.T) {
	wl := inttest.AdmittedOf("a")
	wl.Spec.PodSets, wl.Finalizers = []kueue.PodSet{{Name: "as-it-ran", Count: 4}}, []string{kueue.ResourceInUseFinalizerName}
	r, _ := newReconciler(t, wl)
	expect.NoError(t, r.env.client.Delete(t.Context(), wl))
	j := jobOf(r, inttest.Job("a"))
	j.Suspend()
	j.active, j.described = ptr.To(false), []kueue.PodSet{{Name: "as-it-would-run", Count: 2}}
	expect.Same(t, "Unexpected PodSets", wl.Spec.PodSets, expect.Must(j.PodSets(t.Context(), nil))(t))
}
