// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	controllerconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("People who look at the TrainJob alone are told", Label("invariant", "nothing-waits-in-silence"), func() {
	It("that its LocalQueue is missing, once, or stopped, or leads nowhere; and it runs when that is put right", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		stopped := kit.LocalQueue(w.Namespace, "later", w.Name("gpus"))
		stopped.Spec.StopPolicy = new(kueue.Hold)
		w.Make(ctx, w.Job("llm").Queue("later").GPUs("8").Obj(),
			kit.LocalQueue(w.Namespace, "leads-nowhere", w.Name("none")), w.Job("lost").Queue("leads-nowhere").GPUs("8").Obj())
		w.EventuallyTold(ctx, "lost", "NotAdmissible", "cannot be admitted")
		w.EventuallyTold(ctx, "llm", "NotAdmissible", "LocalQueue later doesn't exist; create it in namespace "+w.Namespace)
		w.Touch(ctx, "llm")
		w.EventuallyCaughtUp(ctx)
		Expect(w.EventNotes(ctx, "TrainJob", "llm", "NotAdmissible")).To(HaveLen(1))
		w.Make(ctx, stopped)
		w.EventuallyTold(ctx, "llm", "NotAdmissible", "LocalQueue later is inactive; it starts again with spec.stopPolicy None")
		w.SetStopPolicy(ctx, stopped, kueue.None)
		w.EventuallyRuns(ctx, "llm", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("what an admission check that retries or rejects says", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		check := w.ControlledCheck(ctx)
		w.Make(ctx, w.Job("llm").GPUs("8").Obj())
		w.SetCheck(ctx, "llm", check, kueue.CheckStateRetry, "the site is full")
		w.EventuallyTold(ctx, "llm", "AdmissionCheckRetries", "gave its quota back to try again")
		w.SetCheck(ctx, "llm", check, kueue.CheckStateRejected, "no such site")
		w.EventuallyTold(ctx, "llm", "AdmissionCheckRejected", fmt.Sprintf("%q (no such site)", check))
	}, SpecTimeout(specTimeout))
})

// Trainer 2.1 and 2.2 keep a runtime that is in use.
var _ = It("A runtime that comes back is noticed by the TrainJobs that wait for it", Label("invariant", "nothing-waits-in-silence"), core, since(world.Trainer23), func(ctx context.Context) {
	w := newPools(ctx, "8", "0")
	runtime := w.CopyRuntime(ctx, "torch-distributed")
	w.MakeRunning(ctx, w.Job("runs").GPUs("8"), 1, onH100, runtime.DeepCopy())
	w.MakePending(ctx, w.Job("waits").Runtime(runtime.Name).GPUs("8"))
	Expect(w.Delete(ctx, runtime.DeepCopy())).To(Succeed())
	w.Finish(ctx, "runs", "succeeded")
	w.Touch(ctx, "runs")
	Expect(w.Create(ctx, runtime.DeepCopy())).To(Succeed())
	w.EventuallyRuns(ctx, "waits", 1, onH100)
}, SpecTimeout(specTimeout))

var _ = Describe("A TrainJob with a prebuilt Workload", func() {
	// The Workload says nothing of the taint of GPU nodes.
	It("is told that the Workload is missing, without an error in the log, and runs when it is made", core, Label("invariant", "nothing-waits-in-silence"), func(ctx context.Context) {
		w, wl, job := newPrebuilt(ctx, "made-later")
		before := w.errorLines()
		w.Make(ctx, job)
		w.EventuallyNotes(ctx, "llm", "PrebuiltWorkloadUnusable").Should(ConsistOf("prebuilt Workload made-later is not there; create it in namespace " + w.Namespace + ", and the job queues"))
		w.Make(ctx, wl)
		exactlyPlaced(w.EventuallyRuns(ctx, "llm", 1, onH100))
		Expect(w.Workload(ctx, "llm").Name).To(Equal("made-later"))
		Expect(w.Workload(ctx, "llm").Spec.PodSets[0].Template.Spec.Tolerations).To(BeEmpty(), "it is not ours to change")
		w.Succeed(ctx, "llm")
		Expect(w.errorLines()).To(Equal(before))
	}, SpecTimeout(specTimeout))

	It("is told in what the Workload differs, without an error in the log", core, Label("invariant", "nothing-waits-in-silence"), func(ctx context.Context) {
		w, wl, job := newPrebuilt(ctx, "larger")
		wl.Spec.PodSets[0].Count++
		before := w.errorLines()
		w.Make(ctx, wl, job)
		w.EventuallyTold(ctx, "llm", "PrebuiltWorkloadUnusable", `PodSet "node" has 1 pods in the TrainJob, 2 in the Workload; delete the Workload and create it like the TrainJob`)
		w.EventuallyTold(ctx, "llm", "WorkloadOutOfSync", "Workload larger was finished without a run")
		w.EventuallyIs(ctx, &kueue.Workload{}, "larger", world.Condition(kueue.WorkloadFinished, metav1.ConditionTrue, kueue.WorkloadFinishedReasonOutOfSync))
		Expect(w.errorLines()).To(Equal(before))
		w.ConsistentlyUnbound(ctx, "llm")
	}, SpecTimeout(specTimeout))
})

// newPrebuilt makes a world, and returns TrainJob "llm" of 8 GPUs and the Workload that it names, as somebody writes that
// who knows its pods, but nothing of what this project adds to them. The pods' environment has the name of the TrainJob, so
// that is made and taken away.
func newPrebuilt(ctx context.Context, name string) (*site, *kueue.Workload, *trainer.TrainJob) {
	w := newWorld(ctx)
	// Kueue would not admit pods to a flavor with a taint that they do not tolerate.
	flavor := w.Flavor("h100", onH100)
	flavor.Spec.NodeTaints = nil
	w.Pool(ctx, flavor, "8")
	model := w.Job("llm").Queue("nowhere").GPUs("8").Obj()
	Expect(w.Create(ctx, model)).To(Succeed())
	wl := w.EventuallyWorkload(ctx, "llm")
	Expect(w.Delete(ctx, model, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
	w.EventuallyGone(ctx, model)
	w.EventuallyNoWorkload(ctx, "llm")
	prebuilt := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: name}}
	prebuilt.Spec.QueueName = "queue"
	prebuilt.Spec.PodSets = wl.Spec.PodSets
	for i := range prebuilt.Spec.PodSets {
		prebuilt.Spec.PodSets[i].Template.Spec.Tolerations = nil
	}
	job := w.Job("llm").GPUs("8").Obj()
	job.Labels[controllerconstants.PrebuiltWorkloadLabel] = name
	return w, prebuilt, job
}

// errorLines counts the errors about this namespace in the manager's log, where that can be read.
func (w *site) errorLines() int {
	if !cluster.Local() {
		return 0
	}
	others := func(line string) bool { return !strings.Contains(line, w.Namespace) }
	return len(slices.DeleteFunc(must(cluster.Errors(cluster.Manager())), others))
}
