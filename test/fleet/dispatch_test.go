// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

var _ = Describe("A TrainJob whose queue leads to other clusters", func() {
	It("runs in a worker with exactly that one's placement, and its status comes back", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		w.manager.make(ctx, w.manager.job("llm").PodAnnotation("example.com/me", "node", "example.com/mine", "kept").Obj())

		pod := w.eventuallyRunsOn(ctx, w.worker1, "llm")
		expectPlaced(&pod)
		Expect(pod.Annotations).To(HaveKeyWithValue("example.com/mine", "kept"))
		Expect(entries(w.worker1.trainJob(ctx, "llm"))).To(Equal([]string{"example.com/me", patch.Manager}))
		w.expectNothingHere(ctx, "llm")
		Expect(w.worker2.trainJob(ctx, "llm")).To(BeNil())
		Eventually(ctx, func() []trainer.JobStatus { return w.manager.trainJob(ctx, "llm").Status.JobsStatus }).Should(
			ConsistOf(HaveField("Ready", HaveValue(BeEquivalentTo(1)))))
		Expect(w.manager.notes(ctx, "llm", "Started")).To(ConsistOf(ContainSubstring("runs in cluster worker1")))

		w.worker1.finish(ctx, "llm", "succeeded")
		w.eventuallyOver(ctx, "llm", trainer.TrainJobComplete)
		w.worker1.eventuallyEmpty(ctx)
	}, SpecTimeout(specTimeout))

	It("fails where its run in a worker failed", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		once := func(spec *trainer.TrainingRuntimeSpec) {
			spec.Template.Spec.ReplicatedJobs[0].Template.Spec.BackoffLimit = ptr.To[int32](0)
		}
		w.worker1.copyRuntime(ctx, once)
		w.manager.make(ctx, w.manager.job("llm").Runtime(w.manager.copyRuntime(ctx, once)).Obj())
		w.eventuallyRunsOn(ctx, w.worker1, "llm")
		w.worker1.finish(ctx, "llm", "failed")
		w.eventuallyOver(ctx, "llm", trainer.TrainJobFailed)
		w.worker1.eventuallyEmpty(ctx)
	}, SpecTimeout(specTimeout))

	It("leaves nothing in a worker when it is deleted", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		w.manager.make(ctx, w.manager.job("llm").Obj())
		w.eventuallyRunsOn(ctx, w.worker1, "llm")
		Expect(w.manager.Delete(ctx, w.manager.trainJob(ctx, "llm"))).To(Succeed())
		w.manager.eventuallyEmpty(ctx)
		w.worker1.eventuallyEmpty(ctx)
	}, SpecTimeout(specTimeout))

	It("stops in its worker when it is deactivated, and runs again when it is activated", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		w.manager.make(ctx, w.manager.job("llm").Obj())
		w.eventuallyRunsOn(ctx, w.worker1, "llm")

		w.manager.activate(ctx, "llm", false)
		w.worker1.eventuallyEmpty(ctx)
		Eventually(ctx, func() *bool { return w.manager.trainJob(ctx, "llm").Spec.Suspend }).Should(HaveValue(BeTrue()))
		w.expectNothingHere(ctx, "llm")

		w.manager.activate(ctx, "llm", true)
		w.eventuallyRunsOn(ctx, w.worker1, "llm")
		w.expectNothingHere(ctx, "llm")
	}, SpecTimeout(specTimeout))

	It("starts again in the same worker when the last pod of its former run is gone", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		w.manager.make(ctx, w.manager.job("llm").PodAnnotation("example.com/me", "node", "localcluster/terminate-after", "8s").Obj())
		former := w.eventuallyRunsOn(ctx, w.worker1, "llm")

		w.manager.activate(ctx, "llm", false)
		Eventually(ctx, func() *trainer.TrainJob { return w.worker1.trainJob(ctx, "llm") }).Should(BeNil())
		w.manager.activate(ctx, "llm", true)
		Eventually(ctx, func(g Gomega) {
			pods := w.worker1.pods(ctx, "llm")
			if len(pods) > 1 {
				StopTrying("two runs at a time").Attach("pods", pods).Now()
			}
			g.Expect(pods).To(HaveLen(1))
			g.Expect(pods[0].UID).NotTo(Equal(former.UID))
		}).Should(Succeed())
		w.eventuallyRunsOn(ctx, w.worker1, "llm")
	}, SpecTimeout(specTimeout))

	It("stops in its worker when its queue in the manager cluster is drained, and resumes with that", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		w.manager.make(ctx, w.manager.job("llm").Obj())
		w.eventuallyRunsOn(ctx, w.worker1, "llm")

		w.manager.setStopPolicy(ctx, kueue.HoldAndDrain)
		w.worker1.eventuallyEmpty(ctx)
		w.manager.setStopPolicy(ctx, kueue.None)
		w.eventuallyRunsOn(ctx, w.worker1, "llm")
	}, SpecTimeout(specTimeout))

	It("goes to the other worker when it is preempted in the first", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		w.worker1.make(ctx, kit.MakePriority(w.worker1.unique("high"), 1000))
		w.manager.make(ctx, w.manager.job("llm").Obj())
		w.eventuallyRunsOn(ctx, w.worker1, "llm")

		w.worker2.setQuota(ctx, "8")
		w.worker1.make(ctx, w.worker1.job("urgent").Priority(w.worker1.unique("high")).Obj())
		pod := w.eventuallyRunsOn(ctx, w.worker2, "llm")
		expectPlaced(&pod)
		w.expectNothingHere(ctx, "llm")
		Eventually(ctx, func() *trainer.TrainJob { return w.worker1.trainJob(ctx, "llm") }).Should(BeNil())
	}, SpecTimeout(specTimeout))
})

var _ = Describe("With the incremental dispatcher", Serial, long, func() {
	It("a TrainJob goes to the first worker alone while that has quota", func(ctx context.Context) {
		before, err := fleet.Manager.ConfigureKueue(ctx, map[string]any{"multiKueue": map[string]any{
			"dispatcherName":              "kueue.x-k8s.io/multikueue-dispatcher-incremental",
			"incrementalDispatcherConfig": map[string]any{"stepSize": 1},
			"workerLostTimeout":           "10s",
			"externalFrameworks":          []map[string]any{{"name": "TrainJob.v1alpha1.trainer.kubeflow.org"}},
		}})
		Expect(err).NotTo(HaveOccurred())
		restart := func(ctx context.Context) {
			GinkgoHelper()
			Expect(fleet.Manager.Control(ctx, "restart", "kueue", GinkgoWriter)).To(Succeed())
		}
		DeferCleanup(func(ctx context.Context) {
			Expect(fleet.Manager.RestoreKueueConfig(ctx, before)).To(Succeed())
			restart(ctx)
		})
		restart(ctx)
		w := newWorld(ctx, "8", "8")
		w.manager.make(ctx, w.manager.job("llm").Obj())
		pod := w.eventuallyRunsOn(ctx, w.worker1, "llm")
		expectPlaced(&pod)
		w.expectNothingHere(ctx, "llm")
		Expect(w.manager.workload(ctx, "llm").Status.NominatedClusterNames).To(BeEmpty())
		var copies kueue.WorkloadList
		Expect(w.worker2.List(ctx, &copies, client.InNamespace(w.worker2.namespace))).To(Succeed())
		Expect(copies.Items).To(BeEmpty())
		w.worker1.finish(ctx, "llm", "succeeded")
		w.eventuallyOver(ctx, "llm", trainer.TrainJobComplete)
	}, SpecTimeout(specTimeout))
})

func (s *site) setStopPolicy(ctx context.Context, policy kueue.StopPolicy) {
	GinkgoHelper()
	s.changeQueue(ctx, func(cq *kueue.ClusterQueue) { cq.Spec.StopPolicy = ptr.To(policy) })
}

// setQuota sets the GPUs of the spec's ClusterQueue.
func (s *site) setQuota(ctx context.Context, gpus string) {
	GinkgoHelper()
	s.changeQueue(ctx, func(cq *kueue.ClusterQueue) {
		cq.Spec.ResourceGroups = kit.MakeClusterQueue(cq.Name, kit.Quota{Flavor: s.unique("gpus"), GPUs: gpus}).Spec.ResourceGroups
	})
}

func (s *site) changeQueue(ctx context.Context, change func(*kueue.ClusterQueue)) {
	GinkgoHelper()
	var cq kueue.ClusterQueue
	Expect(s.Get(ctx, client.ObjectKey{Name: s.unique("gpus")}, &cq)).To(Succeed())
	before := cq.DeepCopy()
	change(&cq)
	Expect(s.Patch(ctx, &cq, client.MergeFrom(before))).To(Succeed())
}
