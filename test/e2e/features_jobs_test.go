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

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// docs/features.md names these specs: what Kueue does with jobs in its queues, done with
// TrainJobs.
var _ = Describe("The WorkloadPriorityClass of a TrainJob", func() {
	DescribeTable("moves it to the front of its queue while it waits", func(ctx context.Context, raise func(context.Context, *world)) {
		w := newWorld(ctx)
		w.pools(ctx, "8", "0")
		w.make(ctx, kit.MakePriority(w.name("low"), 1), kit.MakePriority(w.name("mine"), 1), kit.MakePriority(w.name("urgent"), 1000))
		w.make(ctx, w.job("holds").Priority(w.name("urgent")).GPUs("8").Obj())
		w.eventuallyRuns(ctx, "holds", 1, onH100)
		w.queues(ctx, w.job("earlier").Priority(w.name("low")).GPUs("8"))
		w.eventuallyLaterThan(ctx, "earlier")
		w.queues(ctx, w.job("raised").Priority(w.name("mine")).GPUs("8"))

		raise(ctx, w)
		w.eventuallyPriority(ctx, "raised", 1000)
		w.finish(ctx, "holds", "succeeded")
		w.eventuallyRuns(ctx, "raised", 1, onH100)
		w.consistentlyUnbound(ctx, "earlier")
	},
		Entry("when it gets another one", func(ctx context.Context, w *world) {
			w.update(ctx, "raised", func(t *trainer.TrainJob) { t.Labels[kit.PriorityLabel] = w.name("urgent") })
		}, SpecTimeout(specTimeout)),
		Entry("when that gets another value", func(ctx context.Context, w *world) {
			w.patch(ctx, kit.MakePriority(w.name("mine"), 0), `{"value":1000}`)
		}, SpecTimeout(specTimeout)),
	)

	It("changes while it runs, and its pods stay", func(ctx context.Context) {
		w := newWorld(ctx)
		w.pools(ctx, "8", "0")
		w.make(ctx, kit.MakePriority(w.name("low"), 1), kit.MakePriority(w.name("urgent"), 1000))
		w.make(ctx, w.job("runs").Priority(w.name("low")).GPUs("8").Obj())
		pods := w.eventuallyRuns(ctx, "runs", 1, onH100)
		w.update(ctx, "runs", func(t *trainer.TrainJob) { t.Labels[kit.PriorityLabel] = w.name("urgent") })
		w.eventuallyPriority(ctx, "runs", 1000)
		w.consistentlyKeeps(ctx, "runs", pods, w.workload(ctx, "runs"))
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A stopped queue", func() {
	for _, kind := range []string{"ClusterQueue", "LocalQueue"} {
		It(fmt.Sprintf("lets who runs run on, and who comes wait, until it starts again (%s, Hold)", kind), func(ctx context.Context) {
			w := newWorld(ctx)
			w.pools(ctx, "16", "0")
			w.make(ctx, w.job("runs").GPUs("8").Obj())
			pods := w.eventuallyRuns(ctx, "runs", 1, onH100)
			w.setStopPolicy(ctx, kind, kueue.Hold)
			w.make(ctx, w.job("comes").GPUs("8").Obj())
			w.eventuallyAtTheGate(ctx, "comes")
			w.consistentlyKeeps(ctx, "runs", pods, w.workload(ctx, "runs"))
			Expect(w.pods(ctx, "comes")).To(BeEmpty())
			w.setStopPolicy(ctx, kind, kueue.None)
			w.eventuallyRuns(ctx, "comes", 1, onH100)
		}, SpecTimeout(specTimeout))

		It(fmt.Sprintf("stops who runs, and runs it again when it starts again (%s, HoldAndDrain)", kind), func(ctx context.Context) {
			w := newWorld(ctx)
			w.pools(ctx, "8", "0")
			w.make(ctx, w.job("runs").GPUs("8").Obj())
			w.eventuallyRuns(ctx, "runs", 1, onH100)
			w.setStopPolicy(ctx, kind, kueue.HoldAndDrain)
			w.eventuallyEvicted(ctx, "runs", kind+"Stopped")
			w.eventuallyAtTheGate(ctx, "runs")
			w.eventuallyWithoutPods(ctx, "runs")
			w.setStopPolicy(ctx, kind, kueue.None)
			w.eventuallyRuns(ctx, "runs", 1, onH100)
		}, SpecTimeout(specTimeout))
	}
})

var _ = Describe("A TrainJob in a queue with several resource groups", func() {
	It("runs on nodes that the flavors of all of them name", func(ctx context.Context) {
		w := newWorld(ctx)
		w.make(ctx, w.flavor("hopper", map[string]string{kit.FamilyLabel: "hopper"}), w.flavor("h100", onH100))
		gpus := kit.MakeClusterQueue(w.name("gpus"), kit.Quota{Flavor: w.name("h100"), GPUs: "8"})
		gpus.Spec.ResourceGroups = append(gpus.Spec.ResourceGroups, kueue.ResourceGroup{
			CoveredResources: []corev1.ResourceName{corev1.ResourceCPU},
			Flavors: []kueue.FlavorQuotas{{
				Name:      kueue.ResourceFlavorReference(w.name("hopper")),
				Resources: []kueue.ResourceQuota{{Name: corev1.ResourceCPU, NominalQuota: *quantity("1")}},
			}},
		})
		w.make(ctx, gpus, kit.MakeLocalQueue(w.namespace, "queue", gpus.Name), w.job("first").GPUs("4").Request(corev1.ResourceCPU, "1").Obj())
		pods := w.eventuallyRuns(ctx, "first", 1, onH100)
		Expect(pods[0].Spec.NodeSelector).To(Equal(map[string]string{kit.ProductLabel: kit.H100, kit.FamilyLabel: "hopper"}))
		w.make(ctx, w.job("second").GPUs("4").Request(corev1.ResourceCPU, "1").Obj())
		w.eventuallyPending(ctx, "second")
	}, SpecTimeout(specTimeout))
})

func (w *world) eventuallyPriority(ctx context.Context, job string, priority int32) {
	GinkgoHelper()
	Eventually(ctx, func() *int32 { return w.workload(ctx, job).Spec.Priority }).Should(HaveValue(Equal(priority)))
}

// setStopPolicy stops or starts the spec's ClusterQueue or LocalQueue.
func (w *world) setStopPolicy(ctx context.Context, kind string, policy kueue.StopPolicy) {
	GinkgoHelper()
	queue := map[string]client.Object{
		"ClusterQueue": &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: w.name("gpus")}},
		"LocalQueue":   &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Name: "queue", Namespace: w.namespace}},
	}[kind]
	w.patch(ctx, queue, fmt.Sprintf(`{"spec":{"stopPolicy":%q}}`, policy))
}
