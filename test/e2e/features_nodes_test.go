// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

var _ = Describe("When a node of a running TrainJob", func() {
	var w *site
	var workloads *record.Recorder

	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx)
		w.fabric(ctx)
	})

	// start runs a job on nodes that it fills, and returns the pod of its rank 1 and the others.
	start := func(ctx context.Context, nodes int32, asks map[string]string) (fails corev1.Pod, others []corev1.Pod) {
		runtime := w.MakeRuntime(ctx, "torch-distributed", kit.OfGracePeriod(3600))
		job := asking(w.Job("llm").Runtime(runtime).Nodes(nodes).GPUs("8"), "node", asks)
		w.Make(ctx, job.Tolerate(gpuToleration, briefly(corev1.TaintNodeNotReady)).Obj())
		w.eventuallyPlaced(ctx, "llm", int(nodes))
		pods := byRank(w.Pods(ctx, "llm"))
		workloads = w.record(ctx, workloadResource)
		return pods[1], slices.Delete(slices.Clone(pods), 1, 2)
	}

	DescribeTable("is lost, its pod runs on another one of the same block: one that is", func(ctx context.Context, lose func(context.Context, corev1.Pod)) {
		fails, others := start(ctx, 3, required(blockLabel))
		lose(ctx, fails)
		w.eventuallyReplaced(ctx, workloads, fails, others)
	},
		Entry("closed to it", SpecTimeout(specTimeout), func(ctx context.Context, fails corev1.Pod) {
			w.taint(ctx, fails.Spec.NodeName, corev1.Taint{Key: "example.com/broken", Effect: corev1.TaintEffectNoExecute})
		}),
		Entry("deleted", SpecTimeout(specTimeout), func(ctx context.Context, fails corev1.Pod) { w.loseNode(ctx, fails) }),
		Entry("not ready any more, though nobody ends the old pod", SpecTimeout(specTimeout), func(ctx context.Context, fails corev1.Pod) {
			w.runsOutside("the Job controller makes the next pod while the one on the dead node counts as terminating")
			w.stopKubelet(ctx, fails, corev1.ConditionFalse)
		}),
	)

	It("is deleted and its rack has no other, the job is evicted and runs in another rack", func(ctx context.Context) {
		fails, _ := start(ctx, 2, required(rackLabel))
		w.loseNode(ctx, fails)
		// Whatever became of it since.
		w.EventuallyWorkload(ctx, "llm", HaveField("Status.SchedulingStats.Evictions",
			ConsistOf(And(HaveField("Reason", kueue.WorkloadEvictedDueToNodeFailures), HaveField("Count", BeEquivalentTo(1))))))
		nodes := w.eventuallyPlaced(ctx, "llm", 2)
		Expect(distinct(valuesOf(nodes, rackLabel))).To(HaveLen(1))
		Expect(valuesOf(nodes, corev1.LabelHostname)).NotTo(ContainElement(fails.Spec.NodeName))
	}, SpecTimeout(specTimeout))

	It("is not ready and its rack has no other, the job keeps its quota until somebody deletes the pod there", func(ctx context.Context) {
		fails, _ := start(ctx, 2, required(rackLabel))
		w.stopKubelet(ctx, fails, corev1.ConditionFalse)
		w.eventuallyEvicted(ctx, "llm", kueue.WorkloadEvictedDueToNodeFailures)
		w.EventuallyNotes(ctx, "llm", "StillStopping").Should(ContainElement(HavePrefix("Pods of the stopped run are still terminating")))
		Expect(w.Workload(ctx, "llm").Status.Admission).NotTo(BeNil())
		w.forceDelete(ctx, &fails)
		w.eventuallyPlaced(ctx, "llm", 2)
	}, SpecTimeout(specTimeout))
})

// Failure recovery is alpha: it takes a feature gate, and a restart of Kueue.
var _ = It("With failure recovery a TrainJob comes back from a node that is lost, when Kueue has ended its pod there", Label("control", "long"), Serial, func(ctx context.Context) {
	restartKueueWith(ctx, map[string]any{"featureGates": map[string]any{"FailureRecoveryPolicy": true}}, "kueue")
	w := newWorld(ctx)
	w.fabric(ctx)
	runtime := w.MakeRuntime(ctx, "torch-distributed", kit.OfGracePeriod(1))
	asks := required(rackLabel)
	asks["kueue.x-k8s.io/safe-to-forcefully-delete"] = "true"
	job := asking(w.Job("llm").Runtime(runtime).Nodes(2).GPUs("8"), "node", asks)
	w.Make(ctx, job.Tolerate(gpuToleration, briefly(corev1.TaintNodeUnreachable)).Obj())
	w.eventuallyPlaced(ctx, "llm", 2)
	fails := byRank(w.Pods(ctx, "llm"))[1]
	// kwok goes on with the pods of a node that it had, until its next start.
	w.PatchJSON(ctx, w.Node(ctx, fails.Spec.NodeName), fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, kit.KwokAnnotation))
	control(ctx, "restart", "kwok")
	w.stopKubelet(ctx, fails, corev1.ConditionUnknown)
	w.eventuallyEvicted(ctx, "llm", kueue.WorkloadEvictedDueToNodeFailures)
	Expect(w.Workload(ctx, "llm").Status.Admission).NotTo(BeNil(), "the quota of a job with a pod left")
	// Kueue waits for a minute.
	Eventually(ctx, w.EventNotes).WithArguments(ctx, "Pod", fails.Name, "KueueForcefullyDeleted").WithTimeout(2 * time.Minute).ShouldNot(BeEmpty())
	w.EventuallyGone(ctx, &fails)
	nodes := w.eventuallyPlaced(ctx, "llm", 2)
	Expect(valuesOf(nodes, corev1.LabelHostname)).NotTo(ContainElement(fails.Spec.NodeName))
}, SpecTimeout(2*specTimeout))

// briefly tolerates a taint of nodes for a second, where pods do for five minutes otherwise.
func briefly(key string) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(1))}
}

// eventuallyReplaced waits until job "llm" runs on its other nodes and one more of their
// block in place of the one that failed: only the pod of that one is another. Kueue has told of that node alone.
func (w *site) eventuallyReplaced(ctx context.Context, workloads *record.Recorder, failed corev1.Pod, others []corev1.Pod) {
	var nodes []string
	Eventually(ctx, func(g Gomega) {
		pods := slices.DeleteFunc(w.Pods(ctx, "llm"), func(p corev1.Pod) bool { return p.UID == failed.UID })
		nodes = running(pods)
		g.Expect(nodes).To(HaveLen(len(others) + 1))
		g.Expect(nodes).NotTo(ContainElements(BeEmpty(), failed.Spec.NodeName))
		g.Expect(nodes).To(ConsistOf(assignedNodes(w.Workload(ctx, "llm"), 0)))
		g.Expect(world.UIDs(pods)).To(ContainElements(world.UIDs(others)), "the other pods run on")
		g.Expect(w.Workload(ctx, "llm").Status.UnhealthyNodes).To(BeEmpty())
	}).Should(Succeed())
	Expect(distinct(valuesOf(w.nodes(ctx, nodes), blockLabel))).To(HaveLen(1))
	Eventually(ctx, func() (unhealthy []kueue.UnhealthyNode) {
		for _, wl := range versionsOf[kueue.Workload](workloads) {
			unhealthy = append(unhealthy, wl.Status.UnhealthyNodes...)
		}
		return unhealthy
	}).Should(And(Not(BeEmpty()), HaveEach(HaveField("Name", failed.Spec.NodeName))))
}

// loseNode deletes the node of a pod, and the pod as the garbage collector of pods would a minute later.
func (w *site) loseNode(ctx context.Context, pod corev1.Pod) {
	Expect(w.Delete(ctx, w.Node(ctx, pod.Spec.NodeName))).To(Succeed())
	w.forceDelete(ctx, &pod)
}

func (w *site) forceDelete(ctx context.Context, pod *corev1.Pod) {
	Expect(client.IgnoreNotFound(w.Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed())
}

// stopKubelet takes the kubelet from the node of a pod, and has the node say that it is not
// ready, or that this is unknown: nobody ends the pod, which stays until the spec's end.
func (w *site) stopKubelet(ctx context.Context, pod corev1.Pod, ready corev1.ConditionStatus) {
	DeferCleanup(func(ctx context.Context) { w.forceDelete(ctx, &pod) })
	// kwok goes on with the pods of a node that it had.
	w.PatchJSON(ctx, pod.DeepCopy(), `{"metadata":{"annotations":{"localcluster/terminate-after":"1h"}}}`)
	node := w.Node(ctx, pod.Spec.NodeName)
	w.PatchJSON(ctx, node, fmt.Sprintf(`{"metadata":{"annotations":{%q:null}}}`, kit.KwokAnnotation))
	w.ChangeStatus(ctx, node, func() {
		for i := range node.Status.Conditions {
			if c := &node.Status.Conditions[i]; c.Type == corev1.NodeReady {
				c.Status, c.Reason, c.LastTransitionTime = ready, "KubeletStopped", metav1.Now()
			}
		}
	})
}
