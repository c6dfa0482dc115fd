// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var (
	walkSeed  = flag.Uint64("walk.seed", 0, "seed of the random walk; 0: a new one")
	walkSteps = flag.Int("walk.steps", 40, "steps of the random walk")
	walkJobs  = flag.Int("walk.jobs", 8, "TrainJobs in the random walk")
)

var _ = Describe("Any sequence of events", func() {
	It("leaves running pods with base + current admission, no more and no less", core, Label("invariant", "exact"), func(ctx context.Context) {
		seed := *walkSeed
		if seed == 0 {
			seed = uint64(time.Now().UnixNano())
		}
		AddReportEntry("seed", seed)
		GinkgoWriter.Printf("random walk: -walk.seed=%d -walk.steps=%d -walk.jobs=%d\n", seed, *walkSteps, *walkJobs)
		k := newWalk(ctx, rand.New(rand.NewPCG(seed, seed)))
		for i := range *walkSteps {
			action := k.step(ctx)
			GinkgoWriter.Printf("step %d: %s\n", i+1, action)
			k.settle(ctx)
		}
		AddReportEntry("pods checked", k.checked)
		Expect(k.checked).To(BeNumerically(">", *walkSteps), "the walk must get pods to run")
	}, SpecTimeout(40*time.Minute))
})

// walk is a world with pools that differ in label keys, tolerations and topology.
type walk struct {
	*site
	random  *rand.Rand
	runtime string
	// frozen is whether Trainer renders a job from the runtime as it was when the job was
	// made. Only then is there one expectation for jobs whose runtime is edited meanwhile.
	frozen bool
	// lives counts how often each job was deleted; it is part of the next one's name,
	// because Trainer takes the JobSet that a former TrainJob of the same name left to
	// the garbage collector for the new one's, and calls it complete.
	lives map[int]int
	// checked counts the pods that were compared with their expectation.
	checked int
}

// newWalk makes four flavors of two nodes each: quotas fit the nodes, so that a pod
// which stays Pending does so for a stale reason.
func newWalk(ctx context.Context, random *rand.Rand) *walk {
	w := newWorld(ctx)
	runtime := w.CopyRuntime(ctx, "torch-distributed")
	kit.RuntimePod(&runtime.Spec).Tolerations = []corev1.Toleration{tolerate("runtime-0")}
	tas := w.Flavor("tas", onH100)
	tas.Spec.TopologyName = ptr.To(kueue.TopologyReference(w.Name("hosts")))
	w.Make(ctx, runtime,
		kit.Topology(w.Name("hosts"), corev1.LabelHostname),
		tas,
		w.Flavor("h100", map[string]string{kit.ProductLabel: kit.H100, kit.FamilyLabel: "hopper"}, tolerate("pool-h100")),
		w.Flavor("a100", onA100),
		w.Flavor("ampere", map[string]string{kit.FamilyLabel: "ampere", "nvidia.com/gpu.memory": "81920"}, tolerate("pool-ampere"), tolerate("spot")),
		kit.Priority(w.Name("low"), 1), kit.Priority(w.Name("high"), 100),
		kit.ClusterQueue(w.Name("one"), kit.Quota{Flavor: w.Name("h100"), GPUs: "16"}, kit.Quota{Flavor: w.Name("a100"), GPUs: "16"}),
		kit.ClusterQueue(w.Name("two"), kit.Quota{Flavor: w.Name("ampere"), GPUs: "16"}, kit.Quota{Flavor: w.Name("tas"), GPUs: "16"}),
		kit.LocalQueue(w.Namespace, "one", w.Name("one")),
		kit.LocalQueue(w.Namespace, "two", w.Name("two")),
	)
	return &walk{site: w, random: random, runtime: runtime.Name, frozen: trainerOf(ctx) >= world.Trainer23, lives: map[int]int{}}
}

func tolerate(key string) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
}

// step does one random thing to one random job and says what.
func (k *walk) step(ctx context.Context) string {
	slot := k.random.IntN(*walkJobs)
	name := fmt.Sprintf("job-%d-%d", slot, k.lives[slot])
	var job trainer.TrainJob
	err := k.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: name}, &job)
	if apierrors.IsNotFound(err) {
		return k.create(ctx, name)
	}
	Expect(err).NotTo(HaveOccurred())
	if finished(&job) {
		return k.remove(ctx, slot, name)
	}
	if ptr.Deref(job.Spec.Suspend, false) {
		return k.stepWaiting(ctx, name)
	}
	if k.random.IntN(8) == 0 {
		return k.remove(ctx, slot, name)
	}
	return k.stepRunning(ctx, name)
}

func (k *walk) remove(ctx context.Context, slot int, name string) string {
	k.lives[slot]++
	Expect(k.Delete(ctx, k.Job(name).Obj())).To(Succeed())
	return "deleted " + name
}

func (k *walk) create(ctx context.Context, name string) string {
	queue, nodes, priority := k.pick("one", "two"), int32(1+k.random.IntN(2)), k.pick("low", "high")
	job := kit.TrainJob(k.Namespace, name).Queue(queue).Priority(k.Name(priority)).Runtime(k.runtime).Nodes(nodes).GPUs("8")
	Expect(k.Create(ctx, job.Obj())).To(Succeed())
	return fmt.Sprintf("created %s: %d nodes, queue %s, priority %s", name, nodes, queue, priority)
}

// stepWaiting changes a suspended job: its queue, its own patches, whether it may run.
func (k *walk) stepWaiting(ctx context.Context, name string) string {
	switch k.random.IntN(6) {
	case 0:
		queue := k.pick("one", "two")
		k.updateWaiting(ctx, name, func(t *trainer.TrainJob) { t.Labels[kit.QueueLabel] = queue })
		return fmt.Sprintf("moved %s to queue %s", name, queue)
	case 1:
		key := k.pick("mine-a", "mine-b")
		k.updateWaiting(ctx, name, func(t *trainer.TrainJob) {
			t.Spec.RuntimePatches = withUserPatch(t.Spec.RuntimePatches, &trainer.PodSpecPatch{Tolerations: []corev1.Toleration{tolerate(key)}})
		})
		return fmt.Sprintf("gave %s the toleration %s", name, key)
	case 2:
		k.updateWaiting(ctx, name, func(t *trainer.TrainJob) { t.Spec.Suspend = ptr.To(false) })
		return "resumed " + name + " by hand"
	case 3:
		priority := k.pick("low", "high")
		k.updateWaiting(ctx, name, func(t *trainer.TrainJob) { t.Labels[kit.PriorityLabel] = k.Name(priority) })
		return fmt.Sprintf("gave %s priority %s", name, priority)
	}
	if wl := k.Workload(ctx, name); wl != nil {
		active := !ptr.Deref(wl.Spec.Active, true)
		k.Activate(ctx, name, active)
		return fmt.Sprintf("set %s active: %t", name, active)
	}
	return "did nothing to " + name
}

// stepRunning stops, ends or disturbs a job that runs.
func (k *walk) stepRunning(ctx context.Context, name string) string {
	switch k.random.IntN(5) {
	case 0, 1:
		k.Activate(ctx, name, false)
		k.settle(ctx)
		k.Activate(ctx, name, true)
		return "evicted " + name
	case 2:
		k.Finish(ctx, name, "succeeded")
		return "finished " + name
	case 3:
		k.Touch(ctx, name)
		return "touched " + name
	}
	if !k.frozen {
		return "left the runtime alone"
	}
	key := fmt.Sprintf("runtime-%d", k.random.IntN(3))
	k.EditRuntime(ctx, k.runtime, func(spec *trainer.TrainingRuntimeSpec) {
		pod := kit.RuntimePod(spec)
		pod.Containers[0].Image = "example.com/" + key
		pod.Tolerations = []corev1.Toleration{tolerate(key)}
	})
	return "edited the runtime: " + key
}

// updateWaiting changes a job that may have started meanwhile; then the change may be
// refused, which is an answer too.
func (k *walk) updateWaiting(ctx context.Context, name string, change func(*trainer.TrainJob)) {
	err := k.TryEdit(ctx, name, change)
	if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
		Expect(err).NotTo(HaveOccurred())
	}
}

func (k *walk) pick(values ...string) string { return values[k.random.IntN(len(values))] }

const walker = "example.com/walker"

// withUserPatch replaces the walker's entry, in front of all others.
func withUserPatch(entries []trainer.RuntimePatch, spec *trainer.PodSpecPatch) []trainer.RuntimePatch {
	out := kit.TrainJob("", "").PodPatch(walker, "node", trainer.PodTemplatePatch{Spec: spec}).Spec.RuntimePatches
	for _, entry := range entries {
		if entry.Manager != walker {
			out = append(out, entry)
		}
	}
	return out
}

func finished(t *trainer.TrainJob) bool {
	return apimeta.IsStatusConditionTrue(t.Status.Conditions, trainer.TrainJobComplete) ||
		apimeta.IsStatusConditionTrue(t.Status.Conditions, trainer.TrainJobFailed)
}
