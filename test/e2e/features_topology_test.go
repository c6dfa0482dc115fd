// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// required, preferred and unconstrained are Kueue's annotations of pods.
func required(level string) map[string]string {
	return map[string]string{kueue.PodSetRequiredTopologyAnnotation: level}
}

func preferred(level string) map[string]string {
	return map[string]string{kueue.PodSetPreferredTopologyAnnotation: level}
}

func unconstrained() map[string]string {
	return map[string]string{kueue.PodSetUnconstrainedTopologyAnnotation: "true"}
}

var _ = Describe("A TrainJob in a queue with a topology", func() {
	var w *site

	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx)
		w.fabric(ctx)
	})

	It("keeps to the block that it requires, its ranks in the order of racks and nodes", core, func(ctx context.Context) {
		w.Make(ctx, w.Job("first").GPUs("8").Obj())
		first := w.eventuallyPlaced(ctx, "first", 1)

		w.Make(ctx, asking(w.Job("llm").Nodes(4).GPUs("8"), "node", required(blockLabel)).Obj())
		nodes := w.eventuallyPlaced(ctx, "llm", 4)
		Expect(distinct(valuesOf(nodes, blockLabel))).To(HaveLen(1))
		Expect(valuesOf(nodes, blockLabel)).NotTo(ContainElement(first[0].Labels[blockLabel]), "there is no room for four")
		racks := valuesOf(nodes, rackLabel)
		Expect(racks).To(Equal([]string{racks[0], racks[0], racks[2], racks[2]}))
	}, SpecTimeout(specTimeout))

	It("waits where no rack is as large as it requires", func(ctx context.Context) {
		w.Make(ctx, asking(w.Job("llm").Nodes(3).GPUs("8"), "node", required(rackLabel)).Obj())
		w.EventuallyPending(ctx, "llm")
		w.EventuallyAtTheGate(ctx, "llm")
		Expect(w.Pods(ctx, "llm")).To(BeEmpty())
	}, SpecTimeout(specTimeout))

	DescribeTable("runs", func(ctx context.Context, pods int32, asks map[string]string, blocks int) {
		w.Make(ctx, asking(w.Job("llm").Nodes(pods).GPUs("8"), "node", asks).Obj())
		Expect(distinct(valuesOf(w.eventuallyPlaced(ctx, "llm", int(pods)), blockLabel))).To(HaveLen(blocks))
	},
		Entry("in one block where no rack is as large as it prefers", int32(3), preferred(rackLabel), 1, SpecTimeout(specTimeout)),
		Entry("across blocks where it is unconstrained", int32(6), unconstrained(), 2, SpecTimeout(specTimeout)),
	)

	It("has each slice in a rack of its own", func(ctx context.Context) {
		asks := required(blockLabel)
		asks[kueue.PodSetSliceRequiredTopologyAnnotation], asks[kueue.PodSetSliceSizeAnnotation] = rackLabel, "3"
		w.Make(ctx, asking(w.Job("llm").Nodes(6).GPUs("4"), "node", asks).Obj())
		nodes := w.eventuallyPlaced(ctx, "llm", 6)
		Expect(distinct(valuesOf(nodes, blockLabel))).To(HaveLen(1))
		racks := valuesOf(nodes, rackLabel)
		// A rack has room for four of the pods.
		Expect(racks).To(Equal([]string{racks[0], racks[0], racks[0], racks[3], racks[3], racks[3]}))
		Expect(racks[0]).NotTo(Equal(racks[3]))
	}, SpecTimeout(specTimeout))

	It("has slices within slices", func(ctx context.Context) {
		asks := required(blockLabel)
		asks[kueue.PodSetSliceRequiredTopologyConstraintsAnnotation] =
			`[{"topology":"` + rackLabel + `","size":6},{"topology":"` + corev1.LabelHostname + `","size":3}]`
		w.Make(ctx, asking(w.Job("llm").Nodes(12).GPUs("2"), "node", asks).Obj())
		nodes := w.eventuallyPlaced(ctx, "llm", 12)
		// A node has room for four of the pods, a rack for eight.
		for first := 0; first < 12; first += 3 {
			Expect(distinct(valuesOf(nodes[first:first+3], corev1.LabelHostname))).To(HaveLen(1), "the slice of rank %d", first)
		}
		Expect(distinct(valuesOf(nodes[:6], rackLabel))).To(HaveLen(1))
		Expect(distinct(valuesOf(nodes, corev1.LabelHostname))).To(HaveLen(4))
		Expect(distinct(valuesOf(nodes, blockLabel))).To(HaveLen(1))
	}, SpecTimeout(specTimeout))

	It("ranks the pods of several Jobs by Job, then by pod", func(ctx context.Context) {
		runtime := w.CopyRuntime(ctx, "torch-distributed")
		rj := &runtime.Spec.Template.Spec.ReplicatedJobs[0]
		// Trainer has one replica of what it calls the trainer.
		runtime.Spec.MLPolicy.Torch, rj.Template.Labels = nil, nil
		rj.Replicas, rj.Template.Spec.Parallelism, rj.Template.Spec.Completions = 3, ptr.To[int32](2), ptr.To[int32](2)
		rj.Template.Spec.Template.Spec.Containers[0].Resources = kit.GPUResources("8")
		w.Make(ctx, runtime, asking(w.Job("llm").Runtime(runtime.Name), "node", preferred(blockLabel)).Obj())
		w.eventuallyPlaced(ctx, "llm", 6)
		Expect(w.Workload(ctx, "llm").Spec.PodSets[0].TopologyRequest).To(Equal(&kueue.PodSetTopologyRequest{
			Preferred:          ptr.To(blockLabel),
			PodIndexLabel:      ptr.To(batchv1.JobCompletionIndexAnnotation),
			SubGroupIndexLabel: ptr.To(jobsetapi.JobIndexKey),
			SubGroupCount:      ptr.To[int32](3),
		}))
	}, SpecTimeout(specTimeout))

	It("has the PodSets of a group in one rack", func(ctx context.Context) {
		w.Make(ctx, w.Job("first").GPUs("8").Obj())
		w.eventuallyPlaced(ctx, "first", 1)

		asks := required(rackLabel)
		asks[kueue.PodSetGroupName] = "together"
		job := w.Job("mpi").Runtime("deepspeed-distributed").Nodes(2).GPUs("8")
		w.Make(ctx, asking(asking(job, "node", asks), "launcher", asks).Obj())
		pods := w.EventuallyRuns(ctx, "mpi", 2, nil)
		// By itself each of them would fit better beside the first job.
		Expect(distinct(valuesOf(w.nodes(ctx, running(pods)), rackLabel))).To(HaveLen(1))
		wl := w.Workload(ctx, "mpi")
		Expect(running(pods)).To(ConsistOf(append(assignedNodes(wl, 0), assignedNodes(wl, 1)...)))
	}, SpecTimeout(specTimeout))
})
