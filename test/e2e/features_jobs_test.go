// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/constants"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// docs/features.md names these specs: what Kueue does with jobs in its queues, done with TrainJobs.
var _ = Describe("The WorkloadPriorityClass of a TrainJob", func() {
	DescribeTable("moves it to the front of its queue while it waits", func(ctx context.Context, raise func(context.Context, *site)) {
		w := newPools(ctx, "8", "0")
		w.Make(ctx, kit.Priority(w.Name("low"), 1), kit.Priority(w.Name("mine"), 1), kit.Priority(w.Name("urgent"), 1000))
		w.MakeRunning(ctx, w.Job("holds").Priority(w.Name("urgent")).GPUs("8"), 1, onH100)
		w.queues(ctx, w.Job("earlier").Priority(w.Name("low")).GPUs("8"))
		w.eventuallyLaterThan(ctx, "earlier")
		w.queues(ctx, w.Job("raised").Priority(w.Name("mine")).GPUs("8"))
		// Kueue passes a class's new value on to the Workloads that it has heard of.
		w.EventuallyIs(ctx, w.LocalQueue(), "queue", HaveField("Status.PendingWorkloads", BeEquivalentTo(2)))

		raise(ctx, w)
		w.EventuallyWorkload(ctx, "raised", HaveField("Spec.Priority", HaveValue(Equal(int32(1000)))))
		w.Finish(ctx, "holds", "succeeded")
		w.EventuallyRuns(ctx, "raised", 1, onH100)
		w.ConsistentlyUnbound(ctx, "earlier")
	},
		Entry("when it gets another one", func(ctx context.Context, w *site) {
			w.Edit(ctx, "raised", func(t *trainer.TrainJob) { t.Labels[kit.PriorityLabel] = w.Name("urgent") })
		}, SpecTimeout(specTimeout)),
		Entry("when that gets another value", func(ctx context.Context, w *site) {
			w.PatchJSON(ctx, kit.Priority(w.Name("mine"), 0), `{"value":1000}`)
		}, SpecTimeout(specTimeout)),
	)

	It("changes while it runs, and its pods stay", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.Make(ctx, kit.Priority(w.Name("urgent"), 1000))
		pods := w.MakeRunning(ctx, w.Job("runs").Priority(w.Name("low")).GPUs("8"), 1, onH100, kit.Priority(w.Name("low"), 1))
		w.Edit(ctx, "runs", func(t *trainer.TrainJob) { t.Labels[kit.PriorityLabel] = w.Name("urgent") })
		w.EventuallyWorkload(ctx, "runs", HaveField("Spec.Priority", HaveValue(Equal(int32(1000)))))
		w.ConsistentlyKeeps(ctx, "runs", pods, w.Workload(ctx, "runs"))
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A stopped queue", func() {
	queues := map[string]func(*site) client.Object{
		"ClusterQueue": func(w *site) client.Object { return kit.ClusterQueue(w.Name("gpus")) },
		"LocalQueue":   func(w *site) client.Object { return w.LocalQueue() },
	}
	for _, kind := range []string{"ClusterQueue", "LocalQueue"} {
		queue := queues[kind]
		It(fmt.Sprintf("lets who runs run on, and who comes wait, until it starts again (%s, Hold)", kind), func(ctx context.Context) {
			w := newPools(ctx, "16", "0")
			pods := w.MakeRunning(ctx, w.Job("runs").GPUs("8"), 1, onH100)
			w.SetStopPolicy(ctx, queue(w), kueue.Hold)
			w.MakeGated(ctx, w.Job("comes").GPUs("8"), 0)
			w.ConsistentlyKeeps(ctx, "runs", pods, w.Workload(ctx, "runs"))
			Expect(w.Pods(ctx, "comes")).To(BeEmpty())
			w.SetStopPolicy(ctx, queue(w), kueue.None)
			w.EventuallyRuns(ctx, "comes", 1, onH100)
		}, SpecTimeout(specTimeout))

		It(fmt.Sprintf("stops who runs, and runs it again when it starts again (%s, HoldAndDrain)", kind), func(ctx context.Context) {
			w, _ := newRunning(ctx, "runs")
			w.SetStopPolicy(ctx, queue(w), kueue.HoldAndDrain)
			w.eventuallyEvicted(ctx, "runs", kind+"Stopped")
			w.EventuallyAtTheGate(ctx, "runs")
			w.EventuallyPods(ctx, "runs", 0)
			w.SetStopPolicy(ctx, queue(w), kueue.None)
			w.EventuallyRuns(ctx, "runs", 1, onH100)
		}, SpecTimeout(specTimeout))
	}
})

var _ = Describe("A TrainJob in a queue with several resource groups", func() {
	It("runs on nodes that the flavors of all of them name", func(ctx context.Context) {
		w := newWorld(ctx)
		w.Make(ctx, w.Flavor("hopper", map[string]string{kit.FamilyLabel: "hopper"}), w.Flavor("h100", onH100))
		gpus := kit.ClusterQueue(w.Name("gpus"), kit.Quota{Flavor: w.Name("h100"), GPUs: "8"})
		cpus := kit.ClusterQueue("", kit.Quota{Flavor: w.Name("hopper"), Of: corev1.ResourceCPU, Amount: "1"})
		gpus.Spec.ResourceGroups = append(gpus.Spec.ResourceGroups, cpus.Spec.ResourceGroups...)
		pods := w.MakeRunning(ctx, w.Job("first").GPUs("4").Request(corev1.ResourceCPU, "1"), 1, onH100, gpus, w.LocalQueue())
		Expect(pods[0].Spec.NodeSelector).To(Equal(map[string]string{kit.ProductLabel: kit.H100, kit.FamilyLabel: "hopper"}))
		w.MakePending(ctx, w.Job("second").GPUs("4").Request(corev1.ResourceCPU, "1"))
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A TrainJob whose admission is gated by others", func() {
	It("is admitted when the last of them lets it go, and gated by nobody else later", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		job := w.Job("llm").GPUs("8").Obj()
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, constants.AdmissionGatedByAnnotation, "example.com/budget,example.com/data")
		w.Make(ctx, job)
		w.eventuallyGatedBy(ctx, "llm", "example.com/budget,example.com/data")
		Expect(w.gatedBy(ctx, "llm", "example.com/data")).To(Succeed())
		w.eventuallyGatedBy(ctx, "llm", "example.com/data")
		w.EventuallyAtTheGate(ctx, "llm")
		Expect(w.Pods(ctx, "llm")).To(BeEmpty())
		Expect(w.gatedBy(ctx, "llm", "")).To(Succeed())
		Expect(w.gatedBy(ctx, "llm", "example.com/late")).To(MatchError(ContainSubstring("cannot add admission gate after creation")))
		w.EventuallyRuns(ctx, "llm", 1, onH100)
	}, SpecTimeout(specTimeout))
})

func (w *site) gatedBy(ctx context.Context, job, gates string) error {
	return w.TryEdit(ctx, job, func(t *trainer.TrainJob) {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, constants.AdmissionGatedByAnnotation, gates)
	})
}

func (w *site) eventuallyGatedBy(ctx context.Context, job, gates string) {
	w.EventuallyWorkload(ctx, job,
		HaveField("Annotations", HaveKeyWithValue(constants.AdmissionGatedByAnnotation, gates)),
		world.Condition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, kueue.WorkloadAdmissionGated))
}

// Concurrent admission is alpha: it takes a feature gate, and a restart of Kueue.
var _ = It("With concurrent admission a TrainJob starts on the flavor that has quota, and moves to the one it prefers when that has", Label("control"), Serial, func(ctx context.Context) {
	restartKueueWith(ctx, map[string]any{"featureGates": map[string]any{"ConcurrentAdmission": true, "VisibilityOnDemand": false}}, "kueue")
	w := newWorld(ctx)
	queue := kit.ClusterQueue(w.Name("gpus"), kit.Quota{Flavor: w.Name("h100"), GPUs: "0"}, kit.Quota{Flavor: w.Name("a100"), GPUs: "8"})
	queue.Spec.ConcurrentAdmissionPolicy = &kueue.ConcurrentAdmissionPolicy{
		Migration: kueue.ConcurrentAdmissionMigration{Mode: kueue.ConcurrentAdmissionTryPreferredFlavors}}
	w.MakeRunning(ctx, w.Job("llm").GPUs("8"), 1, onA100, w.Flavor("h100", onH100), w.Flavor("a100", onA100), queue, w.LocalQueue())
	w.SetQuota(ctx, w.Name("gpus"), "8")
	Eventually(ctx, w.Pods).WithArguments(ctx, "llm").Should(ConsistOf(HaveField("Spec.NodeSelector", onH100)))
	w.EventuallyRuns(ctx, "llm", 1, onH100)
	w.Succeed(ctx, "llm")
}, SpecTimeout(2*specTimeout))
