// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"context"
	"errors"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// counting counts what it is asked for, and fails the first time.
type counting struct {
	asked map[string]int
}

func (c counting) ask(what string) error {
	if c.asked[what]++; c.asked[what] == 1 {
		return errors.New("not in step yet")
	}
	return nil
}

func (c counting) Workloads(context.Context, types.NamespacedName) ([]kueue.Workload, error) {
	return []kueue.Workload{{ObjectMeta: named("a")}, {ObjectMeta: named("b")}}, c.ask("Workloads")
}

func (c counting) JobSet(context.Context, types.NamespacedName) (*jobsetapi.JobSet, error) {
	return nil, c.ask("JobSet")
}

func (c counting) Jobs(context.Context, types.NamespacedName) ([]batchv1.Job, error) {
	return []batchv1.Job{{ObjectMeta: named("a")}, {ObjectMeta: named("b")}}, c.ask("Jobs")
}

func named(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// A list that one caller changes is whole for the next, what is not there is known as well,
// and an error is no answer.
func TestOnce(t *testing.T) {
	c := counting{asked: map[string]int{}}
	r, name := state.Once(c), types.NamespacedName{Namespace: "team", Name: "llm"}
	for i := range 4 {
		workloads, errWorkloads := r.Workloads(t.Context(), name)
		_, errJobSet := r.JobSet(t.Context(), name)
		jobs, errJobs := r.Jobs(t.Context(), name)
		err := errors.Join(errWorkloads, errJobSet, errJobs)
		expect.Need(t, (err != nil) == (i == 0), "Look %d: %v", i, err)
		expect.That(t, i == 0 || len(workloads) == 2 && workloads[0].Name == "a" && len(jobs) == 2 && jobs[0].Name == "a",
			"Look %d has Workloads %v and Jobs %v, want a and b of each", i, workloads, jobs)
		clear(workloads)
		clear(jobs)
	}
	expect.Must(state.Latest(r).JobSet(t.Context(), name))(t)
	expect.Same(t, "Unexpected reads", map[string]int{"Workloads": 2, "JobSet": 3, "Jobs": 2}, c.asked)
}

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
			expect.Same(t, "There is a JobSet", tc.want, expect.Must(state.JobSetOf(t.Context(), state.FromCache(c), job))(t) != nil)
		})
	}
}
