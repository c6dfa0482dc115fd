// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
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
	"sigs.k8s.io/kueue/pkg/workload"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var (
	walkSeed  = flag.Uint64("walk.seed", 0, "seed of the random walk; 0: a new one")
	walkSteps = flag.Int("walk.steps", 40, "steps of the random walk")
	walkJobs  = flag.Int("walk.jobs", 8, "TrainJobs in the random walk")
)

var _ = It("Any sequence of events leaves running pods with base + current admission, no more and no less", core, Label("invariant", "exact"), func(ctx context.Context) {
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

// walk is a world with pools that differ in label keys, tolerations and topology.
type walk struct {
	*site
	random  *rand.Rand
	runtime string
	// frozen is whether Trainer renders a job from the runtime as it was when the job was
	// made. Only then is there one expectation for jobs whose runtime is edited meanwhile.
	frozen bool
	// lives counts how often each job was deleted; it is part of the next one's name, because Trainer takes the JobSet
	// that a former TrainJob of the same name left to the garbage collector for the new one's, and calls it complete.
	lives map[int]int
	// checked counts the pods that were compared with their expectation.
	checked int
}

// newWalk makes four flavors whose quotas fit two nodes each: a pod that stays Pending does so for a stale reason.
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
	queue, nodes, priority := drawn(k.random, "one", "two"), int32(1+k.random.IntN(2)), drawn(k.random, "low", "high")
	job := kit.TrainJob(k.Namespace, name).Queue(queue).Priority(k.Name(priority)).Runtime(k.runtime).Nodes(nodes).GPUs("8")
	Expect(k.Create(ctx, job.Obj())).To(Succeed())
	return fmt.Sprintf("created %s: %d nodes, queue %s, priority %s", name, nodes, queue, priority)
}

// stepWaiting changes a suspended job: its queue, its own patches, whether it may run.
func (k *walk) stepWaiting(ctx context.Context, name string) string {
	switch k.random.IntN(6) {
	case 0:
		queue := drawn(k.random, "one", "two")
		k.updateWaiting(ctx, name, func(t *trainer.TrainJob) { t.Labels[kit.QueueLabel] = queue })
		return fmt.Sprintf("moved %s to queue %s", name, queue)
	case 1:
		key := drawn(k.random, "mine-a", "mine-b")
		k.updateWaiting(ctx, name, func(t *trainer.TrainJob) {
			t.Spec.RuntimePatches = withUserPatch(t.Spec.RuntimePatches, &trainer.PodSpecPatch{Tolerations: []corev1.Toleration{tolerate(key)}})
		})
		return fmt.Sprintf("gave %s the toleration %s", name, key)
	case 2:
		k.updateWaiting(ctx, name, func(t *trainer.TrainJob) { t.Spec.Suspend = ptr.To(false) })
		return "resumed " + name + " by hand"
	case 3:
		priority := drawn(k.random, "low", "high")
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

// updateWaiting changes a job that may have started meanwhile; then the change may be refused, which is an answer too.
func (k *walk) updateWaiting(ctx context.Context, name string, change func(*trainer.TrainJob)) {
	Expect(k.TryEdit(ctx, name, change)).To(Or(
		Succeed(), MatchError(apierrors.IsInvalid, "Invalid"), MatchError(apierrors.IsForbidden, "Forbidden")))
}

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

// settle waits until every job is where its Workload says, and compares the pods of those that run with what they have
// to look like. The expectation is made from the API objects alone, without code of the manager.
func (k *walk) settle(ctx context.Context) {
	checked := 0
	Eventually(ctx, func(g Gomega) {
		checked = 0
		jobs := world.All(ctx, g, k, &trainer.TrainJobList{}, client.InNamespace(k.Namespace))
		for i := range jobs.Items {
			checked += k.settled(ctx, g, &jobs.Items[i])
		}
	}).WithTimeout(90 * time.Second).Should(Succeed())
	k.checked += checked
}

// settled returns the number of pods it compared.
func (k *walk) settled(ctx context.Context, g Gomega, job *trainer.TrainJob) int {
	wl := k.Workload(ctx, job.Name)
	g.Expect(wl).NotTo(BeNil(), job.Name)
	pods := k.Pods(ctx, job.Name)
	switch {
	case finished(job):
		g.Expect(wl).To(world.True(kueue.WorkloadFinished), "%s is finished, its Workload is not", job.Name)
		return 0
	case !workload.IsAdmitted(wl) || !ptr.Deref(wl.Spec.Active, true):
		g.Expect(pods).To(BeEmpty(), "pods of %s without quota", job.Name)
		g.Expect(wl.Status.Admission).To(BeNil(), "quota of %s without pods", job.Name)
		g.Expect(cluster.Integration != world.External || world.GatedEntry(job)).To(BeTrue(), "%s is not at the gate: %v", job.Name, job.Spec.RuntimePatches)
		g.Expect(job.Spec.Suspend).To(HaveValue(BeTrue()), job.Name)
		return 0
	}
	assignment := &wl.Status.Admission.PodSetAssignments[0]
	g.Expect(pods).To(HaveLen(int(*assignment.Count)), "pods of %s", job.Name)
	for i := range pods {
		g.Expect(pods[i]).To(world.Running())
		k.exact(ctx, g, job, wl, &pods[i])
	}
	return len(pods)
}

// exact compares one pod with base + admission.
func (k *walk) exact(ctx context.Context, g Gomega, job *trainer.TrainJob, wl *kueue.Workload, pod *corev1.Pod) {
	assignment := &wl.Status.Admission.PodSetAssignments[0]
	flavor := world.Found(ctx, g, k, &kueue.ResourceFlavor{}, client.ObjectKey{Name: string(assignment.Flavors["nvidia.com/gpu"])})

	selector := maps.Clone(flavor.Spec.NodeLabels)
	if assignment.TopologyAssignment != nil {
		selector[corev1.LabelHostname] = pod.Spec.NodeName
	}
	g.Expect(pod.Spec.NodeSelector).To(Equal(selector), "node selector of %s", pod.Name)

	want := append(k.baseTolerations(ctx, g, job), flavor.Spec.Tolerations...)
	if !slices.Contains(want, gpuToleration) {
		want = append(want, gpuToleration)
	}
	g.Expect(world.Tolerations(pod)).To(ConsistOf(want), "tolerations of %s", pod.Name)

	g.Expect(pod.Spec.SchedulingGates).To(BeEmpty(), "gates of %s", pod.Name)
	labels := maps.Clone(pod.Labels)
	maps.DeleteFunc(labels, func(key, _ string) bool { return !strings.Contains(key, "kueue") })
	g.Expect(labels).To(Equal(map[string]string{
		"kueue.x-k8s.io/podset":             "node",
		"kueue.x-k8s.io/local-queue-name":   string(wl.Spec.QueueName),
		"kueue.x-k8s.io/cluster-queue-name": string(wl.Status.Admission.ClusterQueue),
	}), "Kueue's labels of %s", pod.Name)
	g.Expect(pod.Annotations).To(HaveKeyWithValue("kueue.x-k8s.io/workload", wl.Name))
}

// baseTolerations are those of the walker's entry, or else those of the runtime as Trainer froze it for this job.
func (k *walk) baseTolerations(ctx context.Context, g Gomega, job *trainer.TrainJob) []corev1.Toleration {
	for _, entry := range job.Spec.RuntimePatches {
		if entry.Manager == walker {
			return entry.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Tolerations
		}
	}
	var runtime trainer.ClusterTrainingRuntime
	if k.frozen {
		snapshot := world.Found(ctx, g, k, &corev1.ConfigMap{}, client.ObjectKey{Namespace: k.Namespace, Name: job.Name + "-runtime-snapshot"})
		g.Expect(yaml.Unmarshal([]byte(snapshot.Data["runtime"]), &runtime)).To(Succeed())
	} else {
		g.Expect(k.Get(ctx, client.ObjectKey{Name: k.runtime}, &runtime)).To(Succeed())
	}
	return kit.RuntimePod(&runtime.Spec).Tolerations
}
