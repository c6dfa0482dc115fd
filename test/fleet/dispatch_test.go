// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("A TrainJob whose queue leads to other clusters", func() {
	It("runs in a worker with exactly that one's placement, and its status comes back", core, func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		w.runsAsAsked(ctx, w.worker1)
		w.expectNothingHere(ctx, "llm")
		Expect(w.worker2.trainJob(ctx, "llm")).To(BeNil())
		Eventually(ctx, func() []trainer.JobStatus { return w.manager.trainJob(ctx, "llm").Status.JobsStatus }).Should(
			ConsistOf(HaveField("Ready", HaveValue(BeEquivalentTo(1)))))
		Expect(w.manager.EventNotes(ctx, "TrainJob", "llm", "Started")).To(ConsistOf(ContainSubstring("runs in cluster worker1")))

		w.ends(ctx, w.worker1, "llm")
		w.worker1.EventuallyEmpty(ctx)
	}, SpecTimeout(specTimeout))

	It("fails where its run in a worker failed", core, func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		w.worker1.MakeRuntime(ctx, "torch-distributed", kit.OfOneTry)
		w.makeRunning(ctx, w.worker1, w.manager.job("llm").Runtime(w.manager.MakeRuntime(ctx, "torch-distributed", kit.OfOneTry)))
		w.worker1.Finish(ctx, "llm", "failed")
		w.eventuallyOver(ctx, "llm", trainer.TrainJobFailed)
		w.worker1.EventuallyEmpty(ctx)
	}, SpecTimeout(specTimeout))

	It("stops in its worker when it is deactivated, and runs again when it is activated", core, func(ctx context.Context) {
		w, _ := newRunning(ctx)

		w.manager.Activate(ctx, "llm", false)
		w.worker1.EventuallyEmpty(ctx)
		Eventually(ctx, func() *bool { return w.manager.trainJob(ctx, "llm").Spec.Suspend }).Should(HaveValue(BeTrue()))
		w.expectNothingHere(ctx, "llm")

		w.manager.Activate(ctx, "llm", true)
		w.eventuallyRunsOn(ctx, w.worker1, "llm")
		w.expectNothingHere(ctx, "llm")
	}, SpecTimeout(specTimeout))

	It("starts again in the same worker when the last pod of its former run is gone", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		former := w.makeRunning(ctx, w.worker1, w.manager.job("llm").EndsAfter("8s"))

		w.manager.Activate(ctx, "llm", false)
		Eventually(ctx, func() *trainer.TrainJob { return w.worker1.trainJob(ctx, "llm") }).Should(BeNil())
		w.manager.Activate(ctx, "llm", true)
		Eventually(ctx, func(g Gomega) {
			pods := slices.DeleteFunc(w.worker1.Pods(ctx, "llm"), ended)
			if len(pods) > 1 {
				StopTrying("two runs at a time").Attach("pods", pods).Now()
			}
			g.Expect(pods).To(HaveLen(1))
			g.Expect(pods[0].UID).NotTo(Equal(former.UID))
		}).Should(Succeed())
		w.eventuallyRunsOn(ctx, w.worker1, "llm")
	}, SpecTimeout(specTimeout))

	DescribeTable("leaves its worker's quota to nobody before its last pod there is gone, when it is deleted", func(ctx context.Context, strategy kueue.QueueingStrategy) {
		w := newWorld(ctx, "8", "0")
		w.worker1.EditQueue(ctx, w.worker1.Name("gpus"), func(cq *kueue.ClusterQueue) { cq.Spec.QueueingStrategy = strategy })
		w.makeRunning(ctx, w.worker1, w.lingering("llm"))
		w.worker1.MakePending(ctx, w.worker1.job("next"))

		Expect(w.manager.Delete(ctx, w.manager.trainJob(ctx, "llm"))).To(Succeed())
		w.worker1.eventuallyAdmittedAfter(ctx, "next", "llm")
		Eventually(ctx, w.worker1.Names).WithArguments(ctx, &kueue.WorkloadList{}).Should(ConsistOf(w.worker1.Workload(ctx, "next").Name))
		Eventually(ctx, func() *trainer.TrainJob { return w.worker1.trainJob(ctx, "llm") }).Should(BeNil())
		w.manager.EventuallyEmpty(ctx)
	},
		Entry("and others wait behind it", core, kueue.BestEffortFIFO, SpecTimeout(specTimeout)),
		Entry("and one waits that nobody may pass", kueue.StrictFIFO, SpecTimeout(specTimeout)),
	)

	It("keeps its worker's quota from a job that takes the Workload of its last pods for its own", func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		w.makeRunning(ctx, w.worker1, w.lingering("llm"))
		w.worker1.MakePending(ctx, w.worker1.job("next"))

		Expect(w.manager.Delete(ctx, w.manager.trainJob(ctx, "llm"))).To(Succeed())
		rest := w.worker1.eventuallyRemainder(ctx, "llm")
		thief := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: w.worker1.Namespace, Name: "thief", Labels: map[string]string{
			kit.QueueLabel: string(rest.Spec.QueueName), constants.PrebuiltWorkloadLabel: rest.Name,
		}}}
		thief.Spec.Suspend = new(true)
		thief.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "a", Image: "a"}}}
		w.worker1.Make(ctx, thief)
		w.worker1.eventuallyAdmittedAfter(ctx, "next", "llm")
	}, SpecTimeout(specTimeout))

	It("goes to the other worker when it is preempted in the first, whose quota who preempts it has when its last pod is gone", core, func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		w.worker1.Make(ctx, kit.Priority(w.worker1.Name("high"), 1000))
		w.makeRunning(ctx, w.worker1, w.lingering("llm"))

		w.worker2.setQuota(ctx, "8")
		w.worker1.Make(ctx, w.worker1.job("urgent").Priority(w.worker1.Name("high")).Obj())
		w.worker1.eventuallyAdmittedAfter(ctx, "urgent", "llm")
		w.eventuallyRunsOn(ctx, w.worker2, "llm")
		w.expectNothingHere(ctx, "llm")
		Eventually(ctx, func() *trainer.TrainJob { return w.worker1.trainJob(ctx, "llm") }).Should(BeNil())
	}, SpecTimeout(specTimeout))

	It("carries what an admission check of its worker says", core, func(ctx context.Context) {
		w := newWorld(ctx, "8", "0")
		w.worker1.expectCarriesWhatACheckSays(ctx, w)
	}, SpecTimeout(specTimeout))

	// Nobody holds that: no cluster knows of the pods of another.
	It("starts in the other worker while its pods in the first one end", func(ctx context.Context) {
		w := newWorld(ctx, "8", "8")
		w.worker2.setStopPolicy(ctx, kueue.Hold)
		former := w.makeRunning(ctx, w.worker1, w.manager.job("llm").EndsAfter("30s"))

		w.manager.Activate(ctx, "llm", false)
		Eventually(ctx, func() *trainer.TrainJob { return w.worker1.trainJob(ctx, "llm") }).Should(BeNil())
		// Its quota is free there when its last pod is gone.
		w.worker1.setStopPolicy(ctx, kueue.Hold)
		w.worker2.setStopPolicy(ctx, kueue.None)
		w.manager.Activate(ctx, "llm", true)
		w.eventuallyRunsOn(ctx, w.worker2, "llm")
		Expect(w.worker1.Pods(ctx, "llm")).To(ConsistOf(HaveField("UID", former.UID)), "the former run has ended before")
		Expect(w.worker1.Delete(ctx, &former, client.GracePeriodSeconds(0))).To(Succeed())
		w.worker1.EventuallyEmpty(ctx)
		w.expectNothingHere(ctx, "llm")
	}, SpecTimeout(specTimeout))

	It("stops in its worker when its queue in the manager cluster is drained, and resumes with that", core, func(ctx context.Context) {
		w, _ := newRunning(ctx)

		w.manager.setStopPolicy(ctx, kueue.HoldAndDrain)
		w.worker1.EventuallyEmpty(ctx)
		w.manager.setStopPolicy(ctx, kueue.None)
		w.eventuallyRunsOn(ctx, w.worker1, "llm")
	}, SpecTimeout(specTimeout))
})

var _ = It("With the incremental dispatcher a TrainJob goes to the first worker alone while that has quota", Serial, long, func(ctx context.Context) {
	restartKueueWith(ctx, fleet.Manager, map[string]any{"multiKueue": map[string]any{
		"dispatcherName":              "kueue.x-k8s.io/multikueue-dispatcher-incremental",
		"incrementalDispatcherConfig": map[string]any{"stepSize": 1},
		"workerLostTimeout":           "10s",
		"externalFrameworks":          []map[string]any{{"name": "TrainJob.v1alpha1.trainer.kubeflow.org"}},
	}})
	w := newWorld(ctx, "8", "8")
	w.makeRunning(ctx, w.worker1, w.manager.job("llm"))
	w.expectNothingHere(ctx, "llm")
	Expect(w.manager.Workload(ctx, "llm").Status.NominatedClusterNames).To(BeEmpty())
	Expect(w.worker2.Names(ctx, &kueue.WorkloadList{})).To(BeEmpty())
	w.ends(ctx, w.worker1, "llm")
}, SpecTimeout(specTimeout))

// expectCarriesWhatACheckSays runs a TrainJob in a worker behind an admission check, whose controller this is.
func (s *site) expectCarriesWhatACheckSays(ctx context.Context, w *sites) {
	s.ControlledCheck(ctx)
	s.eventuallyOpen(ctx)

	w.manager.Make(ctx, w.manager.job("llm").Obj())
	Eventually(ctx, func(g Gomega) {
		list := world.All(ctx, g, s, &kueue.WorkloadList{}, client.InNamespace(s.Namespace))
		g.Expect(list.Items).To(HaveLen(1))
		wl := &list.Items[0]
		g.Expect(wl.Status.AdmissionChecks).To(ConsistOf(HaveField("State", kueue.CheckStatePending)))
		wl.Status.AdmissionChecks[0].State = kueue.CheckStateReady
		wl.Status.AdmissionChecks[0].PodSetUpdates = []kueue.PodSetUpdate{{Name: "node", Labels: map[string]string{"example.com/site": "west"}}}
		g.Expect(s.Status().Update(ctx, wl)).To(Succeed())
	}).Should(Succeed())
	Expect(w.eventuallyRunsOn(ctx, s, "llm").Labels).To(HaveKeyWithValue("example.com/site", "west"))
	w.ends(ctx, s, "llm")
}

// runsAsAsked has TrainJob llm, with a patch of its user's, run in a worker.
func (w *sites) runsAsAsked(ctx context.Context, worker *site) {
	pod := w.makeRunning(ctx, worker, w.manager.job("llm").PodAnnotations("example.com/me", "example.com/mine", "kept", "node"))
	Expect(pod.Annotations).To(HaveKeyWithValue("example.com/mine", "kept"))
	Expect(entries(worker.trainJob(ctx, "llm"))).To(Equal([]string{"example.com/me", patch.Manager}))
}

// lingering is a TrainJob of the manager cluster whose pods take a while to end, and longer than the
// Workload that is charged for them may be without a charge.
func (w *sites) lingering(name string) *kit.TrainJobBuilder {
	return w.manager.job(name).EndsAfter("15s")
}

// eventuallyAdmittedAfter waits until a TrainJob has quota, which it may not have while a pod of another one is there.
func (s *site) eventuallyAdmittedAfter(ctx context.Context, job, former string) {
	Eventually(ctx, func(g Gomega) {
		g.Expect(s.Workload(ctx, job)).To(And(Not(BeNil()), world.True(kueue.WorkloadQuotaReserved)))
		if pods := slices.DeleteFunc(s.Pods(ctx, former), ended); len(pods) > 0 {
			StopTrying("quota that pods are left on was given away").Attach("pods", pods).Now()
		}
	}).WithPolling(100 * time.Millisecond).Should(Succeed())
}

// eventuallyRemainder waits for the Workload that is charged for the pods which are left of a TrainJob.
func (s *site) eventuallyRemainder(ctx context.Context, job string) *kueue.Workload {
	var list kueue.WorkloadList
	Eventually(ctx, func(g Gomega) []kueue.Workload {
		return world.All(ctx, g, s, &list, client.InNamespace(s.Namespace), client.MatchingLabels{placeholder.Label: job}).Items
	}).WithPolling(100 * time.Millisecond).Should(ConsistOf(world.True(kueue.WorkloadQuotaReserved)))
	return &list.Items[0]
}

func (s *site) setStopPolicy(ctx context.Context, policy kueue.StopPolicy) {
	s.SetStopPolicy(ctx, kit.ClusterQueue(s.Name("gpus")), policy)
	if policy != kueue.None {
		s.EventuallyIs(ctx, &kueue.ClusterQueue{}, s.Name("gpus"), world.Condition(kueue.ClusterQueueActive, metav1.ConditionFalse))
	}
}

func (s *site) setQuota(ctx context.Context, gpus string) { s.SetQuota(ctx, s.Name("gpus"), gpus) }

// The fleet's Kueue takes a worker for lost after ten seconds.
var _ = Describe("A TrainJob of a worker that is lost", Serial, long, func() {
	It("comes back in the other one, and has one run again when the worker is back", func(ctx context.Context) {
		w := newWorld(ctx, "8", "8")
		w.worker2.setStopPolicy(ctx, kueue.Hold)
		w.makeRunning(ctx, w.worker1, w.manager.job("llm"))
		w.worker2.setStopPolicy(ctx, kueue.None)

		Expect(w.worker1.Cluster.Control(ctx, "kill", "kube-apiserver", GinkgoWriter)).To(Succeed())
		DeferCleanup(w.worker1.revive)
		w.eventuallyRunsOn(ctx, w.worker2, "llm")
		w.expectNothingHere(ctx, "llm")

		w.worker1.revive(ctx)
		// Which of the two is Kueue's to say. It tries to reach a lost worker less and less often.
		var running []*site
		Eventually(ctx, func() []*site {
			running = slices.DeleteFunc(w.workers(), func(worker *site) bool { return len(worker.Pods(ctx, "llm")) == 0 })
			return running
		}).WithTimeout(specTimeout).Should(HaveLen(1))
		w.expectNothingHere(ctx, "llm")
		w.ends(ctx, running[0], "llm")
	}, SpecTimeout(2*specTimeout))
})

// revive starts an API server again, and kueue-trainer, which ended when it could not renew its lease.
func (s *site) revive(ctx context.Context) {
	Expect(s.Cluster.Control(ctx, "start", "kube-apiserver", GinkgoWriter)).To(Succeed())
	Expect(s.Cluster.Repair(ctx, GinkgoWriter)).To(Succeed())
}

var _ = It("A TrainJob whose runtime is another one in a worker says which worker is out of sync, and there in what", func(ctx context.Context) {
	w := newWorld(ctx, "8", "0")
	w.worker1.MakeRuntime(ctx, "torch-distributed", kit.OfNodes(2))
	w.manager.Make(ctx, w.manager.job("llm").Runtime(w.manager.MakeRuntime(ctx, "torch-distributed", kit.OfNodes(1))).Obj())
	w.manager.EventuallyTold(ctx, "llm", "AdmissionCheckRetries", "worker1", "out of sync")
	w.worker1.EventuallyTold(ctx, "llm", "PrebuiltWorkloadUnusable", `PodSet "node" has 2 pods in the TrainJob, 1 in the Workload`)
	Expect(w.worker1.Pods(ctx, "llm")).To(BeEmpty())
}, SpecTimeout(specTimeout))
