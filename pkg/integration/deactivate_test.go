// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestDeactivation(t *testing.T) {
	overTime := kit.Says(metav1.Condition{
		Type: kueue.WorkloadDeactivationTarget, Status: metav1.ConditionTrue, Reason: kueue.WorkloadMaximumExecutionTimeExceeded, Message: "exceeding it"})
	evicted := func(reason string) func(*kueue.Workload) { return kit.Is(kueue.WorkloadEvicted, reason) }
	waits := func(wl *kueue.Workload) { wl.Status = kueue.WorkloadStatus{} }
	type stored struct {
		Evicted        string
		Active, Marked bool
	}
	cases := map[string]struct {
		workload func(*kueue.Workload)
		deleted  bool
		// podsLeft is for jobs that are stopped meanwhile.
		podsLeft bool
		want     stored
		wantOver bool
	}{
		"nobody deactivates it":                      {want: stored{Active: true}},
		"a marked Workload is evicted":               {workload: kit.All(deactivation.Mark), want: stored{Evicted: "Deactivated", Active: true, Marked: true}, wantOver: true},
		"so is one that Kueue is about to, by cause": {workload: kit.All(overTime), want: stored{Evicted: "DeactivatedDueToMaximumExecutionTimeExceeded", Active: true}, wantOver: true},
		"one that was preempted is no more queued": {
			workload: kit.All(deactivation.Mark, evicted(kueue.WorkloadEvictedByPreemption)), want: stored{Evicted: "Deactivated", Active: true, Marked: true}, wantOver: true},
		"an evicted one keeps its quota for pods": {
			workload: kit.All(deactivation.Mark, evicted(kueue.WorkloadDeactivated)), podsLeft: true, want: stored{Evicted: "Deactivated", Active: true, Marked: true}},
		"without pods it is deactivated":                     {workload: kit.All(deactivation.Mark, evicted(kueue.WorkloadDeactivated)), want: stored{Evicted: "Deactivated"}},
		"one without quota is deactivated at once":           {workload: kit.All(deactivation.Mark, waits), wantOver: true},
		"one that is deactivated loses its mark":             {workload: kit.All(deactivation.Mark, kit.Deactivated), wantOver: true},
		"one that is deleted gives its quota back with that": {workload: kit.All(deactivation.Mark), deleted: true, want: stored{Active: true, Marked: true}},
		"one that has finished has none":                     {workload: kit.All(deactivation.Mark, kit.Is(kueue.WorkloadFinished, "")), want: stored{Active: true, Marked: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job, _ := suspendedJob()
			wl := inttest.WorkloadOf(job, kit.Admitted)
			kit.With(wl, tc.workload)
			wl.Finalizers, wl.Spec.MaximumExecutionTimeSeconds = []string{kueue.ResourceInUseFinalizerName}, new(int32(60))
			r, _ := newReconciler(t)
			c := inttest.Fake(inttest.Runtime(), job, wl).WithStatusSubresource(wl).Build()
			r.deps.client, r.deps.live = c, inttest.PodsByPhase(c)
			if tc.deleted {
				expect.NoError(t, r.deps.client.Delete(t.Context(), wl))
			}
			j := jobOf(t, r, job)
			got := startDeactivation(t.Context(), j)
			expect.NoError(t, got.err)
			expect.Same(t, "The reconcile is over", tc.wantOver, got.ends())
			if !got.ends() && !tc.deleted {
				expect.Same(t, "jobframework takes the job for the Workload's", tc.want.Evicted != "", sameTimeLimit(wl, &j.TrainJob))
				j.podsThere = &podsAnswer{may: tc.podsLeft}
				_, err := j.Stop(t.Context(), r.deps.client, nil, jobframework.StopReasonWorkloadEvicted, "")
				expect.Same(t, "jobframework goes on", tc.want.Active, !errors.Is(err, errOutdated))
			}
			expect.NoError(t, r.deps.client.Get(t.Context(), client.ObjectKeyFromObject(wl), wl))
			reason := ""
			if condition := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted); condition != nil {
				reason = condition.Reason
			}
			expect.Same(t, "Unexpected Workload", tc.want, stored{reason, ptr.Deref(wl.Spec.Active, true), deactivation.Marked(wl)})
		})
	}
}
