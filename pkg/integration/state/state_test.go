// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestMayRun(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[func(*kueue.Workload), bool]{
		"it is admitted":           {In: func(*kueue.Workload) {}, Want: true},
		"it waits":                 {In: func(wl *kueue.Workload) { wl.Status.Conditions = nil }},
		"it is evicted":            {In: kit.Is(kueue.WorkloadEvicted, "")},
		"it is deactivated":        {In: kit.Deactivated},
		"it is active in so words": {In: func(wl *kueue.Workload) { wl.Spec.Active = new(true) }, Want: true},
	}, func(t *testing.T, tc expect.Row[func(*kueue.Workload), bool]) {
		wl := inttest.AdmittedOf("a")
		tc.In(wl)
		expect.Same(t, "Unexpected MayRun", tc.Want, state.MayRun(wl))
	})
}

// Kueue leaves condition Evicted there, as False, where it admits a Workload again.
func TestStoppingSince(t *testing.T) {
	early, late := time.Now().Add(-2*time.Hour).Truncate(time.Second), time.Now().Add(-time.Hour).Truncate(time.Second)
	evicted := func(at time.Time) *kueue.Workload {
		return inttest.AdmittedOf("a", kit.Is(kueue.WorkloadEvicted, ""), kit.Since(at))
	}
	admittedAgain := inttest.AdmittedOf("a", kit.Isnt(kueue.WorkloadEvicted, ""), kit.Since(early))
	deleted := kit.With(evicted(early), func(wl *kueue.Workload) { wl.DeletionTimestamp = new(metav1.NewTime(late)) })
	expect.Rows(t, map[string]expect.Row[[]*kueue.Workload, time.Time]{
		"none is stopped":             {In: []*kueue.Workload{inttest.AdmittedOf("a")}},
		"one that is admitted again":  {In: []*kueue.Workload{admittedAgain}},
		"one that is evicted":         {In: []*kueue.Workload{admittedAgain, evicted(late)}, Want: late},
		"one that is deleted by then": {In: []*kueue.Workload{deleted}, Want: late},
		"the first of several":        {In: []*kueue.Workload{evicted(early), evicted(late)}, Want: early},
	}, func(t *testing.T, tc expect.Row[[]*kueue.Workload, time.Time]) {
		began := time.Now()
		got := state.StoppingSince(tc.In)
		expect.That(t, got.Equal(tc.Want) || tc.Want.IsZero() && !got.Before(began), "StoppingSince() = %s, want %s", got, tc.Want)
	})
}

// Of what has the name of a TrainJob, a part is of one before it, and a part of one in another namespace.
func TestViewOfAJob(t *testing.T) {
	job := inttest.Job("a")
	elsewhere, child := inttest.AdmittedOf("a"), kit.ChildJob(inttest.JobSetOf(job, true), "node")
	childElsewhere := child.DeepCopy()
	elsewhere.Namespace, childElsewhere.Namespace = "elsewhere", "elsewhere"
	c := inttest.Fake(inttest.WorkloadOf(job), inttest.AdmittedOf("former"), elsewhere, inttest.JobSetOf(job, true), child, childElsewhere).Build()
	view := expect.Must(state.Observe(t.Context(), c, client.ObjectKeyFromObject(job)))(t)
	expect.Same(t, "Workloads of that name, in its namespace", 2, len(view.Workloads))
	expect.Same(t, "Jobs of that name, in its namespace", 1, len(view.Jobs))
	expect.Same(t, "its own Workloads", 1, len(view.WorkloadsOf(job)))
	expect.Same(t, "its own Jobs", 1, len(view.ChildJobsOf(job)))
	expect.That(t, view.HoldingQuota(job) == nil, "The job holds the quota of a former one")
}

// Trainer names the JobSet as the TrainJob, and so may somebody else name one.
func TestJobSetIsTheJobsOwn(t *testing.T) {
	job, former := inttest.Job("a"), inttest.Job("b")
	expect.Rows(t, map[string]expect.Row[[]metav1.OwnerReference, bool]{
		"the job controls it":                 {In: []metav1.OwnerReference{*metav1.NewControllerRef(job, trainjob.GVK)}, Want: true},
		"a former job of that name does":      {In: []metav1.OwnerReference{*metav1.NewControllerRef(former, trainjob.GVK)}},
		"nobody does":                         {},
		"a kind of another group has its UID": {In: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "TrainJob", Name: "llm", UID: "a", Controller: new(true)}}},
		"a made-up kind has its UID":          {In: []metav1.OwnerReference{{APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "X", Name: "llm", UID: "a", Controller: new(true)}}},
		"the job is an owner, not controller": {In: []metav1.OwnerReference{{APIVersion: trainjob.GVK.GroupVersion().String(), Kind: trainjob.GVK.Kind, Name: "llm", UID: "a"}}},
	}, func(t *testing.T, tc expect.Row[[]metav1.OwnerReference, bool]) {
		js := inttest.JobSetOf(job, true)
		js.OwnerReferences = tc.In
		c := inttest.Fake(js).Build()
		expect.Same(t, "There is a JobSet", tc.Want, expect.Must(state.JobSetOf(t.Context(), c, job))(t) != nil)
	})
}

func TestHasPods(t *testing.T) {
	condition := func(kind batchv1.JobConditionType, status corev1.ConditionStatus) batchv1.JobStatus {
		return batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: kind, Status: status}}}
	}
	terminating := func(status batchv1.JobStatus) batchv1.JobStatus {
		status.Terminating = new(int32(1))
		return status
	}
	type row struct {
		suspended bool
		// deleted is how long ago.
		deleted time.Duration
		status  batchv1.JobStatus
		want    bool
	}
	expect.Rows(t, map[string]row{
		"a Job that was made suspended and never looked at":    {suspended: true},
		"a Job that its controller knows to be suspended":      {suspended: true, status: condition(batchv1.JobSuspended, corev1.ConditionTrue)},
		"a suspended Job whose controller last saw it resumed": {suspended: true, status: condition(batchv1.JobSuspended, corev1.ConditionFalse), want: true},
		"a suspended Job that ran from the beginning":          {suspended: true, status: batchv1.JobStatus{StartTime: new(metav1.Now())}, want: true},
		"a suspended Job with a pod on its way out":            {suspended: true, status: terminating(condition(batchv1.JobSuspended, corev1.ConditionTrue)), want: true},
		"a Job that may run, without a pod yet":                {want: true},
		"a Job that is done":                                   {status: condition(batchv1.JobComplete, corev1.ConditionTrue)},
		"a Job that is deleted, whose controller may be busy":  {deleted: time.Second, want: true},
		"a Job that was deleted and stays":                     {deleted: time.Minute},
		"a Job that was deleted, with a pod on its way out":    {deleted: time.Minute, status: terminating(batchv1.JobStatus{}), want: true},
		"a Job that failed, with a pod on its way out":         {status: terminating(condition(batchv1.JobFailed, corev1.ConditionTrue)), want: true},
	}, func(t *testing.T, tc row) {
		job := batchv1.Job{Status: tc.status}
		if tc.deleted > 0 {
			job.DeletionTimestamp = new(metav1.NewTime(time.Now().Add(-tc.deleted)))
		}
		if tc.suspended {
			job.Spec.Suspend = new(true)
		}
		expect.Same(t, "Unexpected HasPods", tc.want, state.HasPods(job))
	})
}

// As JobSet names them.
func TestJobNames(t *testing.T) {
	js := inttest.JobSetOf(inttest.Job("a"), true, kit.ReplicatedJobs("node", 2)...)
	expect.Same(t, "Unexpected names", []string{"llm-node-0", "llm-node-1"}, state.JobNames(js))
}

func TestLacksPods(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[func(*batchv1.Job), bool]{
		"none is made yet":                            {In: kit.Active(0), Want: true},
		"one of two is there":                         {In: kit.Active(1), Want: true},
		"both are there":                              {In: kit.Active(2)},
		"one has succeeded, and the other is there":   {In: kit.All(kit.Active(1), kit.Succeeded(1))},
		"one has succeeded, and the other is gone":    {In: kit.Succeeded(1), Want: true},
		"both have succeeded, and nobody says so yet": {In: kit.Succeeded(2)},
		"it is done":                                  {In: kit.Completed},
	}, func(t *testing.T, tc expect.Row[func(*batchv1.Job), bool]) {
		child := kit.With(&batchv1.Job{Spec: batchv1.JobSpec{Parallelism: new(int32(2)), Completions: new(int32(2))}}, tc.In)
		expect.Same(t, "Unexpected LacksPods", tc.Want, state.LacksPods(child))
	})
}

func TestChildJobsMade(t *testing.T) {
	two := []jobsetapi.ReplicatedJob{{Name: "a", Replicas: 1}, {Name: "b", Replicas: 2}}
	after := []jobsetapi.ReplicatedJob{two[0], {Name: "b", Replicas: 2, DependsOn: []jobsetapi.DependsOn{{Name: "a"}}}}
	inOrder := &jobsetapi.StartupPolicy{StartupPolicyOrder: jobsetapi.InOrder}
	type row struct {
		spec jobsetapi.JobSetSpec
		made []string
		want bool
	}
	expect.Rows(t, map[string]row{
		"none is made":          {spec: jobsetapi.JobSetSpec{ReplicatedJobs: two}},
		"one is missing":        {spec: jobsetapi.JobSetSpec{ReplicatedJobs: two}, made: []string{"a", "b"}},
		"all are there":         {spec: jobsetapi.JobSetSpec{ReplicatedJobs: two}, made: []string{"a", "b", "b"}, want: true},
		"one waits for another": {spec: jobsetapi.JobSetSpec{ReplicatedJobs: after}, made: []string{"a"}, want: true},
		"they start in order":   {spec: jobsetapi.JobSetSpec{ReplicatedJobs: two, StartupPolicy: inOrder}, made: []string{"a"}},
	}, func(t *testing.T, tc row) {
		jobs := make([]batchv1.Job, len(tc.made))
		for i, of := range tc.made {
			jobs[i].Labels = map[string]string{jobsetapi.ReplicatedJobNameKey: of}
		}
		expect.Same(t, "Unexpected ChildJobsMade", tc.want, state.ChildJobsMade(&jobsetapi.JobSet{Spec: tc.spec}, jobs))
	})
}
