// SPDX-License-Identifier: Apache-2.0

package deactivation

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPending(t *testing.T) {
	made, decided := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC)
	marked := func(wl *kueue.Workload) { Mark(wl, decided) }
	is := func(condition, reason string, at time.Time) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{
				Type: condition, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.NewTime(at)})
		}
	}
	overTime := is(kueue.WorkloadDeactivationTarget, kueue.WorkloadMaximumExecutionTimeExceeded, decided)
	cases := map[string]struct {
		changes []func(*kueue.Workload)
		since   time.Time
		byKueue bool
		reason  string
	}{
		"nobody decided anything": {reason: "Deactivated"},
		"somebody did":            {changes: []func(*kueue.Workload){marked}, since: decided, reason: "Deactivated"},
		"Kueue did":               {changes: []func(*kueue.Workload){overTime}, since: decided, byKueue: true, reason: "DeactivatedDueToMaximumExecutionTimeExceeded"},
		"a mark that is no time is one": {changes: []func(*kueue.Workload){func(wl *kueue.Workload) {
			wl.Annotations = map[string]string{Annotation: "now"}
		}}, since: made, reason: "Deactivated"},
		"it was deactivated": {changes: []func(*kueue.Workload){marked, func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(false) }}, reason: "Deactivated"},
		"it has finished":    {changes: []func(*kueue.Workload){marked, is(kueue.WorkloadFinished, "", decided)}, reason: "Deactivated"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(made)}}
			for _, change := range tc.changes {
				change(wl)
			}
			expect.That(t, Since(wl).Equal(tc.since), "Since() = %s, want %s", Since(wl), tc.since)
			expect.Same(t, "Pending()", !tc.since.IsZero(), Pending(wl))
			expect.Same(t, "ByKueue()", tc.byKueue, ByKueue(wl))
			expect.Same(t, "Reason()", tc.reason, Reason(wl))
		})
	}
}
