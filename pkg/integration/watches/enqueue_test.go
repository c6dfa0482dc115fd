// SPDX-License-Identifier: Apache-2.0

package watches

import (
	"context"
	"testing"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// What Kueue decided comes before what came earlier.
func TestDecidedFirst(t *testing.T) {
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(trainjob.GVK, apimeta.RESTScopeNamespace)
	workload := func(changes ...func(*kueue.Workload)) *kueue.Workload {
		return inttest.WorkloadOf(inttest.Job("uid"), append([]func(*kueue.Workload){func(wl *kueue.Workload) { wl.Spec.Active = ptr.To(true) }}, changes...)...)
	}
	copied := func(wl *kueue.Workload) { wl.Labels = map[string]string{kueue.MultiKueueOriginLabel: "manager"} }
	deleted := func(wl *kueue.Workload) { wl.DeletionTimestamp = new(metav1.Now()) }
	admitted, ready := inttest.Is(kueue.WorkloadAdmitted, ""), inttest.Is(kueue.WorkloadPodsReady, "")
	evicted := inttest.Is(kueue.WorkloadEvicted, kueue.WorkloadEvictedByAdmissionCheck)
	tests := map[string]struct {
		before, after *kueue.Workload
		want          string
	}{
		"an admission":      {before: workload(), after: workload(admitted), want: "llm"},
		"an eviction":       {before: workload(admitted), after: workload(admitted, evicted), want: "llm"},
		"a deactivation":    {before: workload(admitted), after: workload(admitted, inttest.Deactivated), want: "llm"},
		"a copy's deletion": {before: workload(admitted, copied), after: workload(admitted, copied, deleted), want: "llm"},
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
	inttest.Is(kueue.WorkloadPodsReady, "")(ready)
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
		"being deleted":           {change: func(j *trainjob.TrainJob) { j.DeletionTimestamp = ptr.To(metav1.Now()) }, want: true},
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
