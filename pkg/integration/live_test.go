// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestStillAdmitted(t *testing.T) {
	going := inttest.AdmittedOf("a", func(wl *kueue.Workload) {
		wl.DeletionTimestamp, wl.Finalizers = &metav1.Time{Time: time.Unix(1, 0)}, []string{"test/hold"}
	})
	foreign := inttest.AdmittedOf("a", func(wl *kueue.Workload) { wl.OwnerReferences[0].UID = "b" })
	tests := map[string]struct {
		live *kueue.Workload
		want bool
	}{
		"it is":                           {live: inttest.AdmittedOf("a"), want: true},
		"it waits":                        {live: inttest.WorkloadOf(inttest.Job("a"))},
		"the Workload is being deleted":   {live: going},
		"the admission is a former job's": {live: inttest.AdmittedOf("b")},
		"there is no Workload":            {},
		"somebody else's has its name":    {live: foreign},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := stillAdmitted(t.Context(), inttest.Fake(some(tc.live)...).Build(), inttest.Job("a"))
			expect.That(t, err == nil && got == tc.want, "stillAdmitted() = %t, %v; want %t", got, err, tc.want)
		})
	}
}

func TestConfirm(t *testing.T) {
	other := func(wl *kueue.Workload) { wl.Status.Admission.ClusterQueue = "other" }
	tests := map[string]struct {
		cached, live *kueue.Workload
		want         error
	}{
		"the admission stands": {cached: inttest.AdmittedOf("a"), live: inttest.AdmittedOf("a")},
		"it is gone":           {cached: inttest.AdmittedOf("a"), live: inttest.AdmittedOf("a", inttest.Isnt(kueue.WorkloadAdmitted, "")), want: errOutdated},
		"it is another one":    {cached: inttest.AdmittedOf("a"), live: inttest.AdmittedOf("a", other), want: errOutdated},
		"the Workload is gone": {cached: inttest.AdmittedOf("a"), want: errOutdated},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			live := inttest.Fake(some(tc.live)...).Build()
			got := confirm(t.Context(), live, tc.cached)
			expect.That(t, errors.Is(got, tc.want), "confirm() = %v, want %v", got, tc.want)
		})
	}
}

func some(wl *kueue.Workload) []client.Object {
	if wl == nil {
		return nil
	}
	return []client.Object{wl}
}
