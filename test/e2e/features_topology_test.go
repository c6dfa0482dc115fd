// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	utiltas "sigs.k8s.io/kueue/pkg/util/tas"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
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

	// Another job leaves room for four in one block alone. A rack has room for two pods with all GPUs of a node.
	DescribeTable("runs", func(ctx context.Context, pods int32, gpus string, asks map[string]string, want map[string]OmegaMatcher) {
		w.Make(ctx, w.Job("first").GPUs("8").Obj())
		w.eventuallyPlaced(ctx, "first", 1)
		w.Make(ctx, asking(w.Job("llm").Nodes(pods).GPUs(gpus), "node", asks).Obj())
		nodes := w.eventuallyPlaced(ctx, "llm", int(pods))
		for level, sizes := range want {
			Expect(inARow(valuesOf(nodes, level))).To(sizes, level)
		}
	},
		Entry("in the block that it requires, its ranks in the order of racks and nodes", core, int32(4), "8", required(blockLabel),
			map[string]OmegaMatcher{blockLabel: Equal([]int{4}), rackLabel: Equal([]int{2, 2})}, SpecTimeout(specTimeout)),
		Entry("in one block where no rack is as large as it prefers", int32(3), "8", preferred(rackLabel),
			map[string]OmegaMatcher{blockLabel: Equal([]int{3})}, SpecTimeout(specTimeout)),
		Entry("across blocks where it is unconstrained", int32(6), "8", unconstrained(), map[string]OmegaMatcher{blockLabel: HaveLen(2)}, SpecTimeout(specTimeout)),
		Entry("with each slice in a rack of its own", int32(6), "4", map[string]string{
			kueue.PodSetRequiredTopologyAnnotation: blockLabel, kueue.PodSetSliceRequiredTopologyAnnotation: rackLabel, kueue.PodSetSliceSizeAnnotation: "3"},
			map[string]OmegaMatcher{blockLabel: Equal([]int{6}), rackLabel: Equal([]int{3, 3})}, SpecTimeout(specTimeout)),
		Entry("with slices within slices", int32(12), "2", map[string]string{kueue.PodSetRequiredTopologyAnnotation: blockLabel,
			kueue.PodSetSliceRequiredTopologyConstraintsAnnotation: `[{"topology":"` + rackLabel + `","size":6},{"topology":"` + corev1.LabelHostname + `","size":3}]`},
			map[string]OmegaMatcher{blockLabel: Equal([]int{12}), rackLabel: Equal([]int{6, 6}), corev1.LabelHostname: Equal([]int{3, 3, 3, 3})}, SpecTimeout(specTimeout)),
	)

	It("waits where no rack is as large as it requires", func(ctx context.Context) {
		w.MakePending(ctx, asking(w.Job("llm").Nodes(3).GPUs("8"), "node", required(rackLabel)))
		w.EventuallyAtTheGate(ctx, "llm")
		Expect(w.Pods(ctx, "llm")).To(BeEmpty())
	}, SpecTimeout(specTimeout))

	It("ranks the pods of several Jobs by Job, then by pod", func(ctx context.Context) {
		runtime := w.CopyRuntime(ctx, "torch-distributed")
		rj := &runtime.Spec.Template.Spec.ReplicatedJobs[0]
		// Trainer has one replica of what it calls the trainer.
		runtime.Spec.MLPolicy.Torch, rj.Template.Labels = nil, nil
		rj.Replicas, rj.Template.Spec.Parallelism, rj.Template.Spec.Completions = 3, new(int32(2)), new(int32(2))
		rj.Template.Spec.Template.Spec.Containers[0].Resources = kit.GPUResources("8")
		w.Make(ctx, runtime, asking(w.Job("llm").Runtime(runtime.Name), "node", preferred(blockLabel)).Obj())
		w.eventuallyPlaced(ctx, "llm", 6)
		Expect(w.Workload(ctx, "llm").Spec.PodSets[0].TopologyRequest).To(Equal(&kueue.PodSetTopologyRequest{
			Preferred:          new(blockLabel),
			PodIndexLabel:      new(batchv1.JobCompletionIndexAnnotation),
			SubGroupIndexLabel: new(jobsetapi.JobIndexKey),
			SubGroupCount:      new(int32(3)),
		}))
	}, SpecTimeout(specTimeout))

	It("has the PodSets of a group in one rack", func(ctx context.Context) {
		w.Make(ctx, w.Job("first").GPUs("8").Obj())
		w.eventuallyPlaced(ctx, "first", 1)

		asks := required(rackLabel)
		asks[kueue.PodSetGroupName] = "together"
		job := w.Job("mpi").Runtime("deepspeed-distributed").Nodes(2).GPUs("8")
		pods := w.MakeRunning(ctx, asking(asking(job, "node", asks), "launcher", asks), 2, nil)
		// By itself each of them would fit better beside the first job.
		Expect(distinct(valuesOf(w.nodes(ctx, running(pods)), rackLabel))).To(HaveLen(1))
		wl := w.Workload(ctx, "mpi")
		Expect(running(pods)).To(ConsistOf(append(assignedNodes(wl, 0), assignedNodes(wl, 1)...)))
	}, SpecTimeout(specTimeout))

	It("has the ranks of MPI that submit places in the order of racks and nodes, behind the launcher", func(ctx context.Context) {
		_, stderr, code := plugin(ctx, "submit", "mpi", "-n", w.Namespace, "--runtime", "deepspeed-distributed", "--nodes", "8", "--gpus-per-node", "4",
			"--queue", "queue", "--topology", "required="+blockLabel)
		Expect(code).To(BeZero(), stderr)
		Eventually(ctx, func(g Gomega) {
			wl, pods := w.Workload(ctx, "mpi"), w.Pods(ctx, "mpi")
			g.Expect(wl).NotTo(BeNil())
			node := slices.IndexFunc(wl.Spec.PodSets, func(ps kueue.PodSet) bool { return ps.Name == "node" })
			assigned := assignedNodes(wl, node)
			g.Expect(assigned).To(HaveLen(7))
			ranks := slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return pod.Labels[jobsetapi.ReplicatedJobNameKey] != "node" })
			g.Expect(running(byRank(ranks))).To(Equal(assigned), "nodes by rank")
		}).Should(Succeed())
	}, SpecTimeout(specTimeout))
})

// inARow returns how many values are the same as those beside them.
func inARow(values []string) (sizes []int) {
	for i, value := range values {
		if i == 0 || value != values[i-1] {
			sizes = append(sizes, 0)
		}
		sizes[len(sizes)-1]++
	}
	return sizes
}

// Labels of the nodes of a fabric.
const (
	fabricLabel = "example.com/fabric"
	blockLabel  = "example.com/block"
	rackLabel   = "example.com/rack"
)

// fabric makes nodes that no other spec uses, and LocalQueue "queue" whose one flavor has them as its topology.
func (w *site) fabric(ctx context.Context) {
	w.fabricQueue(ctx)
	w.fabricNodes(ctx)
}

// fabricNodes makes two blocks of two racks of two nodes with 8 GPUs each.
func (w *site) fabricNodes(ctx context.Context) {
	for n := range 8 {
		block, rack := n/4, n/2
		w.Make(ctx, kit.Node(w.Name(fmt.Sprintf("node-%d", n)), map[string]string{
			fabricLabel: w.Suffix,
			blockLabel:  w.Name(fmt.Sprintf("block-%d", block)),
			rackLabel:   w.Name(fmt.Sprintf("rack-%d", rack)),
		}))
	}
	w.eventuallyUsable(ctx)
}

// fabricQueue makes the queue for the nodes of a fabric.
func (w *site) fabricQueue(ctx context.Context) {
	flavor := w.Flavor("fabric", map[string]string{fabricLabel: w.Suffix})
	flavor.Spec.TopologyName = new(kueue.TopologyReference(w.Name("fabric")))
	w.Make(ctx, kit.Topology(w.Name("fabric"), blockLabel, rackLabel, corev1.LabelHostname))
	w.Pool(ctx, flavor, "64")
}

// eventuallyUsable waits until pods can be placed on the nodes of the fabric.
func (w *site) eventuallyUsable(ctx context.Context) {
	Eventually(ctx, func(g Gomega) []corev1.Node {
		return world.All(ctx, g, w, &corev1.NodeList{}, client.MatchingLabels{fabricLabel: w.Suffix}).Items
	}).Should(HaveEach(HaveField("Spec.Taints", ConsistOf(kit.GPUTaint()))))
}

func asking(job *kit.TrainJobBuilder, replicatedJob string, annotations map[string]string) *kit.TrainJobBuilder {
	return job.PodPatch("example.com/"+replicatedJob, replicatedJob, trainer.PodTemplatePatch{Metadata: &metav1.ObjectMeta{Annotations: annotations}})
}

// eventuallyPlaced waits until n pods run where their topology assignment says, rank by rank, and returns their nodes.
func (w *site) eventuallyPlaced(ctx context.Context, job string, n int) []*corev1.Node {
	var assigned []string
	Eventually(ctx, func(g Gomega) {
		wl, pods := w.Workload(ctx, job), byRank(w.Pods(ctx, job))
		g.Expect(wl).NotTo(BeNil())
		assigned = assignedNodes(wl, 0)
		g.Expect(assigned).To(HaveLen(n))
		g.Expect(running(pods)).To(Equal(assigned), "nodes by rank")
	}).Should(Succeed())
	return w.nodes(ctx, assigned)
}

// assignedNodes are the nodes of a PodSet's topology assignment, one per pod.
func assignedNodes(wl *kueue.Workload, podSet int) []string {
	if wl.Status.Admission == nil {
		return nil
	}
	var nodes []string
	assignment := wl.Status.Admission.PodSetAssignments[podSet].TopologyAssignment
	if assignment == nil {
		return nil
	}
	for domain := range utiltas.InternalSeqFrom(assignment) {
		nodes = append(nodes, slices.Repeat(domain.Values[len(domain.Values)-1:], int(domain.Count))...)
	}
	return nodes
}

// byRank sorts pods by the index of their Job, then by their own.
func byRank(pods []corev1.Pod) []corev1.Pod {
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(
			cmp.Compare(index(&a, jobsetapi.JobIndexKey), index(&b, jobsetapi.JobIndexKey)),
			cmp.Compare(index(&a, batchv1.JobCompletionIndexAnnotation), index(&b, batchv1.JobCompletionIndexAnnotation)))
	})
	return pods
}

func index(pod *corev1.Pod, label string) int { return must(strconv.Atoi(pod.Labels[label])) }

// running returns the nodes of pods, empty for one that does not run or is deleted.
func running(pods []corev1.Pod) []string {
	var nodes []string
	for _, pod := range pods {
		node := pod.Spec.NodeName
		if pod.Status.Phase != corev1.PodRunning || pod.DeletionTimestamp != nil {
			node = ""
		}
		nodes = append(nodes, node)
	}
	return nodes
}

func (w *site) nodes(ctx context.Context, names []string) []*corev1.Node {
	return expect.Each(names, func(name string) *corev1.Node { return w.Node(ctx, name) })
}

func valuesOf(nodes []*corev1.Node, label string) []string {
	return expect.Each(nodes, func(node *corev1.Node) string { return node.Labels[label] })
}

func distinct(values []string) []string { return slices.Compact(slices.Sorted(slices.Values(values))) }
