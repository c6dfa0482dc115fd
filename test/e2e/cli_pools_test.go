// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("kubectl trainjob pools", Serial, func() {
	It("generates a pool of every sort of GPU node, admits a TrainJob on each, and changes nothing when run again", func(ctx context.Context) {
		DeferCleanup(eventuallyNothingGenerated)
		w := newWorld(ctx)
		w.makeNodes(ctx)
		generate := []string{"pools", "generate", "--team", w.Namespace + "=2", "--team", "no-such-team=1"}
		Expect(complaint(ctx, 0, generate...)).To(And(ContainSubstring("kubectl create namespace no-such-team"), MatchRegexp("left out [0-9]+ nodes cpu-0, cpu-1")))

		// Only a topology keeps Kueue from giving a job a flavor of other nodes by a label which that one does not name.
		generate = []string{"pools", "generate", "--topology", "--team", w.Namespace + "=1"}
		manifest := said(ctx, Default, generate...)
		generated := w.apply(ctx, manifest)
		// The pods of these specs run nowhere else; see docs/dev/kind.md.
		flavors := slices.DeleteFunc(flavorsOf(generated), func(flavor kueue.ResourceFlavor) bool {
			return flavor.Spec.NodeLabels[kit.ProductLabel] == kubeletProduct
		})
		Expect(flavors).To(HaveLen(9))

		for _, flavor := range flavors {
			By("admitting a TrainJob to " + flavor.Name)
			job := "on-" + flavor.Name
			for _, pod := range w.MakeRunning(ctx, w.jobFor(ctx, job, &flavor), 1, flavor.Spec.NodeLabels) {
				for _, assignment := range w.Workload(ctx, job).Status.Admission.PodSetAssignments {
					Expect(assignment.Flavors).To(HaveEach(kueue.ResourceFlavorReference(flavor.Name)), pod.Name)
				}
			}
		}

		Expect(said(ctx, Default, generate...)).To(Equal(manifest))
		// Kueue writes statuses a second after what they count.
		Eventually(ctx, func(g Gomega) {
			versions := w.versions(ctx, generated)
			kubectl(ctx, manifest, "apply", "-f", "-")
			g.Expect(w.versions(ctx, generated)).To(Equal(versions))
		}).Should(Succeed())
	}, SpecTimeout(specTimeout))

	DescribeTable("generates queues that admit every runtime that Trainer ships, and initializers that ask for something", func(ctx context.Context, needs func(*site) []client.Object) {
		DeferCleanup(eventuallyNothingGenerated)
		w := newWorld(ctx)
		w.Make(ctx, needs(w)...)
		manifest := said(ctx, Default, "pools", "generate", "--team", w.Namespace+"=1")
		w.apply(ctx, manifest)

		runtimes := maps.Clone(shipped)
		runtimes[w.MakeRuntime(ctx, "torchtune-llama3.2-1b", func(spec *trainer.TrainingRuntimeSpec) {
			kit.RuntimePod(spec).Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		})] = 1
		for _, runtime := range slices.Sorted(maps.Keys(runtimes)) {
			if err := w.Get(ctx, client.ObjectKey{Name: runtime}, &trainer.ClusterTrainingRuntime{}); apierrors.IsNotFound(err) && shipped[runtime] > 0 {
				continue // Older Trainers ship fewer.
			}
			By("running " + runtime)
			w.MakeNeeds(ctx, runtime)
			job := "on-" + strings.ReplaceAll(runtime, ".", "-")
			w.Make(ctx, w.Job(job).Queue("gpus").Runtime(runtime).Nodes(runtimes[runtime]).GPUs("2").Obj())
			w.allPods(ctx, job)
		}
	},
		Entry("on GPU nodes alone", SpecTimeout(2*specTimeout), func(*site) []client.Object { return nil }),
		Entry("with CPU nodes, too", SpecTimeout(2*specTimeout), func(w *site) []client.Object {
			return []client.Object{w.fakeNode("cpu", map[string]string{gpu.PoolLabel: w.Suffix}, nil)}
		}),
	)

	It("generates quotas of which every team gets a whole node back from whoever borrows it", func(ctx context.Context) {
		DeferCleanup(eventuallyNothingGenerated)
		large, small := newWorld(ctx), newWorld(ctx)
		nodes := world.All(ctx, Default, large, &corev1.NodeList{}, client.HasLabels{kit.ProductLabel})
		manifest := said(ctx, Default, "pools", "generate", "--team", fmt.Sprintf("%s=%d", large.Namespace, len(nodes.Items)-1), "--team", small.Namespace+"=1")
		flavors := flavorsOf(large.apply(ctx, manifest))

		for _, pair := range [][2]*site{{large, small}, {small, large}} {
			borrower, owner := pair[0], pair[1]
			for _, flavor := range flavors {
				nodes := world.All(ctx, Default, borrower, &corev1.NodeList{}, client.MatchingLabels(flavor.Spec.NodeLabels))
				// One of the nodes may have a kubelet, on kind, and has no other image.
				job := borrower.payload("fills-" + flavor.Name).Queue("gpus").Nodes(int32(len(nodes.Items))).GPUs("8").NodeSelector(flavor.Spec.NodeLabels)
				borrower.MakeRunning(ctx, job, len(nodes.Items), flavor.Spec.NodeLabels)
			}
			By("giving a node back to " + owner.Namespace)
			owner.MakeRunning(ctx, owner.payload("back").Queue("gpus").GPUs("8"), 1, nil)
			for _, w := range pair {
				w.DeleteJobs(ctx)
				w.EventuallyNo(ctx, &kueue.WorkloadList{})
			}
		}
	}, SpecTimeout(specTimeout))

	It("does what its page in the docs says", docsPage, func(ctx context.Context) {
		DeferCleanup(eventuallyNothingGenerated)
		runsPage(ctx, "docs/pools.md", "")
		Eventually(ctx, func(g Gomega) string { return said(ctx, g, "pools") }).
			Should(MatchRegexp(`a100-sxm4-80gb +nvidia.com/gpu +4/4 +32 +32 +24 +24 +56 +8 +language, vision`))
	}, SpecTimeout(specTimeout))
})

var _ = It("A toleration rule of the configuration lets a TrainJob with another vendor's accelerators onto their tainted nodes", func(ctx context.Context) {
	w := newWorld(ctx)
	taint := corev1.Taint{Key: "example.com/npu", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	labels := map[string]string{"example.com/pool": w.Suffix}
	flavor := kit.Flavor(w.Name("npu"), labels)
	flavor.Spec.NodeTaints = []corev1.Taint{taint}
	w.Make(ctx, w.fakeNode("npu", labels, map[corev1.ResourceName]string{"example.com/npu": "4"}, taint))
	queue := kit.Queue(w.LocalQueue(), flavor, kit.Quota{Of: "example.com/npu", Amount: "4"})
	for _, pod := range w.MakeRunning(ctx, w.Job("npu").Request("example.com/npu", "4"), 1, labels, queue...) {
		Expect(world.Tolerations(&pod)).To(ConsistOf(corev1.Toleration{Key: "example.com/npu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}))
	}
}, SpecTimeout(specTimeout))

// makeNodes adds nodes as the providers and the GPU operator make them: MIG under both strategies, with whole GPUs
// beside slices, shared GPUs, spot machines, Azure's taint, and one whose pool only the provider's label tells.
func (w *site) makeNodes(ctx context.Context) {
	gke := corev1.Taint{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}
	eks := corev1.Taint{Key: "nvidia.com/gpu", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	azure := corev1.Taint{Key: "sku", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}
	spot := corev1.Taint{Key: "cloud.google.com/gke-spot", Value: "true", Effect: corev1.TaintEffectNoSchedule}
	type gpus map[corev1.ResourceName]string
	type labels map[string]string
	w.Make(ctx,
		w.fakeNode("mig-mixed", labels{kit.ProductLabel: kit.A100, "nvidia.com/mig.config": "all-1g.10gb"}, gpus{"nvidia.com/mig-1g.10gb": "56"}, eks),
		w.fakeNode("mig-and-whole", labels{kit.ProductLabel: kit.H100, "nvidia.com/mig.config": "half-3g.40gb"}, gpus{kit.GPU: "4", "nvidia.com/mig-3g.40gb": "8"}, gke),
		w.fakeNode("mig-single", labels{kit.ProductLabel: kit.A100 + "-MIG-2g.20gb"}, gpus{kit.GPU: "24"}, gke),
		w.fakeNode("shared", labels{kit.ProductLabel: "NVIDIA-L4", "nvidia.com/gpu.sharing-strategy": "time-slicing"}, gpus{"nvidia.com/gpu.shared": "40"}),
		w.fakeNode("azure", labels{"kubernetes.azure.com/agentpool": "gpunp", "node.kubernetes.io/instance-type": "Standard_ND96isr_H100_v5"}, gpus{kit.GPU: "8"}, azure),
		w.fakeNode("spot", labels{"cloud.google.com/gke-accelerator": "nvidia-l4", "cloud.google.com/gke-nodepool": "spot"}, gpus{kit.GPU: "1"}, gke, spot),
		w.fakeNode("cpu", labels{"eks.amazonaws.com/nodegroup": "workers"}, nil),
	)
}

// fakeNode makes a node whose kubelet kwok plays.
func (w *site) fakeNode(name string, labels map[string]string, devices map[corev1.ResourceName]string, taints ...corev1.Taint) *corev1.Node {
	node := kit.Node(w.Name(name), labels)
	node.Spec.Taints = taints
	delete(node.Status.Allocatable, kit.GPU)
	for name, amount := range devices {
		node.Status.Allocatable[name] = resource.MustParse(amount)
	}
	node.Status.Capacity = node.Status.Allocatable.DeepCopy()
	return node
}

// apply applies a manifest with kubectl; its objects go when the spec ends.
func (w *site) apply(ctx context.Context, manifest string) []*unstructured.Unstructured {
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(manifest, "---\n") {
		obj := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(document), &obj.Object)).To(Succeed())
		if len(obj.Object) > 0 {
			objects = append(objects, obj)
			w.Own(obj)
		}
	}
	kubectl(ctx, manifest, "apply", "-f", "-")
	return objects
}

func flavorsOf(objects []*unstructured.Unstructured) []kueue.ResourceFlavor {
	var flavors []kueue.ResourceFlavor
	for _, obj := range objects {
		if obj.GetKind() == "ResourceFlavor" {
			flavors = append(flavors, *read[kueue.ResourceFlavor](obj))
		}
	}
	return flavors
}

// versions returns each object's kind, name and resource version.
func (w *site) versions(ctx context.Context, objects []*unstructured.Unstructured) []string {
	return expect.Each(objects, func(obj *unstructured.Unstructured) string {
		now := world.Found(ctx, Default, w, obj.DeepCopy(), client.ObjectKeyFromObject(obj))
		return fmt.Sprint(now.GetKind(), " ", now.GetName(), " ", now.GetResourceVersion())
	})
}

// jobFor makes a job for one flavor: what it asks for is there, and its node selector takes no other.
func (w *site) jobFor(ctx context.Context, name string, flavor *kueue.ResourceFlavor) *kit.TrainJobBuilder {
	job := w.Job(name).Queue("gpus").Request("cpu", "1").Request("memory", "1Gi").NodeSelector(flavor.Spec.NodeLabels)
	nodes := world.All(ctx, Default, w, &corev1.NodeList{}, client.MatchingLabels(flavor.Spec.NodeLabels))
	Expect(nodes.Items).NotTo(BeEmpty())
	for resource := range nodes.Items[0].Status.Allocatable {
		if strings.HasPrefix(string(resource), "nvidia.com/") {
			job = job.Request(resource, "1")
		}
	}
	return job
}

// eventuallyNothingGenerated waits until what generate made is gone: its names do not belong to one spec.
func eventuallyNothingGenerated(ctx context.Context) {
	Eventually(ctx, func(g Gomega) {
		for _, list := range []client.ObjectList{&kueue.ResourceFlavorList{}, &kueue.ClusterQueueList{}, &kueue.TopologyList{}} {
			g.Expect(cluster.Client.List(ctx, list, client.MatchingLabels{"app.kubernetes.io/managed-by": "kubectl-trainjob"})).To(Succeed())
			g.Expect(apimeta.LenList(list)).To(BeZero(), "%T", list)
		}
	}).Should(Succeed())
}
