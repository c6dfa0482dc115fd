// SPDX-License-Identifier: Apache-2.0

package deactivation

import (
	"testing"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPending(t *testing.T) {
	is := func(condition string) func(*kueue.Workload) {
		because := kit.True(condition, kueue.WorkloadMaximumExecutionTimeExceeded)
		because.Message = "exceeding it"
		return kit.Says(because)
	}
	type row struct {
		changes          []func(*kueue.Workload)
		pending, byKueue bool
		cause, message   string
	}
	expect.Rows(t, map[string]row{
		"nobody decided anything": {message: "The workload is deactivated"},
		"somebody did":            {changes: []func(*kueue.Workload){Mark}, pending: true, message: "The workload is deactivated"},
		"Kueue did": {changes: []func(*kueue.Workload){is(kueue.WorkloadDeactivationTarget)}, pending: true, byKueue: true,
			cause: kueue.WorkloadMaximumExecutionTimeExceeded, message: "The workload is deactivated due to exceeding it"},
		"Kueue did not, in so words": {changes: []func(*kueue.Workload){kit.Isnt(kueue.WorkloadDeactivationTarget, "")}, message: "The workload is deactivated"},
		"it was deactivated by Kueue": {changes: []func(*kueue.Workload){is(kueue.WorkloadDeactivationTarget), kit.Deactivated},
			cause: kueue.WorkloadMaximumExecutionTimeExceeded, message: "The workload is deactivated due to exceeding it"},
		"it was deactivated": {changes: []func(*kueue.Workload){Mark, kit.Deactivated}, message: "The workload is deactivated"},
		"it has finished":    {changes: []func(*kueue.Workload){Mark, is(kueue.WorkloadFinished)}, message: "The workload is deactivated"},
	}, func(t *testing.T, tc row) {
		wl := kit.With(&kueue.Workload{}, tc.changes...)
		expect.Same(t, "Pending()", tc.pending, Pending(wl))
		expect.Same(t, "ByKueue()", tc.byKueue, ByKueue(wl))
		cause, message := Why(wl)
		expect.Same(t, "Why()", [2]string{tc.cause, tc.message}, [2]string{cause, message})
	})
}
