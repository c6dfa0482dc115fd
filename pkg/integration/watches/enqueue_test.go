// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
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
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
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
	type row struct {
		before, after *kueue.Workload
		want          string
	}
	expect.Rows(t, map[string]row{
		"an admission":      {before: workload(), after: workload(admitted), want: "llm"},
		"an eviction":       {before: workload(admitted), after: workload(admitted, evicted), want: "llm"},
		"a deactivation":    {before: workload(admitted), after: workload(admitted, kit.Deactivated), want: "llm"},
		"one that is to be": {before: workload(admitted), after: workload(admitted, deactivation.Mark), want: "llm"},
		"a copy's deletion": {before: workload(admitted, kit.Copied), after: workload(admitted, kit.Copied, deleted), want: "llm"},
		"a user's deletion": {before: workload(admitted), after: workload(admitted, deleted), want: "earlier"},
		"pods that are up":  {before: workload(admitted), after: workload(admitted, ready), want: "earlier"},
		"a pending message": {before: workload(), after: workload(ready), want: "earlier"},
	}, func(t *testing.T, tc row) {
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
	expect.Rows(t, map[string]expect.Row[func(queue), time.Duration]{
		"made":                            {In: func(q queue) { h.Create(t.Context(), event.CreateEvent{Object: js}, q) }, Want: batchPeriod},
		"changed":                         {In: func(q queue) { h.Update(t.Context(), event.UpdateEvent{ObjectOld: js, ObjectNew: over}, q) }, Want: batchPeriod},
		"changed in nothing that matters": {In: func(q queue) { h.Update(t.Context(), event.UpdateEvent{ObjectOld: js, ObjectNew: js}, q) }, Want: idlePeriod},
		"made, of somebody else":          {In: func(q queue) { mapped.Create(t.Context(), event.CreateEvent{Object: js}, q) }, Want: batchPeriod},
		"a Workload that is made":         {In: func(q queue) { ofWorkloads.Create(t.Context(), event.CreateEvent{Object: wl}, q) }, Want: batchPeriod},
		"a Workload whose pods are ready": {In: func(q queue) { ofWorkloads.Update(t.Context(), event.UpdateEvent{ObjectOld: wl, ObjectNew: ready}, q) }, Want: idlePeriod},
		"a Workload that a check rejects": {In: func(q queue) {
			ofWorkloads.Update(t.Context(), event.UpdateEvent{ObjectOld: wl, ObjectNew: rejected}, q)
		}, Want: 0},
		"gone": {In: func(q queue) { h.Delete(t.Context(), event.DeleteEvent{Object: js}, q) }, Want: 0},
	}, func(t *testing.T, tc expect.Row[func(queue), time.Duration]) {
		q := &addedTo{}
		tc.In(q)
		expect.That(t, q.added == 1 && q.opts.After == tc.Want, "added %d times after %s, want once after %s", q.added, q.opts.After, tc.Want)
	})
}

// What people write is looked at at once, what Trainer says and what we wrote in a batch.
func TestOfTrainJobs(t *testing.T) {
	type row struct {
		change func(*trainjob.TrainJob)
		own    bool
		want   bool
	}
	expect.Rows(t, map[string]row{
		"a condition":             {change: func(j *trainjob.TrainJob) { j.Status.Conditions = []metav1.Condition{{Type: "Suspended"}} }},
		"the spec":                {change: func(j *trainjob.TrainJob) { j.Generation++ }, want: true},
		"the spec, by us":         {change: func(j *trainjob.TrainJob) { j.Generation++ }, own: true},
		"a label":                 {change: func(j *trainjob.TrainJob) { j.Labels = map[string]string{"a": "b"} }, want: true},
		"a label after our write": {change: func(j *trainjob.TrainJob) { j.Labels = map[string]string{"a": "b"} }, own: true, want: true},
		"an annotation":           {change: func(j *trainjob.TrainJob) { j.Annotations = map[string]string{"a": "b"} }, want: true},
		"being deleted":           {change: func(j *trainjob.TrainJob) { j.DeletionTimestamp = new(metav1.Now()) }, want: true},
		"nothing at all":          {change: func(*trainjob.TrainJob) {}},
	}, func(t *testing.T, tc row) {
		before := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Name: "llm", Generation: 1}}
		after := before.DeepCopy()
		tc.change(after)
		q := &addedTo{}
		OfTrainJobs(func(*trainjob.TrainJob) bool { return tc.own }).Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
		expect.That(t, q.added == 1 && (q.opts.After == 0) == tc.want, "added %d times after %s; want at once: %t", q.added, q.opts.After, tc.want)
	})
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

// matter is a change of an object, and whether it matters.
type matter struct {
	before, after client.Object
	want          bool
}

func on[T client.Object](before T, change func(T), want bool) matter {
	after := before.DeepCopyObject().(T)
	change(after)
	return matter{before, after, want}
}

// A change matters by which a TrainJob is decided about.
func TestMatters(t *testing.T) {
	running, ready := batchv1.JobStatus{Active: 2, StartTime: new(metav1.Now())}, kit.Is(kueue.WorkloadPodsReady, "")
	active := []jobsetapi.ReplicatedJobStatus{{Active: 1}}
	suspended := batchv1.JobStatus{Active: 1, Conditions: []batchv1.JobCondition{{Type: batchv1.JobSuspended, Status: "True"}}}
	expect.Rows(t, map[string]matter{
		"a spec":                             on(&batchv1.Job{}, func(child *batchv1.Job) { child.Generation = 2 }, true),
		"a label":                            on(&kueue.Workload{}, func(wl *kueue.Workload) { wl.Labels = map[string]string{"a": "b"} }, true),
		"an annotation":                      on(&kueue.Workload{}, func(wl *kueue.Workload) { wl.Annotations = map[string]string{"a": "b"} }, true),
		"a finalizer":                        on(&jobsetapi.JobSet{}, func(js *jobsetapi.JobSet) { js.Finalizers = []string{"a"} }, true),
		"a deletion":                         on(&jobsetapi.JobSet{}, func(js *jobsetapi.JobSet) { js.DeletionTimestamp = new(metav1.Now()) }, true),
		"the end of a TrainJob":              on(&trainjob.TrainJob{}, says(trainer.TrainJobComplete), true),
		"a child Job is ready":               on(&trainjob.TrainJob{}, counts(trainer.JobStatus{Ready: new(int32(1))}), true),
		"another child Job is ready":         on(kit.With(&trainjob.TrainJob{}, counts(trainer.JobStatus{})), counts(trainer.JobStatus{Ready: new(int32(1))}), true),
		"a child Job is done":                on(kit.With(&trainjob.TrainJob{}, counts(trainer.JobStatus{})), counts(trainer.JobStatus{Succeeded: new(int32(1))}), true),
		"a child Job has failed":             on(kit.With(&trainjob.TrainJob{}, counts(trainer.JobStatus{})), counts(trainer.JobStatus{Failed: new(int32(1))}), true),
		"a child Job has pods, Trainer says": on(kit.With(&trainjob.TrainJob{}, counts(trainer.JobStatus{})), counts(trainer.JobStatus{Active: new(int32(1))}), false),
		"a Workload is admitted":             on(&kueue.Workload{}, kit.Is(kueue.WorkloadAdmitted, ""), true),
		"a Workload loses its admission":     on(inttest.AdmittedOf("uid"), func(wl *kueue.Workload) { wl.Status.Admission = nil }, true),
		"a Workload's pods are ready":        on(inttest.AdmittedOf("uid"), ready, false),
		"a Workload's pods are ready no more": on(inttest.AdmittedOf("uid", ready), func(wl *kueue.Workload) {
			apimeta.RemoveStatusCondition(&wl.Status.Conditions, kueue.WorkloadPodsReady)
		}, true),
		"a Workload has lost a pod":           on(inttest.AdmittedOf("uid", ready), kit.Isnt(kueue.WorkloadPodsReady, ""), true),
		"a Workload waits for another reason": on(waits("Pending", "no quota"), func(wl *kueue.Workload) { wl.Status.Conditions[0].Reason = "Inadmissible" }, true),
		"a Workload waits, in other words":    on(waits("Pending", "no quota"), func(wl *kueue.Workload) { wl.Status.Conditions[0].Message = "still no quota" }, false),
		"a JobSet is suspended": on(&jobsetapi.JobSet{}, func(js *jobsetapi.JobSet) {
			js.Status.Conditions = []metav1.Condition{kit.True(string(jobsetapi.JobSetSuspended), "")}
		}, true),
		"a JobSet has no active Jobs any more": on(jobSetOf(active), func(js *jobsetapi.JobSet) { js.Status.ReplicatedJobsStatus[0].Active = 0 }, true),
		"a JobSet is over":                     on(&jobsetapi.JobSet{}, func(js *jobsetapi.JobSet) { js.Status.TerminalState = "Completed" }, true),
		"a JobSet counts ready Jobs":           on(jobSetOf(active), func(js *jobsetapi.JobSet) { js.Status.ReplicatedJobsStatus[0].Ready = 1 }, false),
		"a Job has its first pod":              on(&batchv1.Job{}, func(child *batchv1.Job) { child.Status = running }, true),
		"a Job has its last pod no more":       on(&batchv1.Job{Spec: batchv1.JobSpec{Suspend: new(true)}, Status: suspended}, func(child *batchv1.Job) { child.Status.Active = 0 }, true),
		"a Job's pods are ready":               on(&batchv1.Job{Status: running}, func(child *batchv1.Job) { child.Status.Ready = new(int32(2)) }, false),
		"one of many pods has failed":          on(&batchv1.Job{Status: running}, func(child *batchv1.Job) { child.Status.Active, child.Status.Failed = 1, 1 }, false),
		"a Job lacks a pod":                    on(&batchv1.Job{Spec: batchv1.JobSpec{Parallelism: new(int32(2))}, Status: running}, kit.Active(1), true),
		"a Job is over":                        on(&batchv1.Job{Status: running}, kit.Completed, true),
		"a Workload gets an owner":             on(&kueue.Workload{}, func(wl *kueue.Workload) { wl.OwnerReferences = []metav1.OwnerReference{{UID: "uid"}} }, true),
		"a pod has succeeded":                  on(&batchv1.Job{Status: running}, kit.Succeeded(1), true),
	}, func(t *testing.T, tc matter) { expect.Same(t, "It matters", tc.want, matters(tc.before, tc.after)) })
	expect.Same(t, "What does not matter is looked at later", true, idlePeriod > 10*batchPeriod && batchPeriod < time.Second)
}

// waits returns a Workload that Kueue has not reserved quota for.
func waits(reason, message string) *kueue.Workload {
	wl := &kueue.Workload{}
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
	return wl
}

func jobSetOf(says []jobsetapi.ReplicatedJobStatus) *jobsetapi.JobSet {
	return &jobsetapi.JobSet{Status: jobsetapi.JobSetStatus{ReplicatedJobsStatus: says}}
}

// says and counts are what Trainer does to the status of a TrainJob.
func says(condition string) func(*trainjob.TrainJob) {
	return func(job *trainjob.TrainJob) { job.Status.Conditions = []metav1.Condition{kit.True(condition, "")} }
}

func counts(of trainer.JobStatus) func(*trainjob.TrainJob) {
	return func(job *trainjob.TrainJob) { job.Status.JobsStatus = []trainer.JobStatus{of} }
}

// waiting is a TrainJob of runtime torch that waits.
func waiting(namespace, name string, changes ...func(*trainjob.TrainJob)) *trainjob.TrainJob {
	job := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	job.Spec.RuntimeRef.Name, job.Spec.Suspend = "torch", new(true)
	return kit.With(job, changes...)
}

func TestTrainJobsOf(t *testing.T) {
	named := func(kind string) func(*trainjob.TrainJob) {
		return func(job *trainjob.TrainJob) { job.Spec.RuntimeRef.Kind = &kind }
	}
	m := Mapper{inttest.Fake(
		waiting("a", "waits"), waiting("b", "waits-too", named(trainer.ClusterTrainingRuntimeKind)),
		waiting("a", "runs", func(job *trainjob.TrainJob) { job.Spec.Suspend = new(false) }), waiting("a", "is-over", says(trainer.TrainJobComplete)),
		waiting("a", "other", func(job *trainjob.TrainJob) { job.Spec.RuntimeRef.Name = "mpi" }),
		waiting("a", "of-its-namespace", named(trainer.TrainingRuntimeKind)), waiting("b", "of-another", named(trainer.TrainingRuntimeKind))).Build()}
	expect.Answers(t, func(in client.Object) []string {
		return expect.Each(m.TrainJobsOf(t.Context(), in), reconcile.Request.String)
	}, map[string]expect.Row[client.Object, []string]{
		"of the cluster: those that wait, in every namespace":      {In: &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}}, Want: []string{"a/waits", "b/waits-too"}},
		"of a namespace: those that wait there and name that kind": {In: &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "torch"}}, Want: []string{"a/of-its-namespace"}},
		"nobody names it": {In: &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "unused"}}, Want: nil},
	})
}

// A class may be made after the TrainJobs that name it.
func TestNamersOf(t *testing.T) {
	named := func(job *trainjob.TrainJob) { job.Labels = map[string]string{kit.PriorityLabel: "high"} }
	runs := func(job *trainjob.TrainJob) { job.Spec.Suspend = new(false) }
	m := Mapper{inttest.Fake(
		waiting("a", "waits"), waiting("b", "of-class", named), waiting("a", "runs-of-class", named, runs), waiting("a", "runs", runs),
		waiting("a", "over", named, says(trainer.TrainJobComplete))).Build()}
	expect.Answers(t, func(in client.Object) []string {
		return expect.Each(m.NamersOf(t.Context(), in), reconcile.Request.String)
	}, map[string]expect.Row[client.Object, []string]{
		"Kueue's":          {In: kit.Priority("high", 1), Want: []string{"a/runs-of-class", "b/of-class"}},
		"Kueue's, another": {In: kit.Priority("low", 1), Want: nil},
		"that of pods":     {In: &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}}, Want: []string{"a/waits", "b/of-class"}},
	})
	expect.That(t, Made(nil).Create(event.CreateEvent{Object: kit.Priority("high", 1)}), "the making of a class does not pass")
}

// The queue may be seen after the TrainJobs that are to get it.
func TestUnqueuedOf(t *testing.T) {
	queued := func(job *trainjob.TrainJob) { job.Labels = map[string]string{kit.QueueLabel: "q"} }
	m := Mapper{inttest.Fake(
		waiting("a", "unqueued"), waiting("a", "queued", queued), waiting("a", "over", says(trainer.TrainJobComplete)), waiting("b", "elsewhere")).Build()}
	queue := kit.LocalQueue("a", "default", "gpus")
	expect.Same(t, "Unexpected TrainJobs", []string{"a/unqueued"}, expect.Each(m.UnqueuedOf(t.Context(), queue), reconcile.Request.String))
	passes := Made(webhookconfig.IsDefault)
	expect.That(t, passes.Create(event.CreateEvent{Object: queue}) && !passes.Create(event.CreateEvent{Object: kit.LocalQueue("a", "gpus", "gpus")}) &&
		!passes.Update(event.UpdateEvent{ObjectOld: queue, ObjectNew: queue}), "other events pass than the making of a LocalQueue default")
}
