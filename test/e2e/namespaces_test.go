// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// optedIn is the label of namespaces that Kueue manages in these specs.
const optedIn = "example.com/opted-in"

var _ = Describe("Where namespaces opt in", Label("control", "external"), core, Serial, since(world.Trainer22), Ordered, ContinueOnFailure, func() {
	var w *site

	BeforeAll(func(ctx context.Context) {
		restartKueueWith(ctx, map[string]any{"managedJobsNamespaceSelector": map[string]any{"matchLabels": map[string]any{optedIn: "true"}}}, "kueue")
	})

	// label lets the namespace in, or takes it out.
	label := func(ctx context.Context, value string) {
		w.PatchJSON(ctx, kit.Namespace(w.Namespace), `{"metadata":{"labels":{"`+optedIn+`":`+value+`}}}`)
	}
	in := func(ctx context.Context) { label(ctx, `"true"`) }
	out := func(ctx context.Context) { label(ctx, `null`) }
	entry := func(ctx context.Context, job string) string {
		return fmt.Sprint(w.raw(ctx, job, "spec", "runtimePatches"))
	}
	workloads := func(ctx context.Context) ([]string, error) { return w.Names(ctx, &kueue.WorkloadList{}) }

	BeforeEach(func(ctx context.Context) {
		w = newPools(ctx, "8", "0")
		w.runsOutside("Kueue does not manage every namespace here")
	})

	It("others are left alone: a TrainJob runs at once, without Workload and gate, and is told so", func(ctx context.Context) {
		Expect(complaint(ctx, 0, "submit", "outside", "-n", w.Namespace, "--runtime", "torch-distributed", "--gpus-per-node", "16", "--queue", "queue")).
			To(ContainSubstring("Kueue does not manage namespace " + w.Namespace))
		Eventually(ctx, func() []corev1.Pod { return w.Pods(ctx, "outside") }).Should(ConsistOf(HaveField("Spec.SchedulingGates", BeEmpty())))
		Expect(w.eventuallyExplained(ctx, "outside", explain.NotManaged, "NamespaceNotManaged").State.Remedy).
			To(ContainSubstring("kubectl label namespace %s %s=true", w.Namespace, optedIn))
		w.EventuallyNotes(ctx, "outside", "NamespaceNotManaged").ShouldNot(BeEmpty())
		Expect(w.gates(ctx, "outside")).To(BeEmpty())
		Expect(workloads(ctx)).To(BeEmpty())
		By("its user may take the queue away")
		w.PatchJSON(ctx, w.Job("outside").Obj(), `{"metadata":{"labels":{"kueue.x-k8s.io/queue-name":null}}}`)
	}, SpecTimeout(specTimeout))

	It("what began outside runs on when its namespace comes in", func(ctx context.Context) {
		w.Make(ctx, w.Job("outside").GPUs("8").Obj())
		w.EventuallyPods(ctx, "outside", 1)
		pods := w.Pods(ctx, "outside")
		in(ctx)
		w.Make(ctx, w.Job("next").GPUs("8").Obj())
		w.EventuallyRuns(ctx, "next", 1, onH100)
		Expect(world.UIDs(w.Pods(ctx, "outside"))).To(Equal(world.UIDs(pods)))
		w.eventuallyExplained(ctx, "outside", explain.NotManaged, "BeganUnmanaged")
	}, SpecTimeout(specTimeout))

	It("a waiting TrainJob queues when its namespace comes in, and loses Workload and gate when it goes", func(ctx context.Context) {
		w.MakeYAML(ctx, queuedYAML("waits")+"\n  suspend: true")
		w.EventuallyNotes(ctx, "waits", "NamespaceNotManaged").ShouldNot(BeEmpty())
		w.SetQuota(ctx, w.Name("gpus"), "0")
		in(ctx)
		Eventually(ctx, func() ([]string, error) { return workloads(ctx) }).Should(HaveLen(1))
		Eventually(ctx, entry).WithArguments(ctx, "waits").Should(ContainSubstring(patch.AdmissionGate))
		out(ctx)
		Eventually(ctx, func() ([]string, error) { return workloads(ctx) }).Should(BeEmpty())
		Eventually(ctx, entry).WithArguments(ctx, "waits").ShouldNot(ContainSubstring(patch.AdmissionGate))
		Expect(w.TrainJob(ctx, "waits").Spec.Suspend).To(HaveValue(BeTrue()))
		By("its user resumes it, and its pods have no gate")
		w.PatchJSON(ctx, w.Job("waits").Obj(), `{"spec":{"suspend":false}}`)
		Eventually(ctx, func() []corev1.Pod { return w.Pods(ctx, "waits") }).Should(ConsistOf(HaveField("Spec.SchedulingGates", BeEmpty())))
	}, SpecTimeout(specTimeout))

	It("what runs keeps its quota to its end when its namespace goes, and stops when its Workload is deactivated", func(ctx context.Context) {
		in(ctx)
		w.MakeYAML(ctx, queuedYAML("runs"))
		pods := w.EventuallyRuns(ctx, "runs", 1, onH100)
		out(ctx)
		w.Make(ctx, w.Job("outside").GPUs("8").Obj())
		w.EventuallyPods(ctx, "outside", 1)
		Expect(world.UIDs(w.Pods(ctx, "runs"))).To(Equal(world.UIDs(pods)))
		Expect(w.usedGPUs(ctx)).To(BeEquivalentTo(8))
		w.Activate(ctx, "runs", false)
		Eventually(ctx, func(g Gomega) {
			g.Expect(w.TrainJob(ctx, "runs").Spec.Suspend).To(HaveValue(BeTrue()))
			g.Expect(w.Pods(ctx, "runs")).To(BeEmpty())
			g.Expect(workloads(ctx)).To(BeEmpty())
			g.Expect(w.usedGPUs(ctx)).To(BeZero())
		}).Should(Succeed())
		Expect(w.gates(ctx, "runs")).To(BeEmpty())
	}, SpecTimeout(specTimeout))
})
