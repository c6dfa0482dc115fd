// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// A fleet whose clusters migrate one after the other is mixed for some time.
var _ = Describe("In a fleet where not every cluster has kueue-trainer", Serial, Ordered, long, func() {
	handOver := func(ctx context.Context, c *world.Cluster, integration string) {
		Expect(c.HandOver(ctx, integration, GinkgoWriter)).To(Succeed())
	}
	runsAndEnds := func(ctx context.Context, w *sites) {
		pod := w.makeRunning(ctx, w.worker1, w.manager.job("llm").PodAnnotations("example.com/me", "example.com/mine", "kept", "node"))
		expectPlaced(&pod)
		Expect(pod.Annotations).To(HaveKeyWithValue("example.com/mine", "kept"))
		Expect(entries(w.worker1.trainJob(ctx, "llm"))).To(Equal([]string{"example.com/me", patch.Manager}))
		w.worker1.Finish(ctx, "llm", "succeeded")
		w.eventuallyOver(ctx, "llm", trainer.TrainJobComplete)
		w.worker1.EventuallyEmpty(ctx)
	}
	// runsOnThenNext ends "llm", of which no pod but the known one ran, and then "next".
	runsOnThenNext := func(ctx context.Context, w *sites, pod types.UID, to string) {
		Consistently(ctx, func() []corev1.Pod { return w.worker1.Pods(ctx, "llm") }).Should(
			ConsistOf(And(HaveField("UID", pod), HaveField("Status.Phase", corev1.PodRunning))), to)
		w.worker1.Finish(ctx, "llm", "succeeded")
		w.eventuallyOver(ctx, "llm", trainer.TrainJobComplete)
		w.eventuallyRunsOn(ctx, w.worker1, "next")
		w.worker1.Finish(ctx, "next", "succeeded")
		w.eventuallyOver(ctx, "next", trainer.TrainJobComplete)
	}
	AfterAll(func(ctx context.Context) {
		handOver(ctx, fleet.Manager, world.External)
		handOver(ctx, fleet.Workers[0], world.External)
	})

	It("a TrainJob of its manager runs in a worker with Kueue's in-tree integration", func(ctx context.Context) {
		handOver(ctx, fleet.Workers[0], world.InTree)
		runsAndEnds(ctx, newWorld(ctx, "8", "0"))
	}, SpecTimeout(2*specTimeout))

	It("a TrainJob runs on in a worker that migrates to kueue-trainer, and in one that migrates back", func(ctx context.Context) {
		handOver(ctx, fleet.Workers[0], world.InTree)
		for _, to := range []string{world.External, world.InTree} {
			w, pod := newRunning(ctx)
			handOver(ctx, fleet.Workers[0], to)
			w.manager.Make(ctx, w.manager.job("next").Obj())
			runsOnThenNext(ctx, w, pod.UID, to)
		}
	}, SpecTimeout(3*specTimeout))

	It("a TrainJob that runs elsewhere runs on, and one that waits there starts, when their manager migrates", func(ctx context.Context) {
		handOver(ctx, fleet.Workers[0], world.External)
		handOver(ctx, fleet.Manager, world.External)
		for _, to := range []string{world.InTree, world.External} {
			w, pod := newRunning(ctx)
			w.manager.Make(ctx, w.manager.job("next").Obj())
			w.manager.EventuallyCondition(ctx, "next", kueue.WorkloadQuotaReserved)
			handOver(ctx, fleet.Manager, to)
			runsOnThenNext(ctx, w, pod.UID, to)
		}
	}, SpecTimeout(3*specTimeout))

	It("a TrainJob of a manager with Kueue's in-tree integration runs in its worker", func(ctx context.Context) {
		handOver(ctx, fleet.Workers[0], world.External)
		handOver(ctx, fleet.Manager, world.InTree)
		runsAndEnds(ctx, newWorld(ctx, "8", "0"))
	}, SpecTimeout(2*specTimeout))

	It("a TrainJob of a manager with Kueue's in-tree integration carries what an admission check of its worker says", func(ctx context.Context) {
		handOver(ctx, fleet.Workers[0], world.External)
		handOver(ctx, fleet.Manager, world.InTree)
		w := newWorld(ctx, "8", "0")
		w.worker1.expectCarriesWhatACheckSays(ctx, w)
	}, SpecTimeout(2*specTimeout))
})
