// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestMayRun(t *testing.T) {
	tests := map[string]struct {
		change func(*kueue.Workload)
		want   bool
	}{
		"it is admitted":           {change: func(*kueue.Workload) {}, want: true},
		"it waits":                 {change: func(wl *kueue.Workload) { wl.Status.Conditions = nil }},
		"it is evicted":            {change: inttest.Is(kueue.WorkloadEvicted, "")},
		"it is deactivated":        {change: inttest.Deactivated},
		"it is active in so words": {change: func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(true) }, want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			wl := inttest.AdmittedOf("a")
			tc.change(wl)
			expect.Same(t, "Unexpected MayRun", tc.want, state.MayRun(wl))
		})
	}
}

// Trainer names the JobSet as the TrainJob, and so may somebody else name one.
func TestJobSetIsTheJobsOwn(t *testing.T) {
	job, former := inttest.Job("a"), inttest.Job("b")
	tests := map[string]struct {
		owners []metav1.OwnerReference
		want   bool
	}{
		"the job controls it":                 {owners: []metav1.OwnerReference{*metav1.NewControllerRef(job, trainjob.GVK)}, want: true},
		"a former job of that name does":      {owners: []metav1.OwnerReference{*metav1.NewControllerRef(former, trainjob.GVK)}},
		"nobody does":                         {},
		"the job is an owner, not controller": {owners: []metav1.OwnerReference{{APIVersion: trainjob.GVK.GroupVersion().String(), Kind: trainjob.GVK.Kind, Name: "llm", UID: "a"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			js := inttest.JobSetOf(job, true)
			js.OwnerReferences = tc.owners
			c := inttest.Fake(js).Build()
			expect.Same(t, "There is a JobSet", tc.want, expect.Must(state.JobSetOf(t.Context(), c, job))(t) != nil)
		})
	}
}
