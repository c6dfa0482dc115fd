// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/testenv"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/peers"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/podungate"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// Whoever was told that the manager stands aside is told again the next time it does.
func TestYieldIsToldEachTime(t *testing.T) {
	stored, _ := suspendedJob()
	r, recorder := newReconciler(t, stored)
	for _, active := range []bool{true, true, false, true, true} {
		r.deps.inTree = testenv.InTree(t, active)
		expect.Must(r.Reconcile(t.Context(), jobRequest))(t)
	}
	expect.Same(t, "Unexpected number of events for two times", 2, len(eventsSoFar(recorder, jobevents.ReasonNotAlone)))
}

// Nothing brings a TrainJob here again that is gone, and its Workload still has quota.
func TestYieldComesBackForWorkloadsLeft(t *testing.T) {
	job, left := inttest.Job("uid"), inttest.AdmittedOf("uid")
	for name, tc := range map[string]struct {
		there []client.Object
		again bool
	}{
		"a job that is there":          {there: []client.Object{job.DeepCopy(), left.DeepCopy()}},
		"one that is gone":             {},
		"and one that left a Workload": {there: []client.Object{left.DeepCopy()}, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newReconciler(t, tc.there...)
			r.deps.inTree = peers.NewInTree(nil, "ours", nil, peers.NewTrainJobs(r.deps.client))
			result, err := (&reconciler{deps: r.deps}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)})
			again := result.RequeueAfter > 0
			expect.That(t, err == nil && again == tc.again, "Comes again: %t (%v), want %t", again, err, tc.again)
			expect.Same(t, "Unexpected number of records", 0, len(r.deps.records.byName))
		})
	}
}

// Trainer's CRD takes all TrainJobs with it, and what they leave has quota.
func TestQuotaOfAJobThatIsGoneNeedsNoTrainer(t *testing.T) {
	for name, pod := range map[string]bool{"its pods are gone": false, "a pod is left": true} {
		t.Run(name, func(t *testing.T) {
			left := inttest.AdmittedOf("uid")
			left.Finalizers = []string{kueue.ResourceInUseFinalizerName}
			c := inttest.Fake(left).WithStatusSubresource(left).Build()
			expect.NoError(t, c.Delete(t.Context(), left))
			if pod {
				expect.NoError(t, c.Create(t.Context(), inttest.PodOf(left.Namespace, "llm")))
			}
			r := &reconciler{deps: dependenciesOn(t, c, testenv.Describer(t, c))}
			r.deps.live = inttest.PodsByPhase(c)
			r.deps.trainer.Set(t.Context(), 0, errors.New("there is no CRD"))
			for range 2 {
				expect.Must(r.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(inttest.Job("uid"))}))(t)
			}
			expect.Same(t, "Its Workload is there", pod, inttest.Exists(t, c, left))
		})
	}
}

// While nobody knows who looks after TrainJobs, none of them is written, nor told before
// it has lasted; every answer has all of them looked at.
func TestNothingIsWrittenBeforeTheAnswer(t *testing.T) {
	stored, _ := suspendedJob()
	pod := inttest.PodOf("ns", "job", func(pod *corev1.Pod) {
		pod.Spec = corev1.PodSpec{SchedulingGates: []corev1.PodSchedulingGate{{Name: patch.AdmissionGate}}}
	})
	r, recorder := newReconciler(t, stored, pod)
	refused := errors.New("refused")
	all, queue := peers.NewTrainJobs(r.deps.client), workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	expect.NoError(t, all.Source().Start(t.Context(), queue))
	writes := 0
	count := func(...any) error { writes++; return nil }
	r.deps.client = interceptor.NewClient(r.deps.client.(client.WithWatch), interceptor.Funcs{
		Create: func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return count() },
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return count() },
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error { return count() },
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return count()
		},
	})
	look := func(since time.Time) ctrl.Result {
		t.Helper()
		r.deps.inTree = peers.NewInTree(nil, "ours", nil, all)
		expect.NoError(t, r.deps.inTree.Observe(t.Context(), since, false, refused))
		return expect.Must((&reconciler{deps: r.deps}).Reconcile(t.Context(), jobRequest))(t)
	}
	look(time.Now())
	if len(recorder.Events) > 0 {
		t.Errorf("Told at once: %s", <-recorder.Events)
	}
	freed, err := (&podungate.Controller{
		Client: r.deps.client, InTree: r.deps.inTree, Trainer: r.deps.trainer,
		Describer: r.deps.Describer, Recorder: r.deps.Recorder, Metrics: r.deps.metrics,
	}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(pod)})
	expect.That(t, err == nil && freed.RequeueAfter != 0, "Ungater: %+v, %v; want a time after which it looks again", freed, err)
	look(time.Now().Add(-time.Minute))
	event := <-recorder.Events
	expect.That(t, strings.Contains(event, "Warning InTreeUnknown") && strings.Contains(event, "refused"), "Unexpected event: %s", event)
	expect.That(t, queue.Len() == 1 && r.deps.inTree.CheckKnown(nil) != nil,
		"After the time every TrainJob must be looked at, and the manager not be ready")
	expect.That(t, writes == 0, "%d writes before it was known who looks after TrainJobs", writes)
	for _, answer := range []bool{false, true, false} {
		drain(queue)
		expect.NoError(t, r.deps.inTree.Observe(t.Context(), time.Now(), answer, nil))
		expect.That(t, queue.Len() == 1 && r.deps.inTree.CheckKnown(nil) == nil, "Active %v, and the TrainJob is not looked at", answer)
	}
}

func drain(queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
	for queue.Len() > 0 {
		item, _ := queue.Get()
		queue.Done(item)
	}
}
