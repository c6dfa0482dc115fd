// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// A fleet whose clusters migrate one after the other is mixed for some time.
var _ = Describe("In a fleet where not every cluster has kueue-trainer", Serial, Ordered, long, func() {
	handOver := func(ctx context.Context, c *kit.Cluster, integration string) {
		GinkgoHelper()
		Expect(c.HandOver(ctx, integration, GinkgoWriter)).To(Succeed())
	}
	runsAndEnds := func(ctx context.Context, w *world) {
		GinkgoHelper()
		w.manager.make(ctx, w.manager.job("llm").PodAnnotation("example.com/me", "node", "example.com/mine", "kept").Obj())
		pod := w.eventuallyRunsOn(ctx, w.worker1, "llm")
		expectPlaced(&pod)
		Expect(pod.Annotations).To(HaveKeyWithValue("example.com/mine", "kept"))
		Expect(entries(w.worker1.trainJob(ctx, "llm"))).To(Equal([]string{"example.com/me", patch.Manager}))
		w.worker1.finish(ctx, "llm", "succeeded")
		w.eventuallyOver(ctx, "llm", trainer.TrainJobComplete)
		w.worker1.eventuallyEmpty(ctx)
	}
	AfterAll(func(ctx context.Context) {
		handOver(ctx, fleet.Manager, kit.External)
		handOver(ctx, fleet.Workers[0], kit.External)
	})

	It("a TrainJob of its manager runs in a worker with Kueue's in-tree integration", func(ctx context.Context) {
		handOver(ctx, fleet.Workers[0], kit.InTree)
		runsAndEnds(ctx, newWorld(ctx, "8", "0"))
	}, SpecTimeout(2*specTimeout))

	It("a TrainJob of a manager with Kueue's in-tree integration runs in its worker", func(ctx context.Context) {
		handOver(ctx, fleet.Workers[0], kit.External)
		handOver(ctx, fleet.Manager, kit.InTree)
		runsAndEnds(ctx, newWorld(ctx, "8", "0"))
	}, SpecTimeout(2*specTimeout))
})
