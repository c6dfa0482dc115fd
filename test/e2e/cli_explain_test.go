// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// explained runs "explain NAME -o json" and gives what it says.
func (w *site) explained(ctx context.Context, g Gomega, job string, flags ...string) explain.Explanation {
	return printed[explain.Explanation](ctx, g, append([]string{"explain", job, "-n", w.Namespace}, flags...)...)
}

// eventuallyExplained waits until a TrainJob is in a state, and gives all that is said.
func (w *site) eventuallyExplained(ctx context.Context, job string, phase explain.Phase, reason string) explain.Explanation {
	var e explain.Explanation
	Eventually(ctx, func(g Gomega) {
		e = w.explained(ctx, g, job)
		g.Expect(e.State.Phase).To(Equal(phase), e.State.Message)
		g.Expect(e.State.Reason).To(Equal(reason), e.State.Message)
	}).Should(Succeed())
	return e
}

// eventuallyKueueSays waits for a word in what Kueue writes on a Workload that waits: our
// reason has to be Kueue's.
func (w *site) eventuallyKueueSays(ctx context.Context, job, text string) {
	Eventually(ctx, func(g Gomega) {
		g.Expect(w.explained(ctx, g, job).Queue.KueueSays).To(ContainSubstring(text))
	}).Should(Succeed())
}

const trainJobHead = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\n"

// forecast runs "explain -f" on a TrainJob and returns what it says.
func (w *site) forecast(ctx context.Context, job *kit.TrainJobBuilder) explain.Explanation {
	file := must(yaml.Marshal(job.Obj()))
	stdout, stderr, code := pluginReading(ctx, trainJobHead+string(file), "explain", "-f", "-", "-o", "json")
	Expect(code).To(BeZero(), stderr)
	var all []explain.Explanation
	Expect(json.Unmarshal([]byte(stdout), &all)).To(Succeed())
	Expect(all).To(HaveLen(1))
	return all[0]
}

// reasonOf returns the first reason of a verdict on a flavor.
func reasonOf(e explain.Explanation, flavor string) explain.Reason {
	for _, v := range e.Flavors {
		if v.Flavor == flavor {
			Expect(v.Reasons).NotTo(BeEmpty(), "the verdict on %s", flavor)
			return v.Reasons[0]
		}
	}
	Fail("there is no verdict on flavor " + flavor)
	return explain.Reason{}
}

var _ = Describe("kubectl trainjob explain", func() {
	It("tells what quota is missing, the position, and Kueue's own words", func(ctx context.Context) {
		w := newPools(ctx, "16", "8")
		w.MakeRunning(ctx, w.Job("holds").GPUs("8"), 1, onH100)
		w.MakePending(ctx, w.Job("ahead").Priority(w.Name("urgent")).Nodes(3).GPUs("8"), kit.Priority(w.Name("urgent"), 1000))
		w.Make(ctx, w.Job("waits").Nodes(2).GPUs("8").Obj())

		e := w.eventuallyExplained(ctx, "waits", explain.Waiting, string(explain.InUse))
		Expect(e.State.Message).To(ContainSubstring("needs 16 GPUs, flavor %s: 8 of 16 GPUs are free", w.Name("h100")))
		Expect(e.State.Stuck).To(BeFalse())
		// Kueue is asked first, and answers where its visibility API is served.
		Eventually(ctx, func(g Gomega) *explain.Position { return w.explained(ctx, g, "waits").Queue.Position }).Should(HaveValue(Or(
			Equal(explain.Position{Place: 2, Pending: 2, Ahead: []string{w.Namespace + "/ahead"}, Source: explain.Computed}),
			Equal(explain.Position{Place: 2, Pending: 2, Source: explain.Visibility}))))
		Expect(reasonOf(e, w.Name("a100")).Code).To(Equal(explain.TooMuch))
		w.eventuallyKueueSays(ctx, "waits", "insufficient unused quota")
		Expect(w.eventuallyExplained(ctx, "ahead", explain.Waiting, string(explain.TooMuch)).State.Stuck).To(BeTrue())
	}, SpecTimeout(specTimeout))

	It("tells of a container that crashes over and over, in its back-off and between, and how to read its last words", func(ctx context.Context) {
		w, pods := newRunning(ctx, "llm")
		crashed := corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "CUDA error", StartedAt: metav1.Now(), FinishedAt: metav1.Now()}
		for what, now := range map[string]corev1.ContainerState{
			"back-off": {Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
			"a run":    {Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(time.Now().Add(10 * time.Second))}},
		} {
			By(what)
			pod := get(ctx, w, &corev1.Pod{}, pods[0].Name)
			status := &pod.Status.ContainerStatuses[0]
			status.RestartCount, status.State, status.LastTerminationState = 4, now, corev1.ContainerState{Terminated: &crashed}
			Expect(w.Status().Update(ctx, pod)).To(Succeed())
			e := w.eventuallyExplained(ctx, "llm", explain.Starting, "CrashLoopBackOff")
			Expect(e.State.Message).To(ContainSubstring("was started again 4 times; the last run ended with exit code 1: CUDA error"))
			Expect(e.State.Remedy).To(Equal("kubectl trainjob logs -n " + w.Namespace + " llm --previous"))
		}
	}, SpecTimeout(specTimeout))

	It("names a priority class that is not there, as doctor and the event do, until it is", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		urgent := kit.Priority(w.Name("urgent"), 1000)
		w.Make(ctx, w.Job("waits").Priority(urgent.Name).GPUs("8").Obj())
		w.EventuallyTold(ctx, "waits", "PriorityClassMissing", strconv.Quote(urgent.Name)+" not found")
		state := w.eventuallyExplained(ctx, "waits", explain.Unqueued, "PriorityClassMissing").State
		Expect(state.Message).To(Equal("is not queued: it names WorkloadPriorityClass " + urgent.Name + ", which does not exist"))
		Expect(state.Stuck).To(BeTrue())
		doctor, _, _ := plugin(ctx, "doctor", "-n", w.Namespace)
		Expect(doctor).To(ContainSubstring("it names WorkloadPriorityClass " + urgent.Name + ", which does not exist"))

		w.Make(ctx, urgent)
		w.EventuallyRuns(ctx, "waits", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("tells in one table of all that do not run yet", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.MakeRunning(ctx, w.Job("runs").GPUs("8"), 1, onH100)
		w.MakePending(ctx, w.Job("waits").GPUs("8"))
		w.Make(ctx, w.Job("misspelt").Queue("no-such").GPUs("8").Obj())
		for _, args := range [][]string{{"explain", "-n", w.Namespace}, {"explain", "-A"}} {
			Eventually(ctx, func(g Gomega) {
				table := said(ctx, g, args...)
				g.Expect(table).To(MatchRegexp(`(?m)^%s +misspelt +LocalQueueMissing +names LocalQueue no-such, .* +create it, or label the job with one that exists: queue$`, w.Namespace))
				g.Expect(table).To(MatchRegexp(`(?m)^%s +waits +QuotaInUse +waits in queue queue .* +wait until others in ClusterQueue`, w.Namespace))
				g.Expect(table).NotTo(MatchRegexp(`(?m)^%s +runs `, w.Namespace))
			}).Should(Succeed())
		}
		Expect(printed[[]explain.Explanation](ctx, Default, "explain", "-n", w.Namespace)).To(HaveLen(2))
	}, SpecTimeout(specTimeout))

	It("tells what another priority would bring, and that comes true", func(ctx context.Context) {
		w := newWorld(ctx)
		cq := kit.ClusterQueue(w.Name("gpus"), kit.Quota{Flavor: w.Name("h100"), GPUs: "8"})
		cq.Spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
		w.Make(ctx, w.Flavor("h100", onH100), cq, kit.LocalQueue(w.Namespace, "queue", cq.Name), kit.Priority(w.Name("low"), 0), kit.Priority(w.Name("urgent"), 1000))
		w.MakeRunning(ctx, w.Job("runs").GPUs("8"), 1, onH100)
		w.MakePending(ctx, w.Job("waits").Priority(w.Name("low")).GPUs("8"))

		e := w.explained(ctx, Default, "waits", "--priority", w.Name("urgent"))
		Expect(e.State.Reason).To(Equal("Preempts"), e.State.Message)
		Expect(e.State.Message).To(HavePrefix("with priority 1000 (%s) asks for 8 GPUs and would get them", w.Name("urgent")))
		Expect(e.Preempts).To(ConsistOf(HaveField("Job", w.Namespace+"/runs")))
		Expect(w.explained(ctx, Default, "waits", "--priority", w.Name("low")).State.Reason).To(Equal(string(explain.InUse)))
		Expect(refused(ctx, 1, "explain", "runs", "-n", w.Namespace, "--priority", w.Name("urgent"))).To(ContainSubstring("does not wait for quota (Running)"))
		Expect(refused(ctx, 1, "explain", "waits", "-n", w.Namespace, "--priority", "no-such")).To(ContainSubstring("there is no WorkloadPriorityClass no-such"))

		w.Edit(ctx, "waits", func(job *trainer.TrainJob) { job.Labels[kit.PriorityLabel] = w.Name("urgent") })
		w.EventuallyRuns(ctx, "waits", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("tells of a borrowing limit", func(ctx context.Context) {
		w := newWorld(ctx)
		w.Make(ctx, w.Flavor("h100", onH100))
		borrower := kit.ClusterQueue(w.Name("gpus"), kit.Quota{Flavor: w.Name("h100"), GPUs: "8"})
		borrower.Spec.ResourceGroups[0].Flavors[0].Resources[0].BorrowingLimit = quantity("4")
		lender := kit.ClusterQueue(w.Name("lender"), kit.Quota{Flavor: w.Name("h100"), GPUs: "24"})
		for _, cq := range []*kueue.ClusterQueue{borrower, lender} {
			cq.Spec.CohortName = kueue.CohortReference(w.Name("cohort"))
		}
		w.Make(ctx, borrower, lender, kit.LocalQueue(w.Namespace, "queue", borrower.Name), w.Job("big").Nodes(2).GPUs("8").Obj())
		e := w.eventuallyExplained(ctx, "big", explain.Waiting, string(explain.Borrowing))
		Expect(e.State.Stuck).To(BeTrue())
		Expect(reasonOf(e, w.Name("h100")).Remedy).To(ContainSubstring("raise the borrowingLimit of flavor %s in ClusterQueue %s", w.Name("h100"), borrower.Name))
		w.eventuallyKueueSays(ctx, "big", "maximum capacity (12)")
	}, SpecTimeout(specTimeout))

	It("tells of a taint that nobody tolerates", func(ctx context.Context) {
		w := newWorld(ctx)
		tainted := w.Flavor("h100", onH100)
		tainted.Spec.NodeTaints = append(tainted.Spec.NodeTaints, corev1.Taint{Key: "example.com/maintenance", Effect: corev1.TaintEffectNoSchedule})
		w.Pool(ctx, tainted, "8")
		w.Make(ctx, w.Job("waits").GPUs("8").Obj())
		e := w.eventuallyExplained(ctx, "waits", explain.Waiting, string(explain.Taint))
		Expect(reasonOf(e, tainted.Name).Message).To(ContainSubstring("taint example.com/maintenance:NoSchedule"))
		w.eventuallyKueueSays(ctx, "waits", "untolerated taint")
	}, SpecTimeout(specTimeout))

	It("tells of a node selector that matches no flavor, and who set it", func(ctx context.Context) {
		w := newPools(ctx, "8", "8")
		w.Make(ctx, w.Job("waits").GPUs("8").NodeSelector(map[string]string{kit.ProductLabel: "NVIDIA-B200"}).Obj())
		e := w.eventuallyExplained(ctx, "waits", explain.Waiting, string(explain.Selector))
		Expect(reasonOf(e, w.Name("h100")).Message).To(ContainSubstring("node selector %s=NVIDIA-B200 of %s", kit.ProductLabel, userPatch(ctx)))
		w.eventuallyKueueSays(ctx, "waits", "doesn't match node affinity")
	}, SpecTimeout(specTimeout))

	It("tells of a topology that does not fit", func(ctx context.Context) {
		w := newWorld(ctx)
		hosts := w.Flavor("h100", onH100)
		hosts.Spec.TopologyName = ptr.To(kueue.TopologyReference(w.Name("hosts")))
		w.Make(ctx, kit.Topology(w.Name("hosts"), corev1.LabelHostname))
		w.Pool(ctx, hosts, "16")
		w.Make(ctx, asking(w.Job("waits").Nodes(2).GPUs("8"), "node", required(corev1.LabelHostname)).Obj())
		e := w.eventuallyExplained(ctx, "waits", explain.Waiting, string(explain.Topology))
		Expect(e.State.Stuck).To(BeTrue(), "two pods of 8 GPUs never fit on one node")
		// How many nodes there are changes with other specs.
		Eventually(ctx, func(g Gomega) {
			now := w.explained(ctx, g, "waits")
			g.Expect(now.Queue.KueueSays).To(ContainSubstring(reasonOf(now, hosts.Name).Message))
		}).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("tells of stopped queues and of deactivation, with the command that fixes it", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.SetStopPolicy(ctx, w.LocalQueue(), kueue.Hold)
		w.Make(ctx, w.Job("waits").GPUs("8").Obj())
		e := w.eventuallyExplained(ctx, "waits", explain.Waiting, "LocalQueueStopped")
		shell(ctx, e.State.Remedy)

		w.EventuallyRuns(ctx, "waits", 1, onH100)
		w.Activate(ctx, "waits", false)
		e = w.eventuallyExplained(ctx, "waits", explain.Deactivated, "Deactivated")
		Expect(e.State.Stuck).To(BeTrue())
		shell(ctx, e.State.Remedy)
		w.eventuallyExplained(ctx, "waits", explain.Running, "Running")
	}, SpecTimeout(specTimeout))

	It("tells which admission check is open", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		check := w.MakeCheck(ctx)
		w.DemandCheck(ctx, check.Name)
		w.Make(ctx, w.Job("waits").GPUs("8").Obj())
		e := w.eventuallyExplained(ctx, "waits", explain.Waiting, "ClusterQueueInactive")
		Expect(reasonOf(e, w.Name("h100")).Code).To(Equal(explain.Check))

		w.ActivateCheck(ctx, check)
		e = w.eventuallyExplained(ctx, "waits", explain.Reserved, "AdmissionCheckPending")
		Expect(e.State.Message).To(ContainSubstring("admission check %s is Pending", check.Name))
	}, SpecTimeout(specTimeout))

	It("tells who preempted a job, and who set what of a running one", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		tolerates := corev1.Toleration{Key: "example.com/spot", Operator: corev1.TolerationOpExists}
		w.MakeRunning(ctx, w.Job("patient").GPUs("8"), 1, onH100, kit.Priority(w.Name("urgent"), 1000))
		w.MakeRunning(ctx, w.Job("urgent").Priority(w.Name("urgent")).GPUs("8").Tolerate(tolerates), 1, onH100)
		e := w.eventuallyExplained(ctx, "patient", explain.Waiting, string(explain.InUse))
		Expect(e.State.Message).To(ContainSubstring("it was preempted by %s/urgent", w.Namespace))

		e = w.eventuallyExplained(ctx, "urgent", explain.Running, "Running")
		Expect(e.Placement).To(ContainElements(
			And(HaveField("Field", "nodeSelector["+kit.ProductLabel+"]"), HaveField("SetBy", "kueue.x-k8s.io/manager"), HaveField("Value", BeEquivalentTo(`"`+kit.H100+`"`))),
			And(HaveField("Field", "tolerations"), HaveField("SetBy", "kueue.x-k8s.io/manager"), HaveField("Overrode", ContainElement(HaveField("SetBy", userPatch(ctx))))),
		))
		Expect(said(ctx, Default, "explain", "urgent", "-n", w.Namespace)).
			To(ContainSubstring("TrainJob %s/urgent runs with 1 pod in queue queue", w.Namespace))
	}, SpecTimeout(specTimeout))

	It("tells which flavors could take a manifest, whose runtime stands in the same file", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		file := fmt.Sprintf(manifestWithRuntime, kit.QueueLabel)
		stdout, stderr, code := pluginReading(ctx, file, "explain", "-f", "-", "-n", w.Namespace)
		Expect(code).To(BeZero(), stderr)
		Expect(stdout).To(ContainSubstring("TrainJob %s/new asks for 8 GPUs and could have them now in queue queue (ClusterQueue %s): node on flavor %s", w.Namespace, w.Name("gpus"), w.Name("h100")))

		w.MakeRunning(ctx, w.Job("holds").GPUs("8"), 1, onH100)
		Eventually(ctx, func(g Gomega) {
			stdout, _, _ := pluginReading(ctx, file, "explain", "-f", "-", "-n", w.Namespace)
			g.Expect(stdout).To(ContainSubstring("would wait in queue queue (ClusterQueue %s): asks for 8 GPUs, flavor %s: 0 of 8 GPUs are free", w.Name("gpus"), w.Name("h100")))
		}).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("tells a user who sees only a namespace what was not to be seen", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.MakePending(ctx, w.Job("too-big").Nodes(2).GPUs("8"))
		w.letSee(ctx, "alice")
		Eventually(ctx, func(g Gomega) {
			e := w.explained(ctx, g, "too-big", "--as", "alice")
			g.Expect(e.State.Message).To(ContainSubstring("Kueue says: couldn't assign flavors"))
			g.Expect(e.Unseen).To(ContainElements("nodes", "clusterqueues.kueue.x-k8s.io", "workloads.kueue.x-k8s.io"))
		}).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("forecasts that an urgent manifest preempts, and whom", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.MakeRunning(ctx, w.Job("patient").GPUs("8"), 1, onH100, kit.Priority(w.Name("urgent"), 1000))
		e := w.forecast(ctx, w.Job("urgent").Priority(w.Name("urgent")).GPUs("8"))
		Expect(e.State.Reason).To(Equal("Preempts"), e.State.Message)
		Expect(e.Preempts).To(ConsistOf(explain.Preempted{Job: w.Namespace + "/patient", ClusterQueue: w.Name("gpus"), Reason: kueue.InClusterQueueReason}))
	}, SpecTimeout(specTimeout))

	DescribeTable("tells who cannot make what", func(ctx context.Context, limited string, phase explain.Phase, reason string) {
		w := newPools(ctx, "8", "0")
		w.Make(ctx, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "none"},
			Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceName(limited): *quantity("0")}}})
		Eventually(ctx, func() corev1.ResourceList {
			return get(ctx, w, &corev1.ResourceQuota{}, "none").Status.Hard
		}).ShouldNot(BeEmpty())
		w.Make(ctx, w.Job("refused").GPUs("8").Obj())
		e := w.eventuallyExplained(ctx, "refused", phase, reason)
		Expect(e.State.Message).To(ContainSubstring("exceeded quota: none"))
		Expect(e.State.Stuck).To(BeTrue())
		Expect(e.State.Remedy).To(ContainSubstring("raise the ResourceQuota that the message names"))
		w.eventuallyFinds(ctx, map[explain.Phase]string{explain.Unqueued: "warning", explain.Starting: "error"}[phase], "TrainJobStuck", "TrainJob "+w.Namespace+"/refused")
	},
		Entry("the JobSet", "count/jobsets.jobset.x-k8s.io", explain.Unqueued, "JobSetRefused", SpecTimeout(specTimeout)),
		Entry("the Jobs", "count/jobs.batch", explain.Starting, "JobsRefused", SpecTimeout(specTimeout)),
		Entry("the pods", "pods", explain.Starting, "PodsRefused", SpecTimeout(specTimeout)),
	)

	It("tells that a new job waits for its JobSet, without which it queues soon", Label("control"), func(ctx context.Context) {
		localOnly("the API server has to reach a webhook of this process")
		w := newPools(ctx, "8", "0")
		_, letThrough := w.holdJobSets(ctx, admissionregistrationv1.Create, func(*admissionv1.AdmissionRequest) bool { return true })
		w.Make(ctx, w.Job("early").GPUs("8").Obj())
		w.eventuallyExplained(ctx, "early", explain.Unqueued, "AwaitsJobSet")
		w.EventuallyTold(ctx, "early", "NotPrepared", fmt.Sprintf("in %s; the job queues without it", config.WaitForJobSet))
		w.EventuallyCondition(ctx, "early", kueue.WorkloadAdmitted)
		letThrough()
		w.EventuallyRuns(ctx, "early", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("tells of a volume claim that is missing", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.Make(ctx, w.Job("waits").GPUs("8").PodPatch("example.com/user", "node", trainer.PodTemplatePatch{Spec: &trainer.PodSpecPatch{Volumes: []corev1.Volume{{
			Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "nowhere"}},
		}}}}).Obj())
		e := w.eventuallyExplained(ctx, "waits", explain.Starting, "VolumeClaimMissing")
		Expect(e.State.Message).To(ContainSubstring(`persistentvolumeclaim "nowhere" not found`))
	}, SpecTimeout(specTimeout))

	It("tells of pods that are larger than any node, before they are made and after", func(ctx context.Context) {
		w := newPools(ctx, "16", "0")
		large := w.Job("large").GPUs("16")
		Expect(w.forecast(ctx, large).State).To(And(HaveField("Reason", string(explain.TooLarge)), HaveField("Stuck", true)))
		w.Make(ctx, large.Obj())
		w.eventuallyExplained(ctx, "large", explain.Starting, string(explain.TooLarge))
	}, SpecTimeout(specTimeout))

	It("tells of a topology request in a queue that has none", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		job := asking(w.Job("waits").GPUs("8"), "node", required(corev1.LabelHostname))
		Expect(w.forecast(ctx, job).State).To(And(HaveField("Reason", string(explain.Topology)), HaveField("Stuck", true)))
		w.Make(ctx, job.Obj())
		w.eventuallyExplained(ctx, "waits", explain.Waiting, string(explain.Topology))
	}, SpecTimeout(specTimeout))

	It("tells of a prebuilt Workload that is missing", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		job := w.Job("waits").GPUs("8")
		metav1.SetMetaDataLabel(&job.ObjectMeta, constants.PrebuiltWorkloadLabel, "nowhere")
		w.Make(ctx, job.Obj())
		w.EventuallyTold(ctx, "waits", "PrebuiltWorkloadUnusable", "nowhere is not there")
		e := w.eventuallyExplained(ctx, "waits", explain.Unqueued, "PrebuiltMissing")
		Expect(e.State.Stuck).To(BeTrue(), e.State.Message)
	}, SpecTimeout(specTimeout))

	It("copes with the rights of Kueue's batch users", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.Make(ctx, kit.RoleBinding(w.Namespace, "kueue-batch-user-role", "alice"))
		w.MakeRunning(ctx, w.Job("runs").GPUs("8"), 1, onH100)
		Eventually(ctx, func(g Gomega) {
			e := w.explained(ctx, g, "runs", "--as", "alice")
			g.Expect(e.State.Phase).To(Equal(explain.Running), e.State.Message)
			g.Expect(e.Unseen).To(ContainElements("clusterqueues.kueue.x-k8s.io", "pods of namespace "+w.Namespace))
		}).Should(Succeed())

		file := must(yaml.Marshal(w.Job("new").GPUs("8").Obj()))
		stdout, stderr, code := pluginReading(ctx, trainJobHead+string(file), "explain", "-f", "-", "--as", "alice")
		Expect(code).To(Equal(exit.Unseen), stdout+stderr)
		Expect(stdout).To(ContainSubstring("cannot be described, because you may not read its runtime"))
	}, SpecTimeout(specTimeout))

	It("does what its page in the docs says", Serial, docsPage, since("2.2"), func(ctx context.Context) {
		blocks := docsCommands("docs/plugin.md#explain")
		last := len(blocks) - 1
		DeferCleanup(func(ctx context.Context) { shell(ctx, blocks[last]) })
		sentences := map[string]string{
			"explain -f docs/samples/llm.yaml\n": "TrainJob team-a/llm would wait in queue gpus (ClusterQueue gpus): asks for 32 GPUs, flavor h100: 8 of 32 GPUs are free",
			"explain llm -n team-a\n":            "TrainJob team-a/llm waits in queue gpus (ClusterQueue gpus): needs 32 GPUs, flavor h100: 8 of 32 GPUs are free",
			"explain vit -n team-a\n":            "TrainJob team-a/vit runs with 3 pods in queue gpus (ClusterQueue gpus): 24 GPUs, node on flavor h100",
		}
		shell(ctx, blocks[0])
		user := pageUser(ctx, "team-a")
		for _, block := range blocks[1:last] {
			Eventually(ctx, func(g Gomega) {
				stdout, stderr, code := runShell(ctx, asUser(user, block))
				g.Expect(code).To(BeZero(), "%s\n%s", block, stderr)
				g.Expect(stdout).NotTo(MatchRegexp(`Not seen:.*(pods|workloads|queues|flavors|nodes)`))
				for command, sentence := range sentences {
					if strings.Contains(block, command) {
						g.Expect(stdout).To(ContainSubstring(sentence))
					}
				}
			}).Should(Succeed())
		}
	}, SpecTimeout(specTimeout))

	It("refuses what it cannot explain, with the remedy", func(ctx context.Context) {
		w := newWorld(ctx)
		Expect(refused(ctx, 1, "explain", "nobody", "-n", w.Namespace)).To(ContainSubstring("there is no TrainJob nobody in namespace %s", w.Namespace))
	}, SpecTimeout(specTimeout))
})

// userPatch is what the only patch of a user is called: entries of Trainer 2.1 have no owner.
func userPatch(ctx context.Context) string {
	if trainerOf(ctx) == "2.1" {
		return "podTemplateOverrides[0]"
	}
	return "example.com/user"
}

const manifestWithRuntime = `
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: new, labels: {%s: queue}}
spec:
  runtimeRef: {name: mine, kind: TrainingRuntime}
  trainer: {resourcesPerNode: {limits: {nvidia.com/gpu: 8}}}
---
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: mine}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            template:
              spec:
                containers: [{name: node, image: torch}]
`

// letSee lets a user look at a namespace, and at nothing of the cluster around it.
func (w *site) letSee(ctx context.Context, user string) {
	w.Make(ctx,
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: user}, Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{"trainer.kubeflow.org", "kueue.x-k8s.io", "jobset.x-k8s.io", "batch", ""}, Resources: []string{
				"trainjobs", "trainingruntimes", "localqueues", "workloads", "jobsets", "jobs", "pods", "events", "configmaps",
			}, Verbs: []string{"get", "list", "watch"}},
		}},
		kit.RoleBinding(w.Namespace, "Role/"+user, user),
	)
}
