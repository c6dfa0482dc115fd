// SPDX-License-Identifier: Apache-2.0

package state_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
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

func going(wl *kueue.Workload) {
	wl.DeletionTimestamp, wl.Finalizers = new(metav1.Now()), []string{"test/hold"}
}

func TestStillAdmitted(t *testing.T) {
	foreign := inttest.AdmittedOf("a", func(wl *kueue.Workload) { wl.OwnerReferences[0].UID = "b" })
	type live = []client.Object
	expect.Rows(t, map[string]expect.Row[live, bool]{
		"it is":                           {In: live{inttest.AdmittedOf("a")}, Want: true},
		"it waits":                        {In: live{inttest.WorkloadOf(inttest.Job("a"))}, Want: false},
		"the Workload is being deleted":   {In: live{inttest.AdmittedOf("a", going)}, Want: false},
		"the admission is a former job's": {In: live{inttest.AdmittedOf("b")}, Want: false},
		"there is no Workload":            {In: nil, Want: false},
		"somebody else's has its name":    {In: live{foreign}, Want: false},
		"the job has another time limit":  {In: live{inttest.AdmittedOf("a", func(wl *kueue.Workload) { wl.Spec.MaximumExecutionTimeSeconds = new(int32(60)) })}, Want: false},
	}, func(t *testing.T, tc expect.Row[live, bool]) {
		got, err := state.StillAdmitted(t.Context(), inttest.Fake(tc.In...).Build(), inttest.Job("a"))
		expect.That(t, err == nil && got == tc.Want, "StillAdmitted() = %t, %v; want %t", got, err, tc.Want)
	})
}

func TestAdmissionStands(t *testing.T) {
	other := func(wl *kueue.Workload) { wl.Status.Admission.ClusterQueue = "other" }
	provisioned := func(request string) func(*kueue.Workload) {
		return func(wl *kueue.Workload) {
			wl.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "nodes", State: kueue.CheckStateReady,
				PodSetUpdates: []kueue.PodSetUpdate{{Name: "node", Annotations: map[string]string{"request": request}}}}}
		}
	}
	admitted, nodes := inttest.AdmittedOf("a"), inttest.AdmittedOf("a", provisioned("1"))
	type row struct{ cached, live *kueue.Workload }
	for want, rows := range map[bool]map[string]row{
		true: {
			"the admission stands":          {admitted, inttest.AdmittedOf("a")},
			"a check adds the same to pods": {nodes, inttest.AdmittedOf("a", provisioned("1"))},
		},
		false: {
			"it adds what it did not before": {nodes, inttest.AdmittedOf("a", provisioned("2"))},
			"it is gone":                     {admitted, inttest.AdmittedOf("a", kit.Isnt(kueue.WorkloadAdmitted, ""))},
			"it is another one":              {admitted, inttest.AdmittedOf("a", other)},
			"it is another Workload's":       {admitted, inttest.AdmittedOf("a", func(wl *kueue.Workload) { wl.UID = "next" })},
			"the Workload is gone":           {admitted, inttest.AdmittedOf("another")},
			"the Workload is being deleted":  {admitted, inttest.AdmittedOf("a", going)},
		},
	} {
		expect.Rows(t, rows, func(t *testing.T, tc row) {
			got, err := state.AdmissionStands(t.Context(), inttest.Fake(tc.live).Build(), tc.cached)
			expect.That(t, err == nil && got == want, "AdmissionStands() = %t, %v; want %t", got, err, want)
		})
	}
}

func TestAFormerJobIsNotCurrent(t *testing.T) {
	job := inttest.Job("a")
	js := inttest.JobSetOf(job, true)
	job.Spec.Suspend = new(true)
	live := inttest.Fake(job, js).Build()
	former := job.DeepCopy()
	former.UID, former.ResourceVersion = "former", "0"
	current, err := state.AreCurrent(t.Context(), live, former, js)
	expect.That(t, err == nil && !current, "AreCurrent() = %t, %v", current, err)
}

// inPages lists page by page as the API server does, and counts what it is asked. A page of more objects than a few
// of a megabyte each is refused.
func inPages(c client.Client, asked *int) client.Client {
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			*asked++
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			*asked++
			var options client.ListOptions
			options.ApplyOptions(opts)
			if options.Limit == 0 || options.Limit > 10 {
				return errors.New("a list that has no end")
			}
			if err := c.List(ctx, list, &client.ListOptions{Namespace: options.Namespace, LabelSelector: options.LabelSelector}); err != nil {
				return err
			}
			all, err := apimeta.ExtractList(list)
			if err != nil {
				return err
			}
			from, _ := strconv.Atoi(options.Continue)
			to := min(from+int(options.Limit), len(all))
			if list.SetContinue(""); to < len(all) {
				list.SetContinue(strconv.Itoa(to))
			}
			return apimeta.SetList(list, all[from:to])
		},
	})
}

func TestEachChildJob(t *testing.T) {
	js := inttest.JobSetOf(inttest.Job("a"), false)
	type row struct{ own, strange, asked int }
	expect.Rows(t, map[string]row{
		"a job has a few child Jobs": {own: 3, asked: 1},
		"it has many":                {own: 12, asked: 2},
		"somebody labels Jobs":       {own: 1, strange: 12, asked: 2},
	}, func(t *testing.T, tc row) {
		var jobs []client.Object
		for i := range tc.own + tc.strange {
			child := kit.ChildJob(js, fmt.Sprintf("%02d", i))
			if i < tc.strange {
				child.OwnerReferences[0].Kind = "X"
			}
			jobs = append(jobs, child)
		}
		asked, seen := 0, 0
		expect.NoError(t, state.EachChildJob(t.Context(), inPages(inttest.Fake(jobs...).Build(), &asked), js, func(*batchv1.Job) { seen++ }))
		expect.Same(t, "Unexpected number of Jobs", tc.own, seen)
		expect.Same(t, "Unexpected number of requests", tc.asked, asked)
	})
}

func TestEachJobNamed(t *testing.T) {
	var jobs []client.Object
	for i := range 25 {
		jobs = append(jobs, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint(i)}})
	}
	type row struct{ names, asked, want int }
	expect.Rows(t, map[string]row{
		"one name, one request":           {names: 1, asked: 1, want: 1},
		"a few, of which some are there":  {names: 10, asked: 10, want: 10},
		"many, and so all Jobs there are": {names: 100, asked: 3, want: 25},
		"none, and nothing is asked":      {},
	}, func(t *testing.T, tc row) {
		names := sets.New[string]()
		for i := range tc.names {
			names.Insert(fmt.Sprint(i))
		}
		asked, seen := 0, 0
		live := inPages(inttest.Fake(jobs...).Build(), &asked)
		expect.NoError(t, state.EachJobNamed(t.Context(), live, "ns", names, func(*metav1.PartialObjectMetadata) { seen++ }))
		expect.Same(t, "Unexpected number of Jobs", tc.want, seen)
		expect.Same(t, "Unexpected number of requests", tc.asked, asked)
	})
}
