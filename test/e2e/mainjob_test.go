// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var (
	onH100 = map[string]string{kit.ProductLabel: kit.H100}
	onA100 = map[string]string{kit.ProductLabel: kit.A100}
)

var gpuToleration = kit.GPUToleration()

var _ = Describe("A queued TrainJob", func() {
	It("is admitted to each flavor in turn and bound to its nodes", core, kindCore, func(ctx context.Context) {
		w := newPools(ctx, "16", "16")
		pods := w.MakeRunning(ctx, w.Job("first").Nodes(2).GPUs("8"), 2, onH100)
		exactlyPlaced(pods)
		for _, pod := range pods {
			Expect(pod.Labels).To(HaveKeyWithValue("kueue.x-k8s.io/podset", "node"))
			Expect(pod.Annotations).To(HaveKeyWithValue("kueue.x-k8s.io/workload", w.Workload(ctx, "first").Name))
		}

		w.MakeRunning(ctx, w.Job("second").Nodes(2).GPUs("8"), 2, onA100)
	}, SpecTimeout(specTimeout))

	It("is preempted and resumes on a flavor whose node labels have other keys, with exactly those", core, kindCore, Label("invariant", "exact"), func(ctx context.Context) {
		w := newWorld(ctx)
		w.Make(ctx,
			w.Flavor("h100", map[string]string{kit.ProductLabel: kit.H100, kit.FamilyLabel: "hopper"},
				corev1.Toleration{Key: "pool", Operator: corev1.TolerationOpEqual, Value: "h100", Effect: corev1.TaintEffectNoSchedule}),
			w.Flavor("a100", map[string]string{"nvidia.com/gpu.memory": "81920"}),
			kit.ClusterQueue(w.Name("gpus"), kit.Quota{Flavor: w.Name("h100"), GPUs: "16"}, kit.Quota{Flavor: w.Name("a100"), GPUs: "16"}),
			w.LocalQueue(),
			kit.Priority(w.Name("urgent"), 1000),
		)
		for _, pod := range w.MakeRunning(ctx, w.Job("patient").Nodes(2).GPUs("8"), 2, onH100) {
			Expect(pod.Spec.NodeSelector).To(Equal(map[string]string{kit.ProductLabel: kit.H100, kit.FamilyLabel: "hopper"}))
			Expect(world.Tolerations(&pod)).To(ConsistOf(gpuToleration, HaveField("Key", "pool")))
		}

		w.MakeRunning(ctx, w.Job("urgent").Priority(w.Name("urgent")).Nodes(2).GPUs("8"), 2, onH100)
		for _, pod := range w.EventuallyRuns(ctx, "patient", 2, onA100) {
			Expect(pod.Spec.NodeSelector).To(Equal(map[string]string{"nvidia.com/gpu.memory": "81920"}))
			Expect(world.Tolerations(&pod)).To(ConsistOf(gpuToleration))
			Expect(pod.Spec.SchedulingGates).To(BeEmpty())
		}
	}, SpecTimeout(specTimeout))

	It("keeps the runtime's tolerations beside the flavor's, also in a replicated job that starts later", core, Label("invariant", "exact"), func(ctx context.Context) {
		w := newWorld(ctx)
		team := corev1.Toleration{Key: "team", Operator: corev1.TolerationOpEqual, Value: "research", Effect: corev1.TaintEffectNoSchedule}
		spot := corev1.Toleration{Key: "spot", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
		runtime := w.CopyRuntime(ctx, "deepspeed-distributed")
		for i := range runtime.Spec.Template.Spec.ReplicatedJobs {
			runtime.Spec.Template.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec.Tolerations = []corev1.Toleration{team}
		}
		w.Pool(ctx, w.Flavor("h100", onH100, spot), "32")

		// The launcher depends on the node job being ready, so it is made later.
		pods := w.MakeRunning(ctx, w.Job("mpi").Runtime(runtime.Name).Nodes(2).GPUs("8"), 2, onH100, runtime)
		Expect(world.OfReplicatedJob(pods, "launcher")).To(HaveLen(1))
		for _, pod := range pods {
			Expect(world.Tolerations(&pod)).To(ConsistOf(team, spot, gpuToleration), pod.Name)
		}
	}, SpecTimeout(specTimeout))

	It("downloads dataset and model first and then trains, all under one Workload", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.MakeNeeds(ctx, "torchtune-qwen2.5-1.5b")
		for _, pod := range w.MakeRunning(ctx, w.Job("tune").Runtime("torchtune-qwen2.5-1.5b").GPUs("2").Initializers(), 2, nil) {
			Expect(pod.Labels[jobsetapi.ReplicatedJobNameKey]).To(BeElementOf("dataset-initializer", "model-initializer"))
			Expect(world.Tolerations(&pod)).To(BeEmpty(), "an initializer asks for no GPU")
		}
		w.Finish(ctx, "tune", "succeeded")
		w.eventuallyStage(ctx, "tune")
		w.Succeed(ctx, "tune")
	}, SpecTimeout(specTimeout))

	It("finishes its Workload as failed when it fails, with its own message, and frees the quota", core, func(ctx context.Context) {
		w, _ := newRunningOf(ctx, "fails", kit.OfOneTry)
		w.Finish(ctx, "fails", "failed")
		wl := w.EventuallyCondition(ctx, "fails", kueue.WorkloadFinished)
		finished := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadFinished)
		failed := apimeta.FindStatusCondition(w.TrainJob(ctx, "fails").Status.Conditions, trainer.TrainJobFailed)
		Expect(finished.Reason).To(Equal(kueue.WorkloadFinishedReasonFailed))
		Expect(finished.Message).To(Equal(failed.Message))

		w.MakeRunning(ctx, w.Job("next").GPUs("8"), 1, onH100)
	}, SpecTimeout(specTimeout))

	// Its runtime is edited while it runs: what Kueue has of it and what it asks for are not the same then.
	It("stops when its Workload is deactivated, and runs again when that is taken back", core, func(ctx context.Context) {
		w, runtime := newRunningOf(ctx, "paused")
		wl := w.Workload(ctx, "paused")
		w.EditRuntime(ctx, runtime, kit.OfImage("example.com/newer"))

		w.Activate(ctx, "paused", false)
		w.EventuallyTold(ctx, "paused", "WorkloadDeactivated", "set its spec.active to true")
		w.EventuallyAtTheGate(ctx, "paused")
		w.EventuallyWorkload(ctx, "paused", HaveField("Status.Admission", BeNil()))
		w.ConsistentlyKeeps(ctx, "paused", nil, wl)
		Expect(w.Workload(ctx, "paused").Spec.Active).To(HaveValue(BeFalse()))

		w.Activate(ctx, "paused", true)
		w.EventuallyRuns(ctx, "paused", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("moves to another queue while it waits", core, func(ctx context.Context) {
		w := newPools(ctx, "0", "0")
		w.makeOther(ctx)
		w.MakePending(ctx, w.Job("moves").GPUs("8"))
		w.Edit(ctx, "moves", func(t *trainer.TrainJob) { t.Labels[kit.QueueLabel] = "other" })
		w.EventuallyRuns(ctx, "moves", 1, onA100)
	}, SpecTimeout(specTimeout))

	It("gives back what its finished replicated jobs held, while it still runs", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.MakeNeeds(ctx, "torchtune-qwen2.5-1.5b")
		w.MakeRunning(ctx, w.Job("tune").Runtime("torchtune-qwen2.5-1.5b").GPUs("2").Initializers(), 2, nil)
		w.Finish(ctx, "tune", "succeeded", "dataset-initializer")
		w.EventuallyWorkload(ctx, "tune", HaveField("Status.ReclaimablePods", ConsistOf(kueue.ReclaimablePod{Name: "dataset-initializer", Count: 1})))
	}, SpecTimeout(specTimeout))

	It("starts although its amounts are plain numbers, which Trainer's webhook writes again", since(world.Trainer22), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.MakeYAML(ctx, queuedYAML("plain")+`
  runtimePatches:
  - manager: example.com/user
    time: "2026-01-01T00:00:00Z" # given, so that Trainer's webhook leaves the entry alone at create
    `+ofNode(`{volumes: [{name: scratch, emptyDir: {sizeLimit: 2048Mi}}],
      containers: [{name: node, volumeMounts: [{name: scratch, mountPath: /scratch, readOnly: false}]}]}`))
		w.EventuallyRuns(ctx, "plain", 1, onH100)
		Expect(w.raw(ctx, "plain", "runtimePatches")).To(ContainElement(SatisfyAll(
			HaveKeyWithValue("manager", "example.com/user"),
			WithTransform(jsonOf, SatisfyAll(ContainSubstring(`"sizeLimit":"2048Mi"`), ContainSubstring(`"readOnly":false`))))))
	}, SpecTimeout(specTimeout))
})

var _ = It("A TrainJob without a queue is left exactly as it is", core, Label("invariant", "ours-only"), func(ctx context.Context) {
	w := newWorld(ctx)
	w.MakeRunning(ctx, kit.TrainJob(w.Namespace, "free"), 1, nil)
	stored := w.TrainJob(ctx, "free")
	Expect(stored.Spec.RuntimePatches).To(BeEmpty())
	Expect(stored.Spec.Suspend).To(HaveValue(BeFalse()))
	Expect(w.Workload(ctx, "free")).To(BeNil())
	w.Finish(ctx, "free", "succeeded")
	w.eventuallyTrainJob(ctx, "free", trainer.TrainJobComplete)
}, SpecTimeout(specTimeout))

var _ = It("The admission gate holds the pods of a TrainJob that a user resumes without quota, which is suspended again", core, Label("invariant", "no-quota-no-pod"), func(ctx context.Context) {
	w := newPools(ctx, "0", "0")
	// Nothing but the gate is in the way of its pod.
	w.MakePending(ctx, w.Job("eager").GPUs("8").Tolerate(gpuToleration))
	w.Edit(ctx, "eager", func(t *trainer.TrainJob) { t.Spec.Suspend = new(false) })
	w.ConsistentlyUnbound(ctx, "eager")
	w.EventuallyAtTheGate(ctx, "eager")
}, SpecTimeout(specTimeout))
