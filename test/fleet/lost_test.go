// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// The fleet's Kueue takes a worker for lost after ten seconds.
var _ = Describe("A TrainJob of a worker that is lost", Serial, long, func() {
	It("comes back in the other one, and has one run again when the worker is back", func(ctx context.Context) {
		w := newWorld(ctx, "8", "8")
		w.worker2.setStopPolicy(ctx, kueue.Hold)
		w.makeRunning(ctx, w.worker1, w.manager.job("llm"))
		w.worker2.setStopPolicy(ctx, kueue.None)

		Expect(w.worker1.Cluster.Control(ctx, "kill", "kube-apiserver", GinkgoWriter)).To(Succeed())
		DeferCleanup(w.worker1.revive)
		pod := w.eventuallyRunsOn(ctx, w.worker2, "llm")
		expectPlaced(&pod)
		w.expectNothingHere(ctx, "llm")

		w.worker1.revive(ctx)
		// Which of the two is Kueue's to say; it keeps the one that was admitted first, and tries to
		// reach a lost worker less and less often.
		var kept *site
		Eventually(ctx, func(g Gomega) {
			var running []*site
			for _, worker := range w.workers() {
				if len(worker.Pods(ctx, "llm")) > 0 {
					running = append(running, worker)
				}
			}
			g.Expect(running).To(HaveLen(1))
			kept = running[0]
		}).WithTimeout(specTimeout).Should(Succeed())
		w.expectNothingHere(ctx, "llm")
		kept.Finish(ctx, "llm", "succeeded")
		w.eventuallyOver(ctx, "llm", trainer.TrainJobComplete)
	}, SpecTimeout(2*specTimeout))
})

// revive starts an API server again, and what has ended without it: kueue-trainer, as in a pod,
// when it could not renew its lease.
func (s *site) revive(ctx context.Context) {
	GinkgoHelper()
	Expect(s.Cluster.Control(ctx, "start", "kube-apiserver", GinkgoWriter)).To(Succeed())
	Expect(s.Cluster.Repair(ctx, GinkgoWriter)).To(Succeed())
}

var _ = Describe("A TrainJob whose runtime is another one in a worker", func() {
	It("says which worker is out of sync, and there in what", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		w.worker1.MakeRuntime(ctx, "torch-distributed", kit.OfNodes(2))
		w.manager.Make(ctx, w.manager.job("llm").Runtime(w.manager.MakeRuntime(ctx, "torch-distributed", kit.OfNodes(1))).Obj())
		w.manager.EventuallyTold(ctx, "llm", "AdmissionCheckRetries", "worker1", "out of sync")
		w.worker1.EventuallyTold(ctx, "llm", "PrebuiltWorkloadUnusable", `PodSet "node" has 2 pods in the TrainJob, 1 in the Workload`)
		Expect(w.worker1.Pods(ctx, "llm")).To(BeEmpty())
	}, SpecTimeout(specTimeout))
})
