// SPDX-License-Identifier: Apache-2.0

package deactivation

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPending(t *testing.T) {
	is := func(condition string) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{
				Type: condition, Status: metav1.ConditionTrue, Reason: kueue.WorkloadMaximumExecutionTimeExceeded, Message: "exceeding it"})
		}
	}
	inactive := func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(false) }
	cases := map[string]struct {
		changes          []func(*kueue.Workload)
		pending, byKueue bool
		cause, message   string
	}{
		"nobody decided anything": {message: "The workload is deactivated"},
		"somebody did":            {changes: []func(*kueue.Workload){Mark}, pending: true, message: "The workload is deactivated"},
		"Kueue did": {changes: []func(*kueue.Workload){is(kueue.WorkloadDeactivationTarget)}, pending: true, byKueue: true,
			cause: kueue.WorkloadMaximumExecutionTimeExceeded, message: "The workload is deactivated due to exceeding it"},
		"it was deactivated": {changes: []func(*kueue.Workload){Mark, inactive}, message: "The workload is deactivated"},
		"it has finished":    {changes: []func(*kueue.Workload){Mark, is(kueue.WorkloadFinished)}, message: "The workload is deactivated"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			wl := &kueue.Workload{}
			for _, change := range tc.changes {
				change(wl)
			}
			expect.Same(t, "Pending()", tc.pending, Pending(wl))
			expect.Same(t, "ByKueue()", tc.byKueue, ByKueue(wl))
			cause, message := Why(wl)
			expect.Same(t, "Why()", [2]string{tc.cause, tc.message}, [2]string{cause, message})
		})
	}
}
