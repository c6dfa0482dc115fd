// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

var _ = Describe("People who look at the TrainJob alone are told", Label("invariant", "nothing-waits-in-silence"), func() {
	It("that its LocalQueue is missing, once; and it queues when that is made", core, func(ctx context.Context) {
		w := newWorld(ctx)
		w.make(ctx,
			w.flavor("h100", map[string]string{kit.ProductLabel: kit.H100}),
			kit.MakeClusterQueue(w.name("gpus"), kit.Quota{Flavor: w.name("h100"), GPUs: "8"}),
			w.job("llm").GPUs("8").Obj())
		w.eventuallyTold(ctx, "llm", "NotAdmissible", "LocalQueue queue doesn't exist; create it in namespace "+w.namespace)
		w.touch(ctx, "llm")
		w.eventuallyCaughtUp(ctx)
		Expect(w.eventNotes(ctx, "TrainJob", "llm", "NotAdmissible")).To(HaveLen(1))
		w.make(ctx, kit.MakeLocalQueue(w.namespace, "queue", w.name("gpus")))
		w.eventuallyRuns(ctx, "llm", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("that its LocalQueue is stopped", core, func(ctx context.Context) {
		w := newWorld(ctx)
		w.pools(ctx, "8", "0")
		w.stopLocalQueue(ctx, ptr.To(kueue.Hold))
		w.make(ctx, w.job("llm").GPUs("8").Obj())
		w.eventuallyTold(ctx, "llm", "NotAdmissible", "LocalQueue queue is inactive; it starts again with spec.stopPolicy None")
		w.stopLocalQueue(ctx, ptr.To(kueue.None))
		w.eventuallyRuns(ctx, "llm", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("that its ClusterQueue is not active", core, func(ctx context.Context) {
		w := newWorld(ctx)
		w.pools(ctx, "8", "0")
		w.make(ctx, kit.MakeLocalQueue(w.namespace, "leads-nowhere", w.name("none")), w.job("llm").Queue("leads-nowhere").GPUs("8").Obj())
		w.eventuallyTold(ctx, "llm", "NotAdmissible", "cannot be admitted")
	}, SpecTimeout(specTimeout))

	It("that it was deactivated, and by whom", core, func(ctx context.Context) {
		w := newWorld(ctx)
		w.pools(ctx, "8", "0")
		w.make(ctx, w.job("llm").GPUs("8").Obj())
		w.eventuallyRuns(ctx, "llm", 1, onH100)
		w.activate(ctx, "llm", false)
		w.eventuallyTold(ctx, "llm", "WorkloadDeactivated", "set its spec.active to true")
		w.eventuallyAtTheGate(ctx, "llm")
	}, SpecTimeout(specTimeout))

	It("what an admission check that retries or rejects says", core, func(ctx context.Context) {
		w := newWorld(ctx)
		w.pools(ctx, "8", "0")
		check := w.controlledCheck(ctx)
		w.make(ctx, w.job("llm").GPUs("8").Obj())
		w.setCheck(ctx, "llm", check, kueue.CheckStateRetry, "the site is full")
		w.eventuallyTold(ctx, "llm", "AdmissionCheckRetries", "gave its quota back to try again")
		w.setCheck(ctx, "llm", check, kueue.CheckStateRejected, "no such site")
		w.eventuallyTold(ctx, "llm", "AdmissionCheckRejected", fmt.Sprintf("%q (no such site)", check))
	}, SpecTimeout(specTimeout))

	It("that its prebuilt Workload is out of sync", core, func(ctx context.Context) {
		w := newWorld(ctx)
		w.pools(ctx, "8", "0")
		wl := w.prebuilt(ctx, "llm", "larger")
		wl.Spec.PodSets[0].Count++
		w.make(ctx, wl, w.usingPrebuilt("llm", "larger"))
		w.eventuallyTold(ctx, "llm", "WorkloadOutOfSync", "Workload larger was finished without a run")
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A runtime that comes back", Label("invariant", "nothing-waits-in-silence"), func() {
	// Trainer 2.1 and 2.2 keep a runtime that is in use.
	It("is noticed by the TrainJobs that wait for it", core, since(kit.Trainer23), func(ctx context.Context) {
		w := newWorld(ctx)
		w.pools(ctx, "8", "0")
		runtime := w.copyRuntime(ctx, "torch-distributed")
		w.make(ctx, runtime.DeepCopy(), w.job("runs").GPUs("8").Obj())
		w.eventuallyRuns(ctx, "runs", 1, onH100)
		w.make(ctx, w.job("waits").Runtime(runtime.Name).GPUs("8").Obj())
		w.eventuallyPending(ctx, "waits")
		Expect(w.Delete(ctx, runtime.DeepCopy())).To(Succeed())
		w.finish(ctx, "runs", "succeeded")
		w.touch(ctx, "runs")
		Expect(w.Create(ctx, runtime.DeepCopy())).To(Succeed())
		w.eventuallyRuns(ctx, "waits", 1, onH100)
	}, SpecTimeout(specTimeout))
})

// eventuallyTold waits for a Warning event of a TrainJob.
func (w *world) eventuallyTold(ctx context.Context, job, reason, note string) {
	GinkgoHelper()
	Eventually(ctx, func() []string { return w.eventNotes(ctx, "TrainJob", job, reason) }).Should(ContainElement(ContainSubstring(note)))
}

func (w *world) stopLocalQueue(ctx context.Context, policy *kueue.StopPolicy) {
	GinkgoHelper()
	lq := get(ctx, w, &kueue.LocalQueue{}, "queue")
	before := lq.DeepCopy()
	lq.Spec.StopPolicy = policy
	Expect(w.Patch(ctx, lq, client.MergeFrom(before))).To(Succeed())
}

// controlledCheck returns the spec's ClusterQueue an admission check whose controller the
// spec is, and returns its name.
func (w *world) controlledCheck(ctx context.Context) string {
	GinkgoHelper()
	check := &kueue.AdmissionCheck{}
	check.Name, check.Spec.ControllerName = w.name("site"), "example.com/site"
	w.make(ctx, check)
	before := check.DeepCopy()
	check.Status.Conditions = []metav1.Condition{
		{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", LastTransitionTime: metav1.Now()}}
	Expect(w.Status().Patch(ctx, check, client.MergeFrom(before))).To(Succeed())
	w.demandCheck(ctx, check.Name)
	return check.Name
}

// demandCheck has the spec's ClusterQueue admit nothing without an admission check.
func (w *world) demandCheck(ctx context.Context, check string) {
	GinkgoHelper()
	var cq kueue.ClusterQueue
	Expect(w.Get(ctx, client.ObjectKey{Name: w.name("gpus")}, &cq)).To(Succeed())
	before := cq.DeepCopy()
	cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{
		AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(check)}}}
	Expect(w.Patch(ctx, &cq, client.MergeFrom(before))).To(Succeed())
}

// setCheck says what an admission check says of a TrainJob's Workload that holds quota.
func (w *world) setCheck(ctx context.Context, job, check string, state kueue.CheckState, message string, updates ...kueue.PodSetUpdate) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		wl := w.workload(ctx, job)
		g.Expect(wl).NotTo(BeNil())
		g.Expect(wl.Status.Admission).NotTo(BeNil())
		g.Expect(wl.Status.AdmissionChecks).To(ConsistOf(HaveField("State", kueue.CheckStatePending)))
		answer := &wl.Status.AdmissionChecks[0]
		answer.State, answer.Message, answer.PodSetUpdates = state, message, updates
		g.Expect(w.Status().Update(ctx, wl)).To(Succeed())
	}).Should(Succeed())
}
