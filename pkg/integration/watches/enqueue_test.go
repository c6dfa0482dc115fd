// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"slices"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/deactivation"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// What Kueue decided comes before what came earlier.
func TestDecidedFirst(t *testing.T) {
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(trainjob.GVK, apimeta.RESTScopeNamespace)
	workload := func(changes ...func(*kueue.Workload)) *kueue.Workload {
		return inttest.WorkloadOf(inttest.Job("uid"), append([]func(*kueue.Workload){func(wl *kueue.Workload) { wl.Spec.Active = new(true) }}, changes...)...)
	}
	deleted := func(wl *kueue.Workload) { wl.DeletionTimestamp = new(metav1.Now()) }
	admitted, ready := kit.Is(kueue.WorkloadAdmitted, ""), kit.Is(kueue.WorkloadPodsReady, "")
	evicted := kit.Is(kueue.WorkloadEvicted, kueue.WorkloadEvictedByAdmissionCheck)
	tests := map[string]struct {
		before, after *kueue.Workload
		want          string
	}{
		"an admission":      {before: workload(), after: workload(admitted), want: "llm"},
		"an eviction":       {before: workload(admitted), after: workload(admitted, evicted), want: "llm"},
		"a deactivation":    {before: workload(admitted), after: workload(admitted, kit.Deactivated), want: "llm"},
		"one that is to be": {before: workload(admitted), after: workload(admitted, deactivation.Mark), want: "llm"},
		"a copy's deletion": {before: workload(admitted, kit.Copied), after: workload(admitted, kit.Copied, deleted), want: "llm"},
		"a user's deletion": {before: workload(admitted), after: workload(admitted, deleted), want: "earlier"},
		"pods that are up":  {before: workload(admitted), after: workload(admitted, ready), want: "earlier"},
		"a pending message": {before: workload(), after: workload(ready), want: "earlier"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			queue := priorityqueue.New[reconcile.Request]("test")
			defer queue.ShutDown()
			queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: "earlier"}})
			tc.before.ResourceVersion, tc.after.ResourceVersion = "1", "2"
			ofOwner := handler.EnqueueRequestForOwner(inttest.Scheme, mapper, &trainjob.TrainJob{}, handler.OnlyControllerOwner())
			DecidedFirst(ofOwner).Update(t.Context(), event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}, queue)
			got, _ := queue.Get()
			expect.That(t, got.Name == tc.want, "looked first at %s, want %s", got.Name, tc.want)
		})
	}
}

// What controllers report is looked at in batches; what is gone, and what people write, at once.
func TestBatched(t *testing.T) {
	js := &jobsetapi.JobSet{ObjectMeta: metav1.ObjectMeta{Name: "llm", ResourceVersion: "1"}}
	mapped := Batched(handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} }))
	over := js.DeepCopy()
	over.Status.TerminalState = "Completed"
	h := Batched(&handler.EnqueueRequestForObject{})
	ofWorkloads := DecidedFirst(&handler.EnqueueRequestForObject{})
	wl := inttest.AdmittedOf("uid")
	ready, rejected := wl.DeepCopy(), wl.DeepCopy()
	kit.Is(kueue.WorkloadPodsReady, "")(ready)
	rejected.Status.AdmissionChecks = []kueue.AdmissionCheckState{{Name: "site", State: kueue.CheckStateRejected}}
	tests := map[string]struct {
		send func(queue)
		want time.Duration
	}{
		"made":                            {func(q queue) { h.Create(t.Context(), event.CreateEvent{Object: js}, q) }, batchPeriod},
		"changed":                         {func(q queue) { h.Update(t.Context(), event.UpdateEvent{ObjectOld: js, ObjectNew: over}, q) }, batchPeriod},
		"changed in nothing that matters": {func(q queue) { h.Update(t.Context(), event.UpdateEvent{ObjectOld: js, ObjectNew: js}, q) }, idlePeriod},
		"made, of somebody else":          {func(q queue) { mapped.Create(t.Context(), event.CreateEvent{Object: js}, q) }, batchPeriod},
		"a Workload that is made":         {func(q queue) { ofWorkloads.Create(t.Context(), event.CreateEvent{Object: wl}, q) }, batchPeriod},
		"a Workload whose pods are ready": {func(q queue) { ofWorkloads.Update(t.Context(), event.UpdateEvent{ObjectOld: wl, ObjectNew: ready}, q) }, idlePeriod},
		"a Workload that a check rejects": {func(q queue) {
			ofWorkloads.Update(t.Context(), event.UpdateEvent{ObjectOld: wl, ObjectNew: rejected}, q)
		}, 0},
		"gone": {func(q queue) { h.Delete(t.Context(), event.DeleteEvent{Object: js}, q) }, 0},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			q := &addedTo{}
			tc.send(q)
			expect.That(t, q.added == 1 && q.opts.After == tc.want, "added %d times after %s, want once after %s", q.added, q.opts.After, tc.want)
		})
	}
}

// What people write is looked at at once, what Trainer says and what we wrote in a batch.
func TestOfTrainJobs(t *testing.T) {
	tests := map[string]struct {
		change func(*trainjob.TrainJob)
		own    bool
		want   bool
	}{
		"a condition":             {change: func(j *trainjob.TrainJob) { j.Status.Conditions = []metav1.Condition{{Type: "Suspended"}} }},
		"the spec":                {change: func(j *trainjob.TrainJob) { j.Generation++ }, want: true},
		"the spec, by us":         {change: func(j *trainjob.TrainJob) { j.Generation++ }, own: true},
		"a label":                 {change: func(j *trainjob.TrainJob) { j.Labels = map[string]string{"a": "b"} }, want: true},
		"a label after our write": {change: func(j *trainjob.TrainJob) { j.Labels = map[string]string{"a": "b"} }, own: true, want: true},
		"an annotation":           {change: func(j *trainjob.TrainJob) { j.Annotations = map[string]string{"a": "b"} }, want: true},
		"being deleted":           {change: func(j *trainjob.TrainJob) { j.DeletionTimestamp = new(metav1.Now()) }, want: true},
		"nothing at all":          {change: func(*trainjob.TrainJob) {}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			before := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: "llm", Generation: 1}}
			after := before.DeepCopy()
			tc.change(after)
			q := &addedTo{}
			OfTrainJobs(func(*trainjob.TrainJob) bool { return tc.own }).Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
			expect.That(t, q.added == 1 && (q.opts.After == 0) == tc.want, "added %d times after %s; want at once: %t", q.added, q.opts.After, tc.want)
		})
	}
}

// addedTo is a queue that remembers what was added last.
type addedTo struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	opts  priorityqueue.AddOpts
	added int
}

func (q *addedTo) AddWithOpts(o priorityqueue.AddOpts, requests ...reconcile.Request) {
	q.opts, q.added = o, q.added+len(requests)
}

func (q *addedTo) Add(reconcile.Request) { q.added++ }

// A change matters by which a TrainJob is decided about.
func TestMatters(t *testing.T) {
	type change = func(client.Object)
	ofJob := func(f func(*trainjob.TrainJob)) change { return func(o client.Object) { f(o.(*trainjob.TrainJob)) } }
	ofWorkload := func(f func(*kueue.Workload)) change { return func(o client.Object) { f(o.(*kueue.Workload)) } }
	ofJobSet := func(f func(*jobsetapi.JobSet)) change { return func(o client.Object) { f(o.(*jobsetapi.JobSet)) } }
	ofChild := func(f func(*batchv1.Job)) change { return func(o client.Object) { f(o.(*batchv1.Job)) } }
	running := batchv1.JobStatus{Active: 2, StartTime: new(metav1.Now())}
	tests := map[string]struct {
		of     client.Object
		change change
		want   bool
	}{
		"a spec":        {of: &batchv1.Job{}, change: func(o client.Object) { o.SetGeneration(2) }, want: true},
		"a label":       {of: &kueue.Workload{}, change: func(o client.Object) { o.SetLabels(map[string]string{"a": "b"}) }, want: true},
		"an annotation": {of: &kueue.Workload{}, change: func(o client.Object) { o.SetAnnotations(map[string]string{"a": "b"}) }, want: true},
		"a finalizer":   {of: &jobsetapi.JobSet{}, change: func(o client.Object) { o.SetFinalizers([]string{"a"}) }, want: true},
		"a deletion":    {of: &jobsetapi.JobSet{}, change: func(o client.Object) { o.SetDeletionTimestamp(new(metav1.Now())) }, want: true},
		"the end of a TrainJob": {of: &trainjob.TrainJob{}, change: ofJob(func(j *trainjob.TrainJob) {
			j.Status.Conditions = []metav1.Condition{kit.True(trainer.TrainJobComplete, "")}
		}), want: true},
		"a child Job is ready": {of: &trainjob.TrainJob{}, change: ofJob(func(j *trainjob.TrainJob) {
			j.Status.JobsStatus = []trainer.JobStatus{{Name: "node", Ready: new(int32(1))}}
		}), want: true},
		"a child Job has pods, Trainer says": {of: &trainjob.TrainJob{Status: trainer.TrainJobStatus{JobsStatus: []trainer.JobStatus{{Name: "node"}}}}, change: ofJob(func(j *trainjob.TrainJob) { j.Status.JobsStatus[0].Active = new(int32(1)) })},
		"a Workload is admitted":             {of: &kueue.Workload{}, change: ofWorkload(kit.Is(kueue.WorkloadAdmitted, "")), want: true},
		"a Workload loses its admission":     {of: inttest.AdmittedOf("uid"), change: ofWorkload(func(wl *kueue.Workload) { wl.Status.Admission = nil }), want: true},
		"a Workload's pods are ready":        {of: inttest.AdmittedOf("uid"), change: ofWorkload(kit.Is(kueue.WorkloadPodsReady, ""))},
		"a Workload's pods are ready no more": {of: inttest.AdmittedOf("uid", kit.Is(kueue.WorkloadPodsReady, "")), change: ofWorkload(func(wl *kueue.Workload) {
			wl.Status.Conditions = slices.DeleteFunc(wl.Status.Conditions, func(c metav1.Condition) bool { return c.Type == kueue.WorkloadPodsReady })
		}), want: true},
		"a JobSet is suspended": {of: &jobsetapi.JobSet{}, change: ofJobSet(func(js *jobsetapi.JobSet) {
			js.Status.Conditions = []metav1.Condition{kit.True(string(jobsetapi.JobSetSuspended), "")}
		}), want: true},
		"a Workload has lost a pod":           {of: inttest.AdmittedOf("uid", kit.Is(kueue.WorkloadPodsReady, "")), change: ofWorkload(kit.Isnt(kueue.WorkloadPodsReady, "")), want: true},
		"a Workload waits for another reason": {of: waits("Pending", "no quota"), change: ofWorkload(func(wl *kueue.Workload) { wl.Status.Conditions[0].Reason = "Inadmissible" }), want: true},
		"a Workload waits, in other words":    {of: waits("Pending", "no quota"), change: ofWorkload(func(wl *kueue.Workload) { wl.Status.Conditions[0].Message = "still no quota" })},
		"a JobSet has no active Jobs any more": {of: &jobsetapi.JobSet{Status: jobsetapi.JobSetStatus{ReplicatedJobsStatus: []jobsetapi.ReplicatedJobStatus{{Active: 1}}}},
			change: ofJobSet(func(js *jobsetapi.JobSet) { js.Status.ReplicatedJobsStatus = []jobsetapi.ReplicatedJobStatus{{}} }), want: true},
		"a JobSet is over": {of: &jobsetapi.JobSet{}, change: ofJobSet(func(js *jobsetapi.JobSet) { js.Status.TerminalState = "Completed" }), want: true},
		"a JobSet counts ready Jobs": {of: &jobsetapi.JobSet{}, change: ofJobSet(func(js *jobsetapi.JobSet) {
			js.Status.ReplicatedJobsStatus = []jobsetapi.ReplicatedJobStatus{{Ready: 1}}
		})},
		"a Job has its first pod": {of: &batchv1.Job{}, change: ofChild(func(child *batchv1.Job) { child.Status = running }), want: true},
		"a Job has its last pod no more": {of: &batchv1.Job{Spec: batchv1.JobSpec{Suspend: new(true)}, Status: batchv1.JobStatus{Active: 1, Conditions: []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: "True"}}}},
			change: ofChild(func(child *batchv1.Job) { child.Status.Active = 0 }), want: true},
		"a Job's pods are ready":      {of: &batchv1.Job{Status: running}, change: ofChild(func(child *batchv1.Job) { child.Status.Ready = new(int32(2)) })},
		"one of many pods has failed": {of: &batchv1.Job{Status: running}, change: ofChild(func(child *batchv1.Job) { child.Status.Active, child.Status.Failed = 1, 1 })},
		"a Job lacks a pod":           {of: &batchv1.Job{Spec: batchv1.JobSpec{Parallelism: new(int32(2))}, Status: running}, change: ofChild(func(child *batchv1.Job) { child.Status.Active = 1 }), want: true},
		"a pod has succeeded":         {of: &batchv1.Job{Status: running}, change: ofChild(func(child *batchv1.Job) { child.Status.Succeeded = 1 }), want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			after := tc.of.DeepCopyObject().(client.Object)
			tc.change(after)
			expect.Same(t, "It matters", tc.want, matters(tc.of, after))
		})
	}
	expect.Same(t, "What does not matter is looked at later", true, idlePeriod > 10*batchPeriod && batchPeriod < time.Second)
}

// waits returns a Workload that Kueue has not reserved quota for.
func waits(reason, message string) *kueue.Workload {
	wl := &kueue.Workload{}
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	return wl
}

func TestTrainJobsOf(t *testing.T) {
	job := func(namespace, name, kind string, suspended bool, status ...string) *trainjob.TrainJob {
		j := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		j.Spec.RuntimeRef.Name, j.Spec.Suspend = "torch", new(suspended)
		if kind != "" {
			j.Spec.RuntimeRef.Kind = new(kind)
		}
		for _, s := range status {
			j.Status.Conditions = append(j.Status.Conditions, kit.True(s, ""))
		}
		return j
	}
	other := job("a", "other", "", true)
	other.Spec.RuntimeRef.Name = "mpi"
	m := Mapper{inttest.Fake(
		job("a", "waits", "", true), job("b", "waits-too", trainer.ClusterTrainingRuntimeKind, true),
		job("a", "runs", "", false), job("a", "is-over", "", true, trainer.TrainJobComplete), other,
		job("a", "of-its-namespace", trainer.TrainingRuntimeKind, true), job("b", "of-another", trainer.TrainingRuntimeKind, true)).Build()}
	tests := map[string]struct {
		runtime client.Object
		want    []string
	}{
		"of the cluster: those that wait, in every namespace": {runtime: &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}},
			want: []string{"a/waits", "b/waits-too"}},
		"of a namespace: those that wait there and name that kind": {runtime: &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "torch"}},
			want: []string{"a/of-its-namespace"}},
		"nobody names it": {runtime: &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "unused"}}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, request := range m.TrainJobsOf(t.Context(), tc.runtime) {
				got = append(got, request.String())
			}
			expect.Same(t, "Unexpected TrainJobs", tc.want, got)
		})
	}
}
