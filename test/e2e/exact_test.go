// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"
	controllerconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("A waiting TrainJob", func() {
	It("is admitted for the nodes that its user asked for last", core, Label("invariant", "exact"), func(ctx context.Context) {
		w := newPools(ctx, "8", "8")
		w.MakeRunning(ctx, w.Job("holds-h100").GPUs("8"), 1, onH100)
		w.MakeRunning(ctx, w.Job("holds-a100").GPUs("8"), 1, onA100)

		w.MakePending(ctx, w.Job("changes").GPUs("8"))
		w.Edit(ctx, "changes", func(t *trainer.TrainJob) {
			t.Spec.RuntimePatches = append(kit.TrainJob("", "").NodeSelector(onA100).Spec.RuntimePatches, t.Spec.RuntimePatches...)
		})
		w.EventuallyWorkload(ctx, "changes", HaveField("Spec.PodSets", ConsistOf(HaveField("Template.Spec.NodeSelector", onA100))))

		// Whichever pool frees first, it runs on the one asked for.
		w.Finish(ctx, "holds-h100", "succeeded")
		w.Finish(ctx, "holds-a100", "succeeded")
		w.EventuallyRuns(ctx, "changes", 1, onA100)
	}, SpecTimeout(specTimeout))

	It("follows its snapshot where the runtime is edited meanwhile", Label("invariant", "podsets"), since(world.Trainer23), func(ctx context.Context) {
		w := newPools(ctx, "0", "0")
		runtime := w.CopyRuntime(ctx, "torch-distributed")
		w.MakePending(ctx, w.Job("frozen").Runtime(runtime.Name).GPUs("2"), runtime)
		w.EditRuntime(ctx, runtime.Name, kit.OfNodes(4))
		w.Touch(ctx, "frozen")
		// Who comes after the edit is what it says.
		w.Make(ctx, w.Job("later").Runtime(runtime.Name).GPUs("2").Obj())
		w.EventuallyWorkload(ctx, "later", HaveField("Spec.PodSets", ConsistOf(HaveField("Count", int32(4)))))
		Expect(w.Workload(ctx, "frozen").Spec.PodSets[0].Count).To(Equal(int32(1)))
	}, SpecTimeout(specTimeout))

	It("is charged for the snapshot that it runs, where its first one was deleted", Label("invariant", "podsets"), since(world.Trainer23), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		runtime := w.CopyRuntime(ctx, "torch-distributed")
		w.MakeRunning(ctx, w.Job("holds").GPUs("8"), 1, onH100, runtime)
		w.MakePending(ctx, w.Job("refrozen").Runtime(runtime.Name).GPUs("2"))
		w.EditRuntime(ctx, runtime.Name, kit.OfNodes(4))
		snapshot := get(ctx, w, &corev1.ConfigMap{}, "refrozen-runtime-snapshot")
		first := snapshot.UID
		// Times of creation are whole seconds: the next snapshot has to be newer than the JobSet.
		Eventually(ctx, func() time.Duration { return time.Since(snapshot.CreationTimestamp.Time) }).Should(BeNumerically(">", 2*time.Second))
		Expect(w.Delete(ctx, snapshot)).To(Succeed())
		w.Touch(ctx, "refrozen")
		w.EventuallyIs(ctx, snapshot, snapshot.Name, HaveField("UID", Not(Equal(first))))

		w.Finish(ctx, "holds", "succeeded")
		w.EventuallyRuns(ctx, "refrozen", 4, onH100)
		Expect(w.Workload(ctx, "refrozen").Status.Admission.PodSetAssignments[0].Count).To(HaveValue(Equal(int32(4))))
	}, SpecTimeout(specTimeout))

	It("is charged for what Trainer froze, where the runtime was edited before Trainer looked at it", Label("invariant", "podsets"), since(world.Trainer23), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		runtime := w.CopyRuntime(ctx, "torch-distributed")
		w.runsOutside("Trainer makes the JobSet of a job that was resumed before it looked, from the edited runtime, and pods come before the manager sees that")
		allow := w.refuseSnapshots(ctx)
		w.Make(ctx, runtime, w.Job("late").Runtime(runtime.Name).GPUs("2").Obj())
		Eventually(ctx, func() any { return w.TrainJob(ctx, "late").Spec.Suspend }).Should(HaveValue(BeFalse()))
		w.EditRuntime(ctx, runtime.Name, kit.OfNodes(4))
		allow(ctx)
		w.Touch(ctx, "late")
		w.EventuallyWorkload(ctx, "late", HaveField("Status.Admission.PodSetAssignments", ConsistOf(HaveField("Count", HaveValue(Equal(int32(4)))))))
		w.EventuallyRuns(ctx, "late", 4, onH100)
	}, SpecTimeout(specTimeout))
})

var _ = It("A running TrainJob keeps its pods and its Workload when its runtime is edited, and when it is deleted", core, Label("invariant", "not-ours-to-stop"), func(ctx context.Context) {
	w := newPools(ctx, "16", "0")
	runtime := w.CopyRuntime(ctx, "torch-distributed")
	pods := w.MakeRunning(ctx, w.Job("runs").Runtime(runtime.Name).Nodes(2).GPUs("8"), 2, onH100, runtime)
	before := w.Workload(ctx, "runs")

	w.EditRuntime(ctx, runtime.Name, kit.OfImage("example.com/other:1"))
	w.Touch(ctx, "runs")
	w.ConsistentlyKeeps(ctx, "runs", pods, before)
	Expect(w.Delete(ctx, runtime)).To(Succeed())
	w.TouchPods(ctx, "runs")
	w.ConsistentlyKeeps(ctx, "runs", pods, before)
}, SpecTimeout(specTimeout))

// Trainer 2.1 and 2.2 keep a runtime that is in use.
var _ = It("A running TrainJob whose runtime is gone gives its quota back when it is deleted in the foreground", core, since(world.Trainer23), func(ctx context.Context) {
	w := newPools(ctx, "8", "0")
	runtime := w.CopyRuntime(ctx, "torch-distributed")
	w.MakeRunning(ctx, w.Job("runs").Runtime(runtime.Name).GPUs("8"), 1, onH100, runtime)
	Expect(w.Delete(ctx, runtime.DeepCopy())).To(Succeed())
	job := get(ctx, w, world.NewTrainJob(), "runs")
	Expect(w.Delete(ctx, job, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
	w.EventuallyNoWorkload(ctx, "runs")
	// Trainer does not even let the garbage collector take its finalizer off.
	Expect(w.Get(ctx, client.ObjectKeyFromObject(job), job)).To(Succeed())
	runtime.ResourceVersion = ""
	w.Make(ctx, runtime)
	w.EventuallyGone(ctx, job)
}, SpecTimeout(specTimeout))

var _ = Describe("An evicted TrainJob", func() {
	It("counts as active and keeps its quota until its last pod is gone, and says so", core, Label("invariant", "one-incarnation"), func(ctx context.Context) {
		// People are told after ten seconds.
		w := newPools(ctx, "8", "8")
		first := w.MakeRunning(ctx, w.Job("slow").GPUs("8").EndsAfter("14s"), 1, onH100)[0].UID
		w.SetStopPolicy(ctx, w.LocalQueue(), kueue.HoldAndDrain)
		w.EventuallyCondition(ctx, "slow", kueue.WorkloadEvicted)
		w.SetStopPolicy(ctx, w.LocalQueue(), kueue.None)

		there := w.eventuallyWithoutPod(ctx, first, func(g Gomega, _ *kueue.Workload, pods []corev1.Pod) { g.Expect(pods).To(HaveLen(1)) })
		w.expectAdmittedAfter(ctx, "slow", there)
		Expect(w.EventNotes(ctx, "TrainJob", "slow", "StillStopping")).NotTo(BeEmpty())
	}, SpecTimeout(specTimeout))

	It("stays active when somebody deactivates it, and keeps its quota until its last pod is gone", core, Label("invariant", "exact"), func(ctx context.Context) {
		w, pods := newRunning(ctx, "slow", "6s")
		w.Make(ctx, w.Job("next").GPUs("8").Obj())
		// A request may say of the status whatever it likes.
		w.PatchJSON(ctx, w.Workload(ctx, "slow"), `{"spec":{"active":false},"status":null}`)
		w.EventuallyTold(ctx, "slow", "WorkloadDeactivated", "is being deactivated")

		there := w.eventuallyWithoutPod(ctx, pods[0].UID, func(g Gomega, wl *kueue.Workload, _ []corev1.Pod) {
			g.Expect(wl.Spec.Active).To(HaveValue(BeFalse()))
		})
		w.EventuallyRuns(ctx, "next", 1, onH100)
		w.expectAdmittedAfter(ctx, "next", there)
		w.Finish(ctx, "next", "succeeded")
		w.Activate(ctx, "slow", true)
		w.EventuallyRuns(ctx, "slow", 1, onH100)
	}, SpecTimeout(specTimeout))
})

// eventuallyWithoutPod expects that the job slow has its quota, and no other pod, as long as its first one is there. It
// returns when that was seen last, once until holds of what there is without it.
func (w *site) eventuallyWithoutPod(ctx context.Context, first types.UID, until func(Gomega, *kueue.Workload, []corev1.Pod)) (there time.Time) {
	Eventually(ctx, func(g Gomega) {
		// The Workload first: a pod that is there afterwards was there then.
		wl := w.Workload(ctx, "slow")
		asked := time.Now()
		pods := w.Pods(ctx, "slow")
		if slices.Contains(world.UIDs(pods), first) {
			Expect(pods).To(HaveLen(1))
			Expect(wl.Status.Admission).NotTo(BeNil())
			Expect(wl.Spec.Active).To(HaveValue(BeTrue()))
			there = asked
		}
		g.Expect(world.UIDs(pods)).NotTo(ContainElement(first))
		until(g, wl, pods)
	}).Should(Succeed())
	return there
}

// expectAdmittedAfter expects that a job got its quota when a pod was gone that was there at a time.
func (w *site) expectAdmittedAfter(ctx context.Context, job string, there time.Time) {
	admitted := apimeta.FindStatusCondition(w.Workload(ctx, job).Status.Conditions, kueue.WorkloadAdmitted)
	// Conditions have whole seconds.
	Expect(admitted.LastTransitionTime.Time).To(BeTemporally(">=", there.Truncate(time.Second)), "admitted after the last pod was gone")
}

var _ = Describe("Between user, Kueue and manager, a TrainJob", func() {
	It("moves to another queue when it is suspended with the new name, and runs on that queue's quota", func(ctx context.Context) {
		w, _ := newRunning(ctx, "moves")
		w.makeOther(ctx)
		w.Edit(ctx, "moves", func(t *trainer.TrainJob) { t.Labels[kit.QueueLabel], t.Spec.Suspend = "other", new(true) })
		w.EventuallyWorkload(ctx, "moves", HaveField("Status.Admission.ClusterQueue", BeEquivalentTo(w.Name("other"))))
		w.EventuallyRuns(ctx, "moves", 1, onA100)
	}, SpecTimeout(specTimeout))

	It("runs placed although its user resumes it in the moment of its admission", core, Label("invariant", "exact"), func(ctx context.Context) {
		w := newPools(ctx, "0", "0")
		w.MakeGated(ctx, w.Job("eager").GPUs("4"), 1)
		w.EventuallyWorkload(ctx, "eager")
		// Its user resumes it, and it is admitted before the manager has suspended it again.
		allow := w.refuseManager(ctx)
		w.Edit(ctx, "eager", resume)
		Expect(w.TrainJob(ctx, "eager").Spec.Suspend).To(HaveValue(BeFalse()))
		w.SetQuota(ctx, w.Name("gpus"), "8")
		w.EventuallyCondition(ctx, "eager", kueue.WorkloadAdmitted)
		allow(ctx)
		exactlyPlaced(w.EventuallyRuns(ctx, "eager", 1, onH100))
	}, SpecTimeout(specTimeout))

	It("keeps no quota for pods that queue by themselves, whatever JobSet their labels name", core, func(ctx context.Context) {
		w, _ := newRunning(ctx, "goes")
		look := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "look", Labels: map[string]string{controllerconstants.QueueLabel: "queue"}}}
		look.Spec.Template.Labels = map[string]string{jobsetapi.JobSetNameKey: "goes"}
		look.Spec.Template.Annotations = map[string]string{"localcluster/terminate-after": "1h"}
		look.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: new(int64(3600)), Containers: []corev1.Container{{Name: "look", Image: "none"}}}
		w.Make(ctx, look)
		var pods corev1.PodList
		Eventually(ctx, func(g Gomega) []corev1.Pod {
			return world.All(ctx, g, w, &pods, client.InNamespace(w.Namespace), client.MatchingLabels{batchv1.JobNameLabel: look.Name}).Items
		}).Should(ConsistOf(And(world.Running(), HaveField("Labels", HaveKey(kueueconstants.PodSetLabel)))))
		DeferCleanup(func(ctx context.Context) {
			Expect(client.IgnoreNotFound(w.Delete(ctx, &pods.Items[0], client.GracePeriodSeconds(0)))).To(Succeed())
		})
		Expect(w.Delete(ctx, look, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
		w.EventuallyGone(ctx, look)
		wl := w.Workload(ctx, "goes")
		Expect(w.Delete(ctx, w.TrainJob(ctx, "goes"))).To(Succeed())
		w.EventuallyGone(ctx, wl)
		Expect(w.Get(ctx, client.ObjectKeyFromObject(&pods.Items[0]), &pods.Items[0])).To(Succeed(), "its look-alike's pod is still there")
	}, SpecTimeout(specTimeout))

	It("keeps its quota while its deleted Workload's pods are there", core, Label("invariant", "one-incarnation"), func(ctx context.Context) {
		w, _ := newRunning(ctx, "held", "4s")
		wl := w.Workload(ctx, "held")
		Expect(w.Delete(ctx, wl)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			// The Workload first: a pod that is there afterwards was there then.
			now := w.Workload(ctx, "held")
			pods := w.Pods(ctx, "held")
			kept := now != nil && now.UID == wl.UID
			if len(pods) > 0 && pods[0].DeletionTimestamp != nil {
				Expect(kept).To(BeTrue(), "the Workload is gone, the pod is not")
			}
			g.Expect(kept).To(BeFalse())
		}).Should(Succeed())
		w.EventuallyRuns(ctx, "held", 1, onH100)
	}, SpecTimeout(specTimeout))
})

// refuseSnapshots keeps Trainer from freezing runtimes in the namespace, and so from making
// JobSets, until allow. It cannot tell anybody why either: it is as if it were busy.
func (w *site) refuseSnapshots(ctx context.Context) (allow func(context.Context)) {
	policy := w.policy("no-snapshots", []string{"", "events.k8s.io"}, []string{"configmaps", "events"},
		"!object.metadata.name.endsWith('-runtime-snapshot') && !(object.kind == 'Event' && object.reason == 'TrainJobResourcesCreationFailed')")
	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "probe-runtime-snapshot"}}
	return w.enforce(ctx, policy, func(ctx context.Context) error { return w.Create(ctx, probe.DeepCopy(), client.DryRunAll) })
}
