// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

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

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("A preempted TrainJob", func() {
	It("stops although an edit of its runtime has JobSet refuse all that Trainer says", core, Label("invariant", "no-quota-no-pod"), func(ctx context.Context) {
		w, runtime := newRunningOf(ctx, "patient")
		if trainerOf(ctx) >= world.Trainer23 {
			w.editSnapshot(ctx, "patient", func(content string) string {
				return strings.ReplaceAll(content, "image: ", "image: example.com/edited/")
			})
		} else {
			w.EditRuntime(ctx, runtime, kit.OfImage("example.com/edited"))
		}
		w.preempt(ctx, "patient")
		Expect(w.EventNotes(ctx, "TrainJob", "patient", "JobSetSuspended")).To(ConsistOf(ContainSubstring("was suspended for Trainer")))
	}, SpecTimeout(specTimeout))

	It("stops although JobSet cannot make its next Job, and so suspends none", core, long, Label("invariant", "no-quota-no-pod"), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		runtime := w.MakeRuntime(ctx, "torch-distributed", func(spec *trainer.TrainingRuntimeSpec) {
			after := spec.Template.Spec.ReplicatedJobs[0].DeepCopy()
			after.Name, after.Template.Labels = "after", nil
			after.DependsOn = []jobsetapi.DependsOn{{Name: "node", Status: jobsetapi.DependencyReady}}
			spec.Template.Spec.ReplicatedJobs = append(spec.Template.Spec.ReplicatedJobs, *after)
		})
		w.SetStopPolicy(ctx, w.LocalQueue(), kueue.Hold)
		w.queues(ctx, w.Job("patient").Runtime(runtime).GPUs("8"))
		inTheWay := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "patient-after-0"}}
		inTheWay.Spec.Suspend, inTheWay.Spec.Template = new(true), anyPod()
		w.Make(ctx, inTheWay)
		w.SetStopPolicy(ctx, w.LocalQueue(), kueue.None)
		w.EventuallyRuns(ctx, "patient", 1, onH100)
		if trainerOf(ctx) >= world.Trainer22 {
			Eventually(ctx, w.EventNotes).WithArguments(ctx, "JobSet", "patient", "JobCreationFailed").ShouldNot(BeEmpty())
		}

		w.preempt(ctx, "patient")
		w.EventuallyTold(ctx, "patient", "StillStopping", "its Job patient-node-0 was not, so it was suspended for JobSet")
	}, SpecTimeout(specTimeout))

	It("stops although its user gave it a priority class that is not there", core, Label("invariant", "no-quota-no-pod"), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.MakeRunning(ctx, w.Job("patient").Priority(w.Name("low")).GPUs("8"), 1, onH100, kit.Priority(w.Name("low"), 1))
		w.Edit(ctx, "patient", func(job *trainer.TrainJob) { job.Labels[kit.PriorityLabel] = "gone" })
		w.EventuallyTold(ctx, "patient", "PriorityClassMissing", `"gone" not found`)
		w.preempt(ctx, "patient")
		Expect(get(ctx, w, &trainer.TrainJob{}, "patient").Labels).To(HaveKeyWithValue(kit.PriorityLabel, "gone"))

		w.Finish(ctx, "urgent", "succeeded")
		w.EventuallyCondition(ctx, "patient", kueue.WorkloadAdmitted)
		w.Edit(ctx, "patient", func(job *trainer.TrainJob) { job.Labels[kit.PriorityLabel] = w.Name("low") })
		w.EventuallyRuns(ctx, "patient", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("gives way although its user resumes it again and again", core, Label("invariant", "no-quota-no-pod"), func(ctx context.Context) {
		w, pods := newRunning(ctx, "stubborn")
		first := world.UIDs(pods)
		w.keepResuming(ctx, "stubborn")
		w.Make(ctx, kit.Priority(w.Name("urgent"), 1000), w.Job("urgent").Priority(w.Name("urgent")).GPUs("8").Obj())
		Eventually(ctx, func() []corev1.Pod {
			for _, pod := range w.Pods(ctx, "stubborn") {
				if pod.Spec.NodeName != "" && !slices.Contains(first, pod.UID) {
					StopTrying("pod " + pod.Name + " was bound after its job had been preempted").Now()
				}
			}
			return w.Pods(ctx, "urgent")
		}).WithPolling(20 * time.Millisecond).Should(ConsistOf(HaveField("Spec.NodeName", Not(BeEmpty()))))
	}, SpecTimeout(specTimeout))

	It("stops and gives its quota back although its snapshot cannot be read", Label("control"), Serial, since(world.Trainer23), func(ctx context.Context) {
		w, _ := newRunning(ctx, "patient")
		w.editSnapshot(ctx, "patient", func(string) string { return "no: [runtime" })
		// It has read the snapshot before, and may remember that.
		restartManager(ctx)
		w.preempt(ctx, "patient")
		w.EventuallyAtTheGate(ctx, "patient")
		w.EventuallyTold(ctx, "patient", "PodSetsUnknown", "ConfigMap "+w.Namespace+"/patient-runtime-snapshot")
	}, SpecTimeout(specTimeout))
})

var _ = It("A TrainJob whose child Job has the name of another's holds no quota, says why, and runs when that is gone", core, Label("invariant", "nothing-waits-in-silence"), func(ctx context.Context) {
	w := newPools(ctx, "16", "0")
	renamed := w.CopyRuntime(ctx, "torch-distributed", func(spec *trainer.TrainingRuntimeSpec) {
		spec.Template.Spec.ReplicatedJobs[0].Name = "b-node"
	})
	w.MakeRunning(ctx, w.Job("a-b").GPUs("8"), 1, onH100)
	w.Make(ctx, renamed, w.Job("a").Runtime(renamed.Name).GPUs("8").Obj())
	w.EventuallyTold(ctx, "a", "CannotStart", "needs a Job a-b-node-0")
	w.EventuallyNoWorkload(ctx, "a")
	w.Finish(ctx, "a-b", "succeeded")
	Expect(w.Delete(ctx, w.Job("a-b").Obj())).To(Succeed())
	w.EventuallyRuns(ctx, "a", 1, onH100)
}, SpecTimeout(specTimeout))

// preempt has a job run that takes the place of another one, of which no pod is left then.
func (w *site) preempt(ctx context.Context, patient string) {
	w.MakeRunning(ctx, w.Job("urgent").Priority(w.Name("urgent")).GPUs("8"), 1, onH100, kit.Priority(w.Name("urgent"), 1000))
	Expect(w.Pods(ctx, patient)).To(BeEmpty())
}

// In these specs job "refused" needs all GPUs, and job "waits" some of them.
var _ = Describe("A TrainJob that cannot start", Label("control"), Serial, Ordered, ContinueOnFailure, func() {
	var w *site

	BeforeAll(func(ctx context.Context) {
		restore, err := cluster.RestartManagerWith(ctx, GinkgoWriter, map[string]any{"startTimeout": "4s"})
		DeferCleanup(restore)
		Expect(err).NotTo(HaveOccurred())
	})

	BeforeEach(func(ctx context.Context) { w = newPools(ctx, "8", "0") })

	// gaveBack waits until "refused" has made room for "waits", and told why.
	gaveBack := func(ctx context.Context, why string) {
		w.MakeRunning(ctx, w.Job("waits").GPUs("4"), 1, onH100)
		w.EventuallyNotes(ctx, "refused", "CannotStart").Should(ContainElement(SatisfyAll(HavePrefix("gives its quota back"), ContainSubstring("queues again in"), ContainSubstring(why))))
		w.EventuallyAtTheGate(ctx, "refused")
		Expect(w.Pods(ctx, "refused")).To(BeEmpty())
	}

	It("because of a ResourceQuota gives its quota back, and starts when that is gone", core, long, func(ctx context.Context) {
		limit := w.limit(ctx, requestedGPUs, "4")
		w.MakeAdmitted(ctx, w.Job("refused").GPUs("8"))
		gaveBack(ctx, "exceeded quota: limit")

		w.Finish(ctx, "waits", "succeeded")
		w.EventuallyCondition(ctx, "refused", kueue.WorkloadAdmitted)
		Expect(w.Delete(ctx, limit)).To(Succeed())
		exactlyPlaced(w.EventuallyRuns(ctx, "refused", 1, onH100))
	}, SpecTimeout(specTimeout))

	It("as a whole because of a ResourceQuota gives its quota back when the pods that came are gone", core, long, func(ctx context.Context) {
		w.limit(ctx, requestedGPUs, "4")
		w.MakeAdmitted(ctx, w.Job("refused").Nodes(2).GPUs("4"))
		gaveBack(ctx, "has not made 1 of 2 pods of child Job refused-node-0: Error creating: pods")
	}, SpecTimeout(specTimeout))

	It("again after its pods are gone gives its quota back", core, func(ctx context.Context) {
		pods := w.MakeRunning(ctx, w.Job("refused").GPUs("8"), 1, onH100)
		w.limit(ctx, requestedGPUs, "4")
		Expect(w.Delete(ctx, &pods[0])).To(Succeed())
		gaveBack(ctx, "exceeded quota: limit")
	}, SpecTimeout(specTimeout))

	It("because its JobSet may not be resumed gives its quota back", core, func(ctx context.Context) {
		w.refuse(ctx, jobSetNamed(w.Namespace, "refused"), "jobset.x-k8s.io", "jobsets", `object.metadata.name != "refused" || has(object.spec.suspend) && object.spec.suspend`)
		w.MakeAdmitted(ctx, w.Job("refused").GPUs("8"))
		// Before 2.3, the JobSet is deleted, for a runtime that may have been edited, and is missing then.
		gaveBack(ctx, "JobSet refused: ")
		Expect(w.EventNotes(ctx, "TrainJob", "refused", "CannotStart")).To(ContainElement(ContainSubstring("refused by the spec")))
	}, SpecTimeout(specTimeout))

	It("because its child Job may not be made gives its quota back, and starts when its user changes it", core, long, func(ctx context.Context) {
		probe := kit.ChildJob(jobSetNamed(w.Namespace, "refused"), "probe")
		probe.OwnerReferences, probe.Spec = nil, batchv1.JobSpec{Suspend: new(true), Template: anyPod()}
		allow := w.refuse(ctx, probe, "batch", "jobs", `object.metadata.labels["jobset.sigs.k8s.io/jobset-name"] != "refused"`)
		w.MakeAdmitted(ctx, w.Job("refused").GPUs("8"))
		gaveBack(ctx, "JobSet has not made 1 of 1 child Job of replicated job node")
		why := "refused by the spec"
		if trainerOf(ctx) < world.Trainer22 {
			// JobSet 0.10 keeps it to itself.
			why = "no event says why"
		}
		Expect(w.EventNotes(ctx, "TrainJob", "refused", "CannotStart")).To(ContainElement(ContainSubstring(why)))

		allow(ctx)
		w.Finish(ctx, "waits", "succeeded")
		w.Touch(ctx, "refused")
		exactlyPlaced(w.EventuallyRuns(ctx, "refused", 1, onH100))
	}, SpecTimeout(specTimeout))

	It("because its JobSet may not be made does not queue, and does when it may", core, long, func(ctx context.Context) {
		allow := w.refuse(ctx, jobSetNamed(w.Namespace, "refused"), "jobset.x-k8s.io", "jobsets", `object.metadata.name != "refused"`)
		w.Make(ctx, w.Job("refused").GPUs("8").Obj())
		w.EventuallyNotes(ctx, "refused", "CannotStart").Should(ConsistOf(SatisfyAll(HavePrefix("does not queue"), ContainSubstring("refused by the spec"))))
		w.MakeRunning(ctx, w.Job("waits").GPUs("4"), 1, onH100)
		Expect(w.Workload(ctx, "refused")).To(BeNil())

		allow(ctx)
		w.Finish(ctx, "waits", "succeeded")
		// Trainer tries again at once then, and later by itself.
		w.Touch(ctx, "refused")
		exactlyPlaced(w.EventuallyRuns(ctx, "refused", 1, onH100))
	}, SpecTimeout(specTimeout))

	It("because nobody makes its pods says so, gives its quota back later, and starts when somebody does", func(ctx context.Context) {
		start := stopComponent(ctx, "kube-controller-manager")
		w.MakeAdmitted(ctx, w.Job("refused").GPUs("8"))
		w.EventuallyNotes(ctx, "refused", "NotStarted").Should(ContainElement(SatisfyAll(
			HavePrefix("admitted, but without a pod after 4s: the Job controller has not made 1 of 1 pod of child Job refused-node-0"), ContainSubstring("after 20s"))))
		Expect(w.Workload(ctx, "refused").Status.Admission).NotTo(BeNil(), "it keeps its quota meanwhile")
		w.EventuallyNotes(ctx, "refused", "CannotStart").Should(ContainElement(SatisfyAll(HavePrefix("gives its quota back"), ContainSubstring("no event says why"))))
		Eventually(ctx, w.Workload).WithArguments(ctx, "refused").Should(Or(BeNil(), HaveField("Status.Admission", BeNil())))
		start(ctx)
		exactlyPlaced(w.EventuallyRuns(ctx, "refused", 1, onH100))
	}, SpecTimeout(specTimeout))
})

// editSnapshot changes what Trainer froze for a TrainJob, as everybody may who edits the namespace.
func (w *site) editSnapshot(ctx context.Context, job string, change func(string) string) {
	snapshot := get(ctx, w, &corev1.ConfigMap{}, job+"-runtime-snapshot")
	before := snapshot.Data["runtime"]
	snapshot.Data["runtime"] = change(before)
	Expect(snapshot.Data["runtime"]).NotTo(Equal(before))
	Expect(w.Update(ctx, snapshot)).To(Succeed())
}

const requestedGPUs = "requests.nvidia.com/gpu"

// limit makes a ResourceQuota of the spec's namespace.
func (w *site) limit(ctx context.Context, resource, amount string) *corev1.ResourceQuota {
	limit := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "limit"}}
	limit.Spec.Hard = kit.Amounts(resource, amount)
	w.Make(ctx, limit)
	// Without a status nothing of what it limits is let in.
	w.EventuallyIs(ctx, limit, "limit", HaveField("Status.Used", Not(BeEmpty())))
	return limit
}

// refuse has the API server refuse the spec's objects for which an expression is false, as for the probe, until allow.
func (w *site) refuse(ctx context.Context, probe client.Object, group, resource, expression string) (allow func(context.Context)) {
	return w.enforce(ctx, w.policy("refuse-"+resource, []string{group}, []string{resource}, expression), func(ctx context.Context) error {
		// Others may refuse it, too.
		err := w.Create(ctx, probe.DeepCopyObject().(client.Object), client.DryRunAll)
		if err != nil && !strings.Contains(err.Error(), "refused by the spec") {
			return nil
		}
		return err
	})
}

func anyPod() corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}},
	}}
}

func jobSetNamed(namespace, name string) *jobsetapi.JobSet {
	return &jobsetapi.JobSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: jobsetapi.JobSetSpec{ReplicatedJobs: []jobsetapi.ReplicatedJob{{
			Name: "node", Replicas: 1, Template: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: anyPod()}},
		}}},
	}
}

// keepResuming sets suspend: false on a TrainJob twenty times a second until the spec is over.
func (w *site) keepResuming(ctx context.Context, name string) {
	resuming, stop := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() {
		for tick := time.Tick(50 * time.Millisecond); resuming.Err() == nil; <-tick {
			// It may be refused, as a resume of a job that stops.
			_ = w.Patch(resuming, w.Job(name).Obj(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"suspend":false}}`)))
		}
	})
	DeferCleanup(done.Wait)
	DeferCleanup(stop)
}
