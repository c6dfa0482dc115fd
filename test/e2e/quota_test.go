// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// slowly has the pods of a job take so long to go that nobody could miss them.
const slowly = "6s"

// All specs here have quota for one of two jobs.
var _ = Describe("Quota is given back when the last pod is gone", func() {
	It("where JobSet and Trainer delete what is left of a job that is complete", core, Label("invariant", "one-incarnation"), func(ctx context.Context) {
		w := newWorld(ctx)
		runtime := w.runtimeWithChief(ctx)
		runtime.Spec.Template.Spec.SuccessPolicy = &jobsetapi.SuccessPolicy{Operator: jobsetapi.OperatorAny, TargetReplicatedJobs: []string{"chief"}}
		w.Pools(ctx, "8", "0")
		w.MakeRunning(ctx, w.Job("first").GPUs("8").EndsAfter(slowly).Runtime(runtime.Name), 2, nil, runtime)
		w.Make(ctx, w.Job("next").GPUs("8").Obj())

		w.Finish(ctx, "first", "succeeded", "chief")
		w.eventuallyTrainJob(ctx, "first", trainer.TrainJobComplete)
		w.eventuallyFollows(ctx, "next")
	}, SpecTimeout(specTimeout))

	// The first job has all the quota, and the next one asks for it.
	deletesFirst := func(how client.PropagationPolicy) func(context.Context, *site) {
		return func(ctx context.Context, w *site) {
			w.Make(ctx, w.Job("next").GPUs("8").Obj())
			Expect(w.Delete(ctx, w.Job("first").Obj(), how)).To(Succeed())
		}
	}
	DescribeTable("where", core, Label("invariant", "one-incarnation"), func(ctx context.Context, goes func(context.Context, *site)) {
		w, _ := newRunning(ctx, "first", slowly)
		w.Make(ctx, kit.Priority(w.Name("urgent"), 100))
		goes(ctx, w)
		w.eventuallyFollows(ctx, "next")
	},
		Entry("somebody deletes the TrainJob (Background)", SpecTimeout(specTimeout), deletesFirst("Background")),
		Entry("somebody deletes the TrainJob (Foreground)", SpecTimeout(specTimeout), deletesFirst("Foreground")),
		Entry("a finalizer keeps the Workload of the deleted TrainJob", SpecTimeout(specTimeout), func(ctx context.Context, w *site) {
			wl := w.Workload(ctx, "first")
			w.PatchJSON(ctx, wl, `{"metadata":{"finalizers":["kueue.x-k8s.io/resource-in-use","example.com/mine"]}}`)
			DeferCleanup(func(ctx context.Context) { w.PatchJSON(ctx, wl, dropFinalizers) })
			deletesFirst("Background")(ctx, w)
		}),
		Entry("somebody deletes the JobSet of a job that is being evicted", SpecTimeout(specTimeout), func(ctx context.Context, w *site) {
			w.Make(ctx, w.Job("next").Priority(w.Name("urgent")).GPUs("8").Obj())
			w.EventuallyIs(ctx, &jobsetapi.JobSet{}, "first", HaveField("Spec.Suspend", HaveValue(BeTrue())))
			w.deleteJobSet(ctx, "first")
		}),
		// JobSet counts no pods of what is deleted, and Trainer refuses the gate as long as it counts some.
		Entry("somebody keeps its JobSet, which is deleted in the foreground", long, SpecTimeout(specTimeout), func(ctx context.Context, w *site) {
			keeper := &corev1.ConfigMap{}
			keeper.Namespace, keeper.Name, keeper.Finalizers = w.Namespace, "keeper", []string{"example.com/mine"}
			keeper.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(get(ctx, w, &jobsetapi.JobSet{}, "first"), jobsetapi.SchemeGroupVersion.WithKind("JobSet"))}
			w.Make(ctx, keeper)
			DeferCleanup(func(ctx context.Context) { w.PatchJSON(ctx, keeper, dropFinalizers) })
			w.deleteJobSet(ctx, "first", inForeground)
			w.EventuallyGone(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "first-node-0"}})
			w.Make(ctx, w.Job("next").Priority(w.Name("urgent")).GPUs("8").Obj())
		}),
	)

	It("where somebody keeps the deleted TrainJob by a finalizer, and deletes its JobSet", core, Label("invariant", "one-incarnation"), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		job := w.Job("first").GPUs("8").EndsAfter(slowly)
		job.Finalizers = []string{"example.com/mine"}
		w.MakeRunning(ctx, job, 1, onH100)
		DeferCleanup(func(ctx context.Context) { w.PatchJSON(ctx, job.Obj(), dropFinalizers) })
		w.Make(ctx, w.Job("next").GPUs("8").Obj())

		Expect(w.Delete(ctx, job.Obj())).To(Succeed())
		// In the background Trainer, which has yet to hear of the suspension, would make the next at once.
		w.deleteJobSet(ctx, "first", inForeground)
		w.eventuallyFollows(ctx, "next")
		Expect(get(ctx, w, &trainer.TrainJob{}, "first").Spec.Suspend).To(HaveValue(BeTrue()))
	}, SpecTimeout(specTimeout))

	It("where somebody creates the deleted TrainJob again", core, Label("invariant", "one-incarnation"), func(ctx context.Context) {
		w, _ := newRunning(ctx, "first", slowly)
		w.createAgain(ctx, w.Job("first").GPUs("8").Obj())
		w.eventuallyFollows(ctx, "first")
	}, SpecTimeout(specTimeout))

	It("where somebody creates the deleted TrainJob again without a queue", core, func(ctx context.Context) {
		w, _ := newRunning(ctx, "first", slowly)
		unqueued := w.Job("first").GPUs("8").Obj()
		unqueued.Labels = nil
		w.createAgain(ctx, unqueued)
		w.MakeRunning(ctx, w.Job("next").GPUs("8"), 1, onH100)
	}, SpecTimeout(specTimeout))

	It("where somebody makes a pod that names a Job of it which has ended", core, Label("invariant", "one-incarnation"), func(ctx context.Context) {
		w := newWorld(ctx)
		runtime := w.runtimeWithChief(ctx)
		w.Pools(ctx, "8", "0")
		w.MakeRunning(ctx, w.Job("first").GPUs("8").EndsAfter(slowly).Runtime(runtime.Name), 2, nil, runtime, kit.Priority(w.Name("urgent"), 100))
		w.Finish(ctx, "first", "succeeded", "chief")
		w.EventuallyIs(ctx, &batchv1.Job{}, "first-chief-0", HaveField("Status.Succeeded", BeEquivalentTo(1)))
		decoy := &corev1.Pod{Spec: anyPod().Spec}
		decoy.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "example.com/mine"}}
		decoy.Namespace, decoy.Name, decoy.Labels = w.Namespace, "decoy", map[string]string{jobsetapi.JobSetNameKey: "first"}
		decoy.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(get(ctx, w, &batchv1.Job{}, "first-chief-0"), batchv1.SchemeGroupVersion.WithKind("Job"))}
		w.Make(ctx, decoy, w.Job("next").Priority(w.Name("urgent")).GPUs("8").Obj())
		w.eventuallyFollows(ctx, "next")
	}, SpecTimeout(specTimeout))

	It("where Trainer ends a job at its deadline", since(world.Trainer23), Label("invariant", "one-incarnation"), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		job := w.Job("first").GPUs("8").EndsAfter(slowly)
		job.Spec.ActiveDeadlineSeconds = 10
		w.MakeRunning(ctx, job, 1, onH100)
		w.Make(ctx, w.Job("next").GPUs("8").Obj())

		w.eventuallyTrainJob(ctx, "first", trainer.TrainJobFailed)
		w.eventuallyFollows(ctx, "next")
	}, SpecTimeout(specTimeout))
})

var _ = Describe("Quota that was given back is not used again", func() {
	for _, end := range []string{"failed", "succeeded"} {
		It("by a job that "+end+", whose JobSet removes itself", core, Label("invariant", "no-quota-no-pod"), func(ctx context.Context) {
			// Long enough that Trainer sees the end: it would run the job again otherwise.
			w, _ := newRunningOf(ctx, "first", kit.OfOneTry, func(spec *trainer.TrainingRuntimeSpec) {
				spec.Template.Spec.TTLSecondsAfterFinished = new(int32(5))
			})
			w.Make(ctx, w.Job("next").GPUs("8").Obj())

			made := get(ctx, w, &jobsetapi.JobSet{}, "first").UID
			w.Finish(ctx, "first", end)
			w.eventuallyFollows(ctx, "next")
			if end == "succeeded" && trainerOf(ctx) > world.Trainer21 {
				w.EventuallyGone(ctx, jobSetNamed(w.Namespace, "first"))
				return
			}
			w.eventuallyOtherJobSet(ctx, "first", made)
			w.EventuallyCaughtUp(ctx)
			w.ConsistentlyUnbound(ctx, "first")
			w.EventuallyAtTheGate(ctx, "first")
		}, SpecTimeout(specTimeout))
	}

	It("by a failed job that its user resumes when somebody has deleted its JobSet", core, Label("invariant", "no-quota-no-pod"), func(ctx context.Context) {
		w, _ := newRunningOf(ctx, "first", kit.OfOneTry)
		w.Make(ctx, w.Job("next").GPUs("8").Obj())
		made := get(ctx, w, &jobsetapi.JobSet{}, "first").UID
		w.Finish(ctx, "first", "failed")
		w.eventuallyFollows(ctx, "next")

		w.deleteJobSet(ctx, "first")
		w.eventuallyOtherJobSet(ctx, "first", made)
		w.Edit(ctx, "first", func(t *trainer.TrainJob) { t.Spec.Suspend = new(false) })
		w.EventuallyTold(ctx, "first", "HasEnded", "delete it and create it again")
		w.ConsistentlyUnbound(ctx, "first")
		w.EventuallyAtTheGate(ctx, "first")
	}, SpecTimeout(specTimeout))

	It("by a child Job that JobSet creates again after its TTL", core, Label("invariant", "no-quota-no-pod"), func(ctx context.Context) {
		w := newWorld(ctx)
		runtime := w.runtimeWithChief(ctx)
		chief := &runtime.Spec.Template.Spec.ReplicatedJobs[1]
		chief.Template.Spec.TTLSecondsAfterFinished = new(int32(1))
		chief.Template.Spec.Template.Spec.Containers[0].Resources = kit.GPUResources("8")
		w.Pools(ctx, "16", "0")
		w.MakeRunning(ctx, w.Job("first").Runtime(runtime.Name).GPUs("8"), 2, onH100, runtime)
		w.Make(ctx, w.Job("next").GPUs("8").Obj())

		ended := get(ctx, w, &batchv1.Job{}, "first-chief-0").UID
		w.Finish(ctx, "first", "succeeded", "chief")
		w.EventuallyIs(ctx, &batchv1.Job{}, "first-chief-0", HaveField("UID", Not(Equal(ended))), HaveField("Status.Active", BeEquivalentTo(1)))
		Expect(w.usedGPUs(ctx)).To(BeNumerically("<=", 16))
		w.ConsistentlyUnbound(ctx, "next")
		w.Finish(ctx, "first", "succeeded")
		Expect(w.Delete(ctx, w.Job("first").Obj())).To(Succeed())
		w.EventuallyRuns(ctx, "next", 1, onH100)
	}, SpecTimeout(specTimeout))
})

var _ = Describe("A job is charged for what its JobSet has", func() {
	It("when its snapshot was edited while it waited and its JobSet deleted", core, since(world.Trainer23), Label("invariant", "truth"), func(ctx context.Context) {
		w, _ := newRunning(ctx, "first")
		w.MakePending(ctx, w.Job("next").GPUs("8"))

		w.growSnapshot(ctx, "next")
		w.eventuallyRefusedByJobSet(ctx, "next")
		w.deleteJobSet(ctx, "next")
		w.Finish(ctx, "first", "succeeded")
		w.eventuallyChargedFor(ctx, "next", 16)
		w.ConsistentlyUnbound(ctx, "next")
		w.SetQuota(ctx, w.Name("gpus"), "16")
		w.EventuallyRuns(ctx, "next", 2, onH100)
	}, SpecTimeout(specTimeout))

	It("when its snapshot and its JobSet were deleted while it waited, and its runtime had been edited", core, since(world.Trainer23), Label("invariant", "truth"), func(ctx context.Context) {
		w := newWorld(ctx)
		runtime := w.CopyRuntime(ctx, "torch-distributed")
		w.Pools(ctx, "8", "0")
		w.MakeRunning(ctx, w.Job("first").GPUs("8"), 1, onH100, runtime)
		w.MakePending(ctx, w.Job("next").Runtime(runtime.Name).GPUs("8"))

		w.EditRuntime(ctx, runtime.Name, addJob("chief"))
		w.eventuallyMadeOf(ctx, runtime.Name, "chief")
		Expect(w.Delete(ctx, get(ctx, w, &corev1.ConfigMap{}, "next-runtime-snapshot"))).To(Succeed())
		w.eventuallyRefusedByJobSet(ctx, "next")
		w.deleteJobSet(ctx, "next")
		w.Finish(ctx, "first", "succeeded")
		w.eventuallyChargedFor(ctx, "next", 16)
		w.ConsistentlyUnbound(ctx, "next")
	}, SpecTimeout(specTimeout))

	It("and is taken back when its snapshot was edited while it ran and its JobSet deleted", core, since(world.Trainer23), Label("invariant", "truth"), func(ctx context.Context) {
		w, _ := newRunning(ctx, "first")
		w.runsOutside(forbidden)
		w.growSnapshot(ctx, "first")
		w.deleteJobSet(ctx, "first")
		w.EventuallyTold(ctx, "first", "QueuedAgain", "replicated job extra is not among those that the job was admitted with")
		w.eventuallyChargedFor(ctx, "first", 16)
		w.ConsistentlyUnbound(ctx, "first")
	}, SpecTimeout(specTimeout))

	It("and is taken back when somebody scales one of its Jobs", core, Label("invariant", "truth"), func(ctx context.Context) {
		w, _ := newRunning(ctx, "first")
		w.runsOutside(forbidden)
		child := get(ctx, w, &batchv1.Job{}, "first-node-0")
		w.PatchJSON(ctx, child, `{"spec":{"parallelism":2,"completions":2}}`)
		w.EventuallyTold(ctx, "first", "QueuedAgain", "has child Jobs with 2 pods instead of 1")
	}, SpecTimeout(specTimeout))
})

// forbidden is what an admin does in a spec and the policies forbid to everybody else: pods
// can be bound then before anybody could see that they have no quota.
const forbidden = "an admin does what the policies forbid to tenants"

// createAgain deletes the TrainJob of a name, and creates another one as soon as its Job is gone: JobSet would suspend that
// while it is deleted, and Kubernetes' Job controller, which keeps its expectations by name, would make no pod of the next one.
func (w *site) createAgain(ctx context.Context, job *trainer.TrainJob) {
	Expect(w.Delete(ctx, job.DeepCopy())).To(Succeed())
	w.EventuallyGone(ctx, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: job.Name + "-node-0"}})
	Eventually(ctx, func() error { return w.Create(ctx, job.DeepCopy()) }).Should(Succeed())
}

// runtimeWithChief returns torch-distributed with a second replicated job without GPUs.
func (w *site) runtimeWithChief(ctx context.Context) *trainer.ClusterTrainingRuntime {
	runtime := w.CopyRuntime(ctx, "torch-distributed", addJob("chief"))
	runtime.Spec.Template.Spec.ReplicatedJobs[1].Template.Spec.Template.Spec.Containers[0].Resources = corev1.ResourceRequirements{}
	return runtime
}

// addJob adds another replicated job, of 8 GPUs.
func addJob(name string) kit.RuntimeChange {
	rj := jobsetapi.ReplicatedJob{Name: name, Replicas: 1}
	rj.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: name, Image: "example.com/" + name, Resources: kit.GPUResources("8")}}
	return func(spec *trainer.TrainingRuntimeSpec) {
		spec.Template.Spec.ReplicatedJobs = append(spec.Template.Spec.ReplicatedJobs, rj)
	}
}

// growSnapshot adds a replicated job of 8 GPUs to what Trainer has frozen for a job.
func (w *site) growSnapshot(ctx context.Context, job string) {
	w.editSnapshot(ctx, job, func(content string) string {
		var runtime trainer.ClusterTrainingRuntime
		Expect(yaml.Unmarshal([]byte(content), &runtime)).To(Succeed())
		addJob("extra")(&runtime.Spec)
		return string(must(yaml.Marshal(&runtime)))
	})
}

// eventuallyRefusedByJobSet waits until Trainer's cache has the other replicated jobs of a job:
// it makes JobSets of what that has, and JobSet refuses what it makes of these.
func (w *site) eventuallyRefusedByJobSet(ctx context.Context, job string) {
	Eventually(ctx, func() []string {
		w.Touch(ctx, job)
		return w.EventNotes(ctx, "TrainJob", job, "TrainJobResourcesCreationFailed")
	}).Should(ContainElement(ContainSubstring("spec.replicatedJobs")))
}

func (w *site) deleteJobSet(ctx context.Context, name string, how ...client.DeleteOption) {
	Expect(client.IgnoreNotFound(w.Delete(ctx, get(ctx, w, &jobsetapi.JobSet{}, name), how...))).To(Succeed())
}

// eventuallyOtherJobSet waits until Trainer has made another JobSet of a job, and no pod of the former one is left.
func (w *site) eventuallyOtherJobSet(ctx context.Context, job string, than types.UID) {
	w.EventuallyIs(ctx, &jobsetapi.JobSet{}, job, HaveField("UID", Not(Equal(than))))
	former := HaveField("Labels", HaveKeyWithValue(jobsetapi.JobSetUIDKey, string(than)))
	Eventually(ctx, w.Pods).WithArguments(ctx, job).ShouldNot(ContainElement(former))
}

func (w *site) eventuallyTrainJob(ctx context.Context, name, condition string) {
	w.EventuallyIs(ctx, &trainer.TrainJob{}, name, world.True(condition))
}

// eventuallyFollows waits until a job of one pod with 8 GPUs runs, by a JobSet of its own. That it is
// not beside the job whose quota it has the audit tells; nothing else does for in-tree.
func (w *site) eventuallyFollows(ctx context.Context, next string) {
	Eventually(ctx, func(g Gomega) {
		if cluster.Integration != world.External {
			Expect(w.usedGPUs(ctx)).To(BeNumerically("<=", 8), "GPUs of bound pods")
		}
		key := client.ObjectKey{Namespace: w.Namespace, Name: next}
		job, js := world.Found(ctx, g, w, &trainer.TrainJob{}, key), world.Found(ctx, g, w, &jobsetapi.JobSet{}, key)
		g.Expect(metav1.IsControlledBy(js, job)).To(BeTrue(), "the JobSet of a former TrainJob")
		pods := slices.DeleteFunc(w.Pods(ctx, next), func(pod corev1.Pod) bool { return pod.Labels[jobsetapi.JobSetUIDKey] != string(js.UID) })
		g.Expect(pods).To(ConsistOf(world.Running()))
	}).Should(Succeed())
}

// usedGPUs adds up what the bound pods of the spec's namespace hold that have not ended.
func (w *site) usedGPUs(ctx context.Context) int64 {
	pods := world.All(ctx, Default, w, &corev1.PodList{}, client.InNamespace(w.Namespace))
	used := int64(0)
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, c := range pod.Spec.Containers {
			used += c.Resources.Requests.Name(kit.GPU, "").Value()
		}
	}
	return used
}

// eventuallyMadeOf waits until Trainer, which makes JobSets by its cache, has heard of a runtime's replicated job.
func (w *site) eventuallyMadeOf(ctx context.Context, runtime, replicatedJob string) {
	probes := 0
	Eventually(ctx, func(g Gomega) {
		probes++
		probe := w.Job(fmt.Sprintf("probe-%d", probes)).Runtime(runtime).Obj()
		delete(probe.Labels, kit.QueueLabel)
		probe.Spec.Suspend = new(true)
		w.Make(ctx, probe)
		var js jobsetapi.JobSet
		Eventually(ctx, func() error { return w.Get(ctx, client.ObjectKeyFromObject(probe), &js) }).Should(Succeed())
		g.Expect(js.Spec.ReplicatedJobs).To(ContainElement(HaveField("Name", replicatedJob)))
	}).Should(Succeed())
}

// eventuallyChargedFor waits until the Workload of a job asks for so many GPUs.
func (w *site) eventuallyChargedFor(ctx context.Context, job string, gpus int64) {
	w.EventuallyWorkload(ctx, job, WithTransform(func(wl *kueue.Workload) (charged int64) {
		for _, ps := range wl.Spec.PodSets {
			for _, c := range ps.Template.Spec.Containers {
				charged += int64(ps.Count) * c.Resources.Limits.Name(kit.GPU, "").Value()
			}
		}
		return charged
	}, Equal(gpus)))
}
