// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"maps"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// shipped are the runtimes of Trainer's manifests, with the nodes to ask of each: several where it can be distributed.
var shipped = map[string]int32{
	"deepspeed-distributed":        3,
	"jax-distributed":              2,
	"mlx-distributed":              3,
	"torch-distributed":            2,
	"torch-distributed-with-cache": 2,
	"torchtune-llama3.2-1b":        1,
	"torchtune-llama3.2-3b":        1,
	"torchtune-qwen2.5-1.5b":       1,
	"xgboost-distributed":          2,
}

// pod is what a PodSet says of each of its pods.
type pod struct {
	Requests       map[string]corev1.ResourceList
	InitContainers []string
	Tolerations    []corev1.Toleration
}

var _ = Describe("PodSets", func() {
	for _, runtime := range slices.Sorted(maps.Keys(shipped)) {
		It("equal the pods that are created from runtime "+runtime+", name by name", Label("invariant", "podsets"), func(ctx context.Context) {
			w := newWorld(ctx)
			if err := w.Get(ctx, client.ObjectKey{Name: runtime}, &trainer.ClusterTrainingRuntime{}); apierrors.IsNotFound(err) {
				Skip("this Trainer ships no such runtime")
			}
			w.Pool(ctx, w.Flavor("any", nil), "64")
			w.MakeNeeds(ctx, runtime)
			w.Make(ctx, w.Job("job").Runtime(runtime).Nodes(shipped[runtime]).GPUs("2").Obj())

			created := w.allPods(ctx, "job")
			wl := w.Workload(ctx, "job")
			Expect(created).To(HaveLen(len(wl.Spec.PodSets)))
			for _, ps := range wl.Spec.PodSets {
				Expect(created[string(ps.Name)]).To(HaveLen(int(ps.Count)), "pods of %s", ps.Name)
				for _, p := range created[string(ps.Name)] {
					Expect(described(&p.Spec)).To(Equal(described(&ps.Template.Spec)), p.Name)
				}
			}
		}, SpecTimeout(specTimeout))
	}

	It("equal the pods where the runtime asks for resources as well", func(ctx context.Context) {
		w := newWorld(ctx)
		runtime := w.CopyRuntime(ctx, "torch-distributed")
		kit.RuntimePod(&runtime.Spec).Containers[0].Resources.Limits = corev1.ResourceList{kit.GPU: resource.MustParse("4"), corev1.ResourceCPU: resource.MustParse("1")}
		// Trainer 2.3 adds the runtime's CPU to what the job asks for, older ones do not.
		queue := kit.ClusterQueue(w.Name("gpus"), kit.Quota{Flavor: w.Name("h100"), GPUs: "8"})
		covers(queue, corev1.ResourceCPU, "8")
		pods := w.MakeRunning(ctx, w.Job("job").Runtime(runtime.Name).GPUs("2"), 1, onH100,
			runtime, queue, kit.Flavor(w.Name("h100"), onH100), w.LocalQueue())
		Expect(described(&pods[0].Spec)).To(Equal(described(&w.Workload(ctx, "job").Spec.PodSets[0].Template.Spec)))
	}, SpecTimeout(specTimeout))

	It("are charged for limits, whatever a LimitRange says of requests", core, Label("podsets"), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.Make(ctx, &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "none"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{kit.GPU: resource.MustParse("0")}},
		}}})
		job := w.Job("limited").GPUs("8")
		job.Spec.Trainer.ResourcesPerNode.Requests = nil
		w.MakeRunning(ctx, job, 1, onH100)
		Expect(w.charged(ctx, "limited")).To(HaveKeyWithValue(kit.GPU, resource.MustParse("8")))
	}, SpecTimeout(specTimeout))

	It("are proven for every runtime of the cluster", Serial, func(ctx context.Context) {
		list := world.All(ctx, Default, cluster.Client, &trainer.ClusterTrainingRuntimeList{})
		for _, runtime := range list.Items {
			if !runtime.DeletionTimestamp.IsZero() {
				// It was an earlier spec's.
				continue
			}
			Expect(shipped).To(HaveKey(runtime.Name))
		}
	}, SpecTimeout(specTimeout))

	It("follow the runtime's own numbers where the TrainJob sets none", Label("invariant", "podsets"), func(ctx context.Context) {
		w := newPools(ctx, "32", "0")
		runtime := w.CopyRuntime(ctx, "torch-distributed", kit.OfNodes(3))
		kit.RuntimePod(&runtime.Spec).Containers[0].Resources.Limits = corev1.ResourceList{kit.GPU: resource.MustParse("4")}
		w.MakeRunning(ctx, w.Job("job").Runtime(runtime.Name), 3, onH100, runtime)
		Expect(w.charged(ctx, "job")).To(HaveKeyWithValue(kit.GPU, resource.MustParse("12")))
	}, SpecTimeout(specTimeout))
})

// allPods plays a TrainJob to its end and gives all pods by replicated job. Jobs of a chain end as soon as they run.
func (w *site) allPods(ctx context.Context, job string) map[string]map[string]corev1.Pod {
	seen := map[string]map[string]corev1.Pod{}
	Eventually(ctx, func(g Gomega) {
		for _, p := range w.Pods(ctx, job) {
			name := p.Labels[jobsetapi.ReplicatedJobNameKey]
			if seen[name] == nil {
				seen[name] = map[string]corev1.Pod{}
			}
			seen[name][p.Name] = p
		}
		g.Expect(w.allStarted(ctx, job)).To(BeTrue(), "seen so far: %v", slices.Collect(maps.Keys(seen)))
		w.Finish(ctx, job, "succeeded")
		g.Expect(w.Workload(ctx, job)).To(world.True(kueue.WorkloadFinished))
	}).Should(Succeed())
	return seen
}

// allStarted reports whether a TrainJob has the pods that its started child Jobs want, all running or done.
func (w *site) allStarted(ctx context.Context, job string) bool {
	pods, wanted := w.Pods(ctx, job), 0
	for _, j := range w.ChildJobs(ctx, job) {
		wanted += int(*j.Spec.Parallelism)
	}
	pending := func(p corev1.Pod) bool { return p.Status.Phase == corev1.PodPending }
	return len(pods) > 0 && len(pods) == wanted && !slices.ContainsFunc(pods, pending)
}

func described(spec *corev1.PodSpec) pod {
	p := pod{Requests: map[string]corev1.ResourceList{}}
	for _, c := range spec.Containers {
		p.Requests[c.Name] = requests(&c)
	}
	for _, c := range spec.InitContainers {
		p.InitContainers = append(p.InitContainers, c.Name)
	}
	p.Tolerations = world.Tolerations(&corev1.Pod{Spec: *spec})
	if cluster.Integration != world.External {
		// Those of the flavor come with the admission there.
		p.Tolerations = nil
	}
	return p
}

// requests returns what a container asks for; limits count where no request is given, as the API server defaults it.
func requests(c *corev1.Container) corev1.ResourceList {
	out := corev1.ResourceList{}
	maps.Copy(out, c.Resources.Limits)
	maps.Copy(out, c.Resources.Requests)
	return out
}
