// SPDX-License-Identifier: Apache-2.0

package state

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
)

func TestMayRun(t *testing.T) {
	tests := map[string]struct {
		change func(*kueue.Workload)
		want   bool
	}{
		"it is admitted":           {change: func(*kueue.Workload) {}, want: true},
		"it waits":                 {change: func(wl *kueue.Workload) { wl.Status.Conditions = nil }},
		"it is evicted":            {change: func(wl *kueue.Workload) { is(wl, kueue.WorkloadEvicted) }},
		"it is deactivated":        {change: func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(false) }},
		"it is active in so words": {change: func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(true) }, want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wl := inttest.WorkloadOf("a", true)
			tc.change(wl)
			if got := MayRun(wl); got != tc.want {
				t.Errorf("MayRun = %t, want %t", got, tc.want)
			}
		})
	}
}

// is sets a condition.
func is(wl *kueue.Workload, condition string) {
	wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
}
