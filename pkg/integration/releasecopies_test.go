// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// copyOf makes the Workload of a TrainJob "llm" that MultiKueue made, with quota.
func copyOf(finalizers ...string) *kueue.Workload {
	wl := inttest.AdmittedOf("a")
	wl.UID, wl.Finalizers = "wl", finalizers
	wl.Labels = map[string]string{kueue.MultiKueueOriginLabel: "fleet"}
	wl.Status.Admission.ClusterQueue = "gpus"
	return wl
}

// changed changes a copy that remainders are made of.
func changed(change func(*kueue.Workload)) *kueue.Workload {
	wl := copyOf(placeholder.Finalizer)
	change(wl)
	return wl
}

func gpusQueue() *kueue.ClusterQueue {
	return &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: "gpus", UID: "cq"}}
}

// podLeft is a pod of TrainJob "llm" that has a node.
func podLeft() *corev1.Pod {
	return inttest.PodOf("team", "llm", func(pod *corev1.Pod) { pod.Labels[jobsetapi.JobSetUIDKey] = "run" })
}

// remainderOf is what podLeft is charged by.
func remainderOf(wl *kueue.Workload) *kueue.Workload {
	return placeholder.Of(wl, gpusQueue(), "llm", []corev1.Pod{*podLeft()})
}

// worker is what the manager of a worker cluster sees of TrainJob team/llm.
type worker struct {
	client.Client
	*reconciler
}

func newWorker(t *testing.T, objects ...client.Object) *worker {
	t.Helper()
	r, _ := newReconciler(t)
	c := inttest.Fake(append(objects, gpusQueue())...).WithStatusSubresource(&kueue.Workload{}).Build()
	r.deps.client, r.deps.live = c, inttest.PodsByPhase(c)
	return &worker{Client: c, reconciler: r}
}

// delete deletes an object, and leaves ours as it is.
func (w *worker) delete(t *testing.T, obj client.Object) {
	t.Helper()
	expect.NoError(t, w.Delete(t.Context(), obj.DeepCopyObject().(client.Object)))
}

// look has the manager look at the Workloads of the job once, and returns whether it comes again.
func (w *worker) look(t *testing.T) bool {
	t.Helper()
	key := client.ObjectKeyFromObject(inttest.Job("a"))
	j := expect.Must(w.deps.observe(t.Context(), key))(t)
	released := releaseCopies(t.Context(), j)
	expect.NoError(t, released.err)
	return released.again > 0
}

// get reads a Workload, nil if it is gone.
func (w *worker) get(t *testing.T, name string) *kueue.Workload {
	t.Helper()
	wl := &kueue.Workload{}
	err := w.Get(t.Context(), client.ObjectKey{Namespace: "team", Name: name}, wl)
	if apierrors.IsNotFound(err) {
		return nil
	}
	expect.NoError(t, err)
	return wl
}

func TestReleaseCopies(t *testing.T) {
	const kueues, ours = kueue.ResourceInUseFinalizerName, placeholder.Finalizer
	trainJob := inttest.Job("a")
	local := copyOf(kueues)
	local.Labels = nil
	relabelled := copyOf(kueues, ours)
	relabelled.Labels = nil
	uncharged := remainderOf(copyOf())
	uncharged.Name = "remainder-former"
	charged := uncharged.DeepCopy()
	charged.Status = placeholder.Charge(copyOf())
	planted := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "remainder-wl"}, Status: charged.Status}
	plain := inttest.PodOf("team", "llm")
	finished := kit.Is(kueue.WorkloadFinished, "Succeeded")
	unknown := func(wl *kueue.Workload) { wl.Status.Admission = nil }
	elsewhere := func(wl *kueue.Workload) { wl.Status.Admission.ClusterQueue = "gone" }
	for name, tc := range map[string]struct {
		wl    *kueue.Workload
		there []client.Object
		// kept is whether the Workload is there after the first look, charged whether a remainder
		// has been made.
		kept, charged bool
	}{
		"without a pod":                            {wl: copyOf(ours)},
		"without a pod, and MultiKueue was late":   {wl: copyOf(kueues, ours)},
		"with a pod":                               {wl: copyOf(ours), there: []client.Object{podLeft()}, kept: true, charged: true},
		"with a pod, and labels that others took":  {wl: relabelled, there: []client.Object{podLeft()}, kept: true, charged: true},
		"with a pod of a former run":               {wl: copyOf(ours), there: []client.Object{podLeft(), charged}},
		"with a pod that another is to be charged": {wl: copyOf(ours), there: []client.Object{podLeft(), uncharged}, kept: true, charged: true},
		"with a pod, and one that others made":     {wl: copyOf(ours), there: []client.Object{podLeft(), planted}, kept: true, charged: true},
		"with a pod, and Kueue has its quota back": {wl: changed(kit.Deactivated), there: []client.Object{podLeft()}},
		"with a pod that no JobSet made":           {wl: copyOf(ours), there: []client.Object{plain}},
		"with a pod, and charged to nobody":        {wl: changed(unknown), there: []client.Object{podLeft()}},
		"with a pod, and its ClusterQueue is gone": {wl: changed(elsewhere), there: []client.Object{podLeft()}},
		"finished, with a pod":                     {wl: changed(finished), there: []client.Object{podLeft()}},
		"of a job that stops here":                 {wl: copyOf(kueues, ours), there: []client.Object{trainJob, podLeft()}, kept: true},
		"of a job that MultiKueue left":            {wl: copyOf(ours), there: []client.Object{trainJob, podLeft()}, kept: true, charged: true},
		"of a job of this cluster":                 {wl: local, there: []client.Object{podLeft()}, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorker(t, append([]client.Object{tc.wl.DeepCopy()}, tc.there...)...)
			expect.Need(t, !w.look(t) && w.get(t, tc.wl.Name) != nil, "The Workload is touched before it is deleted")
			w.delete(t, tc.wl)
			again := w.look(t)
			expect.Same(t, "The Workload is there", tc.kept, w.get(t, tc.wl.Name) != nil)
			rest := w.get(t, "remainder-wl")
			expect.That(t, (rest != nil) == tc.charged && again == tc.charged,
				"There is a remainder: %t, and the manager comes again: %t; want %t", rest != nil, again, tc.charged)
		})
	}
}

// Kueue writes that it does not admit a remainder over what that is charged.
func TestRemainderIsChargedOnceKueueHasJudgedIt(t *testing.T) {
	wl := copyOf(placeholder.Finalizer)
	w := newWorker(t, wl.DeepCopy(), podLeft())
	w.delete(t, wl)
	for _, reason := range []string{"", kueue.WorkloadQuotaReservedReasonPendingEvaluation, ""} {
		expect.Need(t, w.look(t) && w.get(t, "remainder-wl").Status.Admission == nil, "The remainder is charged before Kueue has looked at it")
		rest := w.get(t, "remainder-wl")
		rest.CreationTimestamp = metav1.Now()
		expect.NoError(t, w.Update(t.Context(), rest))
		if reason != "" {
			kit.Isnt(kueue.WorkloadQuotaReserved, reason)(rest)
			expect.NoError(t, w.Status().Update(t.Context(), rest))
		}
	}
	rest := w.get(t, "remainder-wl")
	kit.Isnt(kueue.WorkloadQuotaReserved, "Pending")(rest)
	expect.NoError(t, w.Status().Update(t.Context(), rest))

	expect.That(t, !w.look(t) && w.get(t, wl.Name) == nil, "The Workload stays though its remainder is charged")
	if rest = w.get(t, "remainder-wl"); !kueuelib.HasQuotaReservation(rest) {
		t.Error("The remainder has no quota")
	}
	expect.Same(t, "What the remainder is charged differs", wl.Status.Admission, rest.Status.Admission)
}

// A namespace that is deleted takes no new objects, and the pods in it may take their time.
func TestWorkloadStaysWhereItsRemainderIsRefused(t *testing.T) {
	wl := copyOf(placeholder.Finalizer)
	w := newWorker(t, wl.DeepCopy(), podLeft())
	w.deps.client = kit.Writes(w.deps.client, func(w kit.Write) error {
		if w.Verb == "create" {
			return kit.Forbidden("workloads")
		}
		return nil
	})
	w.delete(t, wl)
	expect.That(t, w.look(t) && w.get(t, wl.Name) != nil, "The Workload goes before its pods, or nobody looks at it again")
	w.delete(t, podLeft())
	expect.That(t, !w.look(t) && w.get(t, wl.Name) == nil, "The Workload stays when its pods are gone")
}

// In a queue whose head waits, Kueue does not look at what comes after it.
func TestRemainderThatKueueDoesNotJudgeIsChargedAndSeenToStay(t *testing.T) {
	wl := copyOf(placeholder.Finalizer)
	rest := remainderOf(wl)
	rest.CreationTimestamp = metav1.NewTime(time.Now().Add(-judgedWithin - time.Second))
	w := newWorker(t, wl.DeepCopy(), podLeft(), rest)
	w.delete(t, wl)
	expect.That(t, w.look(t) && w.get(t, wl.Name) != nil && kueuelib.HasQuotaReservation(w.get(t, rest.Name)),
		"The remainder is not charged, or the Workload goes before it is seen to be")
	expect.That(t, !w.look(t) && w.get(t, wl.Name) == nil, "The Workload stays though its remainder is charged")
}

// Kueue deactivates what its manager cluster evicts, at any moment.
func TestRemainderOfADeactivatedWorkloadGoes(t *testing.T) {
	for name, tc := range map[string]struct {
		status kueue.WorkloadStatus
		want   bool
	}{
		"charged nothing": {},
		"charged":         {status: placeholder.Charge(copyOf()), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			wl := changed(kit.Deactivated)
			rest := remainderOf(wl)
			rest.Status = tc.status
			w := newWorker(t, wl.DeepCopy(), podLeft(), rest)
			w.delete(t, wl)
			expect.That(t, !w.look(t) && w.get(t, wl.Name) == nil, "The Workload stays")
			expect.Same(t, "Its remainder is there", tc.want, w.get(t, rest.Name) != nil)
		})
	}
}

func TestRemainderGoesWithItsLastPod(t *testing.T) {
	made := func(change ...func(*kueue.Workload)) *kueue.Workload {
		rest := remainderOf(copyOf())
		rest.Status, rest.CreationTimestamp = placeholder.Charge(copyOf()), metav1.NewTime(time.Now().Add(-time.Hour))
		return kit.With(rest, change...)
	}
	uncharged := func(rest *kueue.Workload) { rest.Status = kueue.WorkloadStatus{} }
	ended := podLeft()
	ended.Status.Phase, ended.Finalizers = corev1.PodFailed, []string{"example.com/mine"}
	ofAnother := podLeft()
	ofAnother.Labels[jobsetapi.JobSetUIDKey] = "other"
	for name, tc := range map[string]struct {
		rest  *kueue.Workload
		there []client.Object
		// kept is whether it stays, and again whether the manager looks at it again.
		kept, again bool
	}{
		"while a pod is left":                    {rest: made(), there: []client.Object{podLeft()}, kept: true, again: true},
		"without a pod":                          {rest: made()},
		"with a pod that somebody keeps":         {rest: made(), there: []client.Object{ended}},
		"with a pod of another run":              {rest: made(), there: []client.Object{ofAnother}},
		"that nobody came to charge":             {rest: made(uncharged), there: []client.Object{podLeft()}},
		"that is about to be charged":            {rest: made(uncharged, func(rest *kueue.Workload) { rest.CreationTimestamp = metav1.Now() }), there: []client.Object{podLeft()}, kept: true, again: true},
		"which does not say what pods it is for": {rest: made(func(rest *kueue.Workload) { rest.Annotations = nil }), kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorker(t, append(tc.there, tc.rest)...)
			result := expect.Must((&remainders{deps: w.deps}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(tc.rest)}))(t)
			kept := w.get(t, tc.rest.Name) != nil
			expect.That(t, kept == tc.kept && (result.RequeueAfter > 0) == tc.again,
				"The remainder is there: %t, want %t; the manager comes again in %s, want that: %t", kept, tc.kept, result.RequeueAfter, tc.again)
		})
	}
}

// MultiKueue takes a job for running while its Workload is there.
func TestWorkloadGoesBeforeADeletedJobThatStays(t *testing.T) {
	for name, tc := range map[string]struct {
		wl    *kueue.Workload
		there []client.Object
		// want is whether the Workload is deleted, again whether the manager comes again.
		want, again bool
	}{
		"when its pods are gone":                      {wl: copyOf(placeholder.Finalizer), want: true},
		"not while one is left":                       {wl: copyOf(placeholder.Finalizer), there: []client.Object{podLeft()}, again: true},
		"not before MultiKueue has read how it ended": {wl: changed(kit.Is(kueue.WorkloadFinished, "Succeeded"))},
	} {
		t.Run(name, func(t *testing.T) {
			stays := inttest.Job("a")
			stays.Finalizers, stays.Spec.Suspend = []string{"example.com/mine"}, new(true)
			w := newWorker(t, append(tc.there, stays, tc.wl)...)
			w.delete(t, stays)
			result := expect.Must(look(t, w.reconciler, client.ObjectKeyFromObject(stays)))(t)
			deleted := !w.get(t, copyOf().Name).DeletionTimestamp.IsZero()
			expect.That(t, deleted == tc.want && (result.RequeueAfter > 0) == tc.again,
				"The Workload is deleted: %t, and the manager comes again in %s; want it deleted: %t", deleted, result.RequeueAfter, tc.want)
		})
	}
}

// MultiKueue takes a Workload that is finished for the end of the job.
func TestCopyOfDeletedTrainJobIsNotFinished(t *testing.T) {
	for name, tc := range map[string]struct {
		wl   *kueue.Workload
		want bool
	}{
		"a copy":                     {wl: copyOf(kueue.ResourceInUseFinalizerName, placeholder.Finalizer)},
		"a Workload of this cluster": {wl: inttest.WorkloadOf(inttest.Job("a")), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorker(t, tc.wl.DeepCopy())
			expect.Must(look(t, w.reconciler, client.ObjectKeyFromObject(inttest.Job("a"))))(t)
			expect.Same(t, "The Workload is finished", tc.want, kueuelib.IsFinished(w.get(t, tc.wl.Name)))
		})
	}
}
