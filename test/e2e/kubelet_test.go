// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// kubeletProduct is the GPU product of the one node whose pods are processes; see docs/dev/kind.md.
const kubeletProduct = "FAKE-KUBELET"

var _ = Describe("On a node with a kubelet", Label("kubelet"), Serial, func() {
	var (
		w    *site
		node string
	)

	BeforeEach(func(ctx context.Context) {
		node = kubeletNode(ctx)
		w = newWorld(ctx)
		w.kubeletPool(ctx)
	}, NodeTimeout(specTimeout))

	It("quota is given away when the last process of a preempted job has ended, and not before", kindCore, func(ctx context.Context) {
		w.Make(ctx, kit.Priority(w.Name("urgent"), 100))
		pods := w.record(ctx, podResource)
		w.MakeRunning(ctx, w.payload("first", "-linger=4s").GPUs("8"), 1, onKubelet)
		w.Make(ctx, w.payload("next").Priority(w.Name("urgent")).GPUs("8").Obj())

		w.eventuallyFollows(ctx, "next")
		Eventually(ctx, func() int { return len(processesOf(pods, "next")) }).Should(Equal(1))
		first, next := processesOf(pods, "first"), processesOf(pods, "next")
		Expect(first).To(HaveLen(1), "incarnations of the first job")
		Expect(first[0].ExitCode).To(BeEquivalentTo(143), "the process was asked to end")
		Expect(first[0].Ended).NotTo(BeTemporally(">", next[0].Started), "end of the first process and start of the next")
	}, SpecTimeout(specTimeout))

	It("a process that ignores SIGTERM keeps the quota until its grace period is over", func(ctx context.Context) {
		pods := w.record(ctx, podResource)
		runtime := w.CopyRuntime(ctx, "torch-distributed", kit.OfGracePeriod(3))
		w.MakeRunning(ctx, w.payload("first", "-linger=1h").Runtime(runtime.Name).GPUs("8"), 1, onKubelet, runtime)
		w.MakeGated(ctx, w.payload("next").GPUs("8"), 0)

		Expect(w.Delete(ctx, w.payload("first").Obj())).To(Succeed())
		w.eventuallyFollows(ctx, "next")
		Expect(processesOf(pods, "first")).To(HaveExactElements(HaveField("ExitCode", BeEquivalentTo(137))), "killed, since it did not end")
	}, SpecTimeout(specTimeout))

	It("a job that takes too much memory is restarted by its JobSet with the quota that it has, and fails in the end", func(ctx context.Context) {
		pods := w.record(ctx, podResource)
		w.Make(ctx, w.restarting(ctx))
		job := w.payload("greedy", "-memory=300").Runtime(w.Name("torch-distributed")).GPUs("8").Request(corev1.ResourceMemory, "64Mi").Obj()
		w.Make(ctx, job)
		w.EventuallyCondition(ctx, "greedy", kueue.WorkloadAdmitted)
		w.Make(ctx, w.payload("next").GPUs("8").Obj())

		w.eventuallyTrainJob(ctx, "greedy", trainer.TrainJobFailed)
		Expect(get(ctx, w, &jobsetapi.JobSet{}, "greedy").Status.Restarts).To(BeEquivalentTo(1))
		// The kernel killed it each time. A runtime that sees the exit first gives "Error" for the reason.
		Expect(processesOf(pods, "greedy")).To(HaveExactElements(HaveField("ExitCode", BeEquivalentTo(137)), HaveField("ExitCode", BeEquivalentTo(137))))
		w.eventuallyFollows(ctx, "next")
		Eventually(ctx, func() int { return len(processesOf(pods, "next")) }).Should(Equal(1))
		for _, one := range processesOf(pods, "greedy") {
			Expect(one.Ended).NotTo(BeTemporally(">", processesOf(pods, "next")[0].Started), "the next job has no quota beside it")
		}
	}, SpecTimeout(specTimeout))

	It("a job that fails is restarted by its JobSet with the quota that it has", func(ctx context.Context) {
		pods := w.record(ctx, podResource)
		w.Make(ctx, w.restarting(ctx), w.payload("flaky", "-run-for=2s", "-exit=3").Runtime(w.Name("torch-distributed")).GPUs("8").Obj())
		Eventually(ctx, func() int { return len(processesOf(pods, "flaky")) }).Should(Equal(2))
		Expect(processesOf(pods, "flaky")[0].ExitCode).To(BeEquivalentTo(3))
		Expect(evictions(w.Workload(ctx, "flaky"))).To(BeZero())
		w.eventuallyTrainJob(ctx, "flaky", trainer.TrainJobFailed)
	}, SpecTimeout(specTimeout))

	It("a pod of a drained node waits for one, with the job's quota", func(ctx context.Context) {
		pod := w.MakeRunning(ctx, w.payload("drained").GPUs("8"), 1, onKubelet)[0]
		w.MakePending(ctx, w.payload("next").GPUs("8"))
		DeferCleanup(func(ctx context.Context) { w.cordon(ctx, node, false) })
		w.cordon(ctx, node, true)
		eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: pod.Name}}
		Expect(w.SubResource("eviction").Create(ctx, &pod, eviction)).To(Succeed())

		Eventually(ctx, w.Pods).WithArguments(ctx, "drained").Should(ConsistOf(And(
			HaveField("UID", Not(Equal(pod.UID))), HaveField("Spec.NodeName", BeEmpty()), HaveField("Spec.SchedulingGates", BeEmpty()))))
		w.ConsistentlyUnbound(ctx, "next")
		w.cordon(ctx, node, false)
		w.EventuallyRuns(ctx, "drained", 1, onKubelet)
		Expect(evictions(w.Workload(ctx, "drained"))).To(BeZero())
	}, SpecTimeout(specTimeout))

	It("a job on a node that is lost keeps its quota until the node says that its pod is gone", func(ctx context.Context) {
		w.MakeRunning(ctx, w.payload("lost").GPUs("8"), 1, onKubelet)
		w.MakePending(ctx, w.payload("next").GPUs("8"))
		DeferCleanup(func(ctx context.Context) {
			onNode(ctx, node, "systemctl", "start", "kubelet")
			eventuallyReady(ctx, node, metav1.ConditionTrue)
		})
		onNode(ctx, node, "systemctl", "stop", "kubelet")
		eventuallyReady(ctx, node, metav1.ConditionUnknown)

		Expect(w.Delete(ctx, w.payload("lost").Obj())).To(Succeed())
		w.ConsistentlyUnbound(ctx, "next")
		Expect(w.Pods(ctx, "lost")).To(HaveLen(1), "a pod that nobody has seen end")
		onNode(ctx, node, "systemctl", "start", "kubelet")
		w.eventuallyFollows(ctx, "next")
	}, SpecTimeout(2*specTimeout))
})

// onKubelet is what the node with a kubelet is labelled with.
var onKubelet = map[string]string{kit.ProductLabel: kubeletProduct}

// kubeletNodes are those with a kubelet; only a kind cluster has one.
func kubeletNodes(ctx context.Context) []corev1.Node {
	return world.All(ctx, Default, cluster.Client, &corev1.NodeList{}, client.MatchingLabels(onKubelet)).Items
}

// kubeletNode names the node with a kubelet; a cluster without one skips the spec.
func kubeletNode(ctx context.Context) string {
	nodes := kubeletNodes(ctx)
	if len(nodes) == 0 {
		Skip("no node of this cluster has a kubelet; run this on a cluster of make kind-up")
	}
	return nodes[0].Name
}

// kubeletFlavor is the flavor of the node with a kubelet, which has a taint of its own.
func (w *site) kubeletFlavor() *kueue.ResourceFlavor {
	return w.Flavor("kubelet", onKubelet, corev1.Toleration{Key: "kueue-trainer.test/kubelet", Operator: corev1.TolerationOpExists})
}

// kubeletPool makes a queue for the 8 GPUs of the node with a kubelet, and memory enough.
func (w *site) kubeletPool(ctx context.Context) {
	queue := kit.ClusterQueue(w.Name("gpus"), kit.Quota{Flavor: w.Name("kubelet"), GPUs: "8"})
	covers(queue, corev1.ResourceMemory, "1Gi")
	w.Make(ctx, w.kubeletFlavor(), queue, w.LocalQueue())
}

// covers adds a quota of another resource to a ClusterQueue of one flavor.
func covers(queue *kueue.ClusterQueue, name corev1.ResourceName, amount string) {
	group := &queue.Spec.ResourceGroups[0]
	group.CoveredResources = append(group.CoveredResources, name)
	group.Flavors[0].Resources = append(group.Flavors[0].Resources, kueue.ResourceQuota{Name: name, NominalQuota: resource.MustParse(amount)})
}

// payload makes a TrainJob whose pods run the program of test/payload.
func (w *site) payload(name string, args ...string) *kit.TrainJobBuilder {
	job := w.Job(name)
	job.Spec.Trainer = &trainer.Trainer{Image: new("kueue-trainer.test/payload:local"), Command: []string{"/payload"}, Args: args}
	return job
}

// restarting makes torch-distributed with a JobSet that is restarted once when a pod fails.
func (w *site) restarting(ctx context.Context) *trainer.ClusterTrainingRuntime {
	return w.CopyRuntime(ctx, "torch-distributed", kit.OfOneTry, func(spec *trainer.TrainingRuntimeSpec) {
		spec.Template.Spec.FailurePolicy = &jobsetapi.FailurePolicy{MaxRestarts: 1}
		// Or the kubelet starts the container again by itself, as JobSet has it by default.
		kit.RuntimePod(spec).RestartPolicy = corev1.RestartPolicyNever
	})
}

func (w *site) cordon(ctx context.Context, node string, unschedulable bool) {
	w.PatchJSON(ctx, kit.Node(node, nil), fmt.Sprintf(`{"spec":{"unschedulable":%t}}`, unschedulable))
}

// onNode runs a command on a node of kind's, which is a container.
func onNode(ctx context.Context, node string, command ...string) {
	out, err := exec.CommandContext(ctx, "docker", append([]string{"exec", node}, command...)...).CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))
}

func eventuallyReady(ctx context.Context, node string, status metav1.ConditionStatus) {
	found := func(g Gomega) *corev1.Node {
		return world.Found(ctx, g, cluster.Client, &corev1.Node{}, client.ObjectKey{Name: node})
	}
	Eventually(ctx, found).WithTimeout(2 * time.Minute).Should(world.Condition(string(corev1.NodeReady), status))
}

// process is one run of a pod's only container.
type process struct {
	Started, Ended time.Time
	ExitCode       int32
}

// processesOf returns those of a TrainJob in order, by all versions: a kubelet tells of one for a moment only.
func processesOf(pods *record.Recorder, job string) (all []process) {
	places := map[types.UID]int{}
	for _, pod := range versionsOf[corev1.Pod](pods) {
		one, runs := processOf(pod)
		if !runs || pod.Labels[jobsetapi.JobSetNameKey] != job {
			continue
		}
		at, known := places[pod.UID]
		if !known {
			at = len(all)
			places[pod.UID], all = at, append(all, process{})
		}
		all[at] = one
	}
	return all
}

func processOf(pod *corev1.Pod) (one process, runs bool) {
	if len(pod.Status.ContainerStatuses) == 0 {
		return process{}, false
	}
	switch state := pod.Status.ContainerStatuses[0].State; {
	case state.Running != nil:
		return process{Started: state.Running.StartedAt.Time}, true
	case state.Terminated != nil && !state.Terminated.StartedAt.IsZero():
		return process{state.Terminated.StartedAt.Time, state.Terminated.FinishedAt.Time, state.Terminated.ExitCode}, true
	}
	return process{}, false
}
