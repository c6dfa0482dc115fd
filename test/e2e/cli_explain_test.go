// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strconv"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

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

// eventuallyKueueSays waits for a word in what Kueue writes on a Workload that waits: our reason has to be Kueue's.
func (w *site) eventuallyKueueSays(ctx context.Context, job, text string) {
	Eventually(ctx, func(g Gomega) string { return w.explained(ctx, g, job).Queue.KueueSays }).Should(ContainSubstring(text))
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
		Expect(e.Flavors).To(ContainElement(And(HaveField("Flavor", w.Name("a100")), HaveField("Reasons", ContainElement(HaveField("Code", explain.TooMuch))))))
		w.eventuallyKueueSays(ctx, "waits", "insufficient unused quota")
		Expect(w.eventuallyExplained(ctx, "ahead", explain.Waiting, string(explain.TooMuch)).State.Stuck).To(BeTrue())
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

	It("tells what another priority would bring, and that comes true", func(ctx context.Context) {
		w := newWorld(ctx)
		w.Pool(ctx, w.Flavor("h100", onH100), "8")
		w.MakeRunning(ctx, w.Job("runs").GPUs("8"), 1, onH100, kit.Priority(w.Name("low"), 0), kit.Priority(w.Name("urgent"), 1000))
		w.MakePending(ctx, w.Job("waits").Priority(w.Name("low")).GPUs("8"))

		e := w.explained(ctx, Default, "waits", "--priority", w.Name("urgent"))
		Expect(e.State.Reason).To(Equal("Preempts"), e.State.Message)
		Expect(e.State.Message).To(HavePrefix("with priority 1000 (%s) asks for 8 GPUs and would get them", w.Name("urgent")))
		Expect(e.Preempts).To(ConsistOf(HaveField("Job", w.Namespace+"/runs")))
		Expect(w.explained(ctx, Default, "waits", "--priority", w.Name("low")).State.Reason).To(Equal(string(explain.InUse)))
		Expect(complaint(ctx, 1, "explain", "runs", "-n", w.Namespace, "--priority", w.Name("urgent"))).To(ContainSubstring("does not wait for quota (Running)"))
		Expect(complaint(ctx, 1, "explain", "waits", "-n", w.Namespace, "--priority", "no-such")).To(ContainSubstring("there is no WorkloadPriorityClass no-such"))

		w.Edit(ctx, "waits", func(job *trainer.TrainJob) { job.Labels[kit.PriorityLabel] = w.Name("urgent") })
		w.EventuallyRuns(ctx, "waits", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("tells who preempted a job, and who set what of a running one", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		tolerates := corev1.Toleration{Key: "example.com/spot", Operator: corev1.TolerationOpExists}
		w.MakeRunning(ctx, w.Job("patient").GPUs("8"), 1, onH100, kit.Priority(w.Name("urgent"), 1000))
		w.MakeRunning(ctx, w.Job("urgent").Priority(w.Name("urgent")).GPUs("8").Tolerate(tolerates), 1, onH100)
		e := w.eventuallyExplained(ctx, "patient", explain.Waiting, string(explain.InUse))
		Expect(e.State.Message).To(ContainSubstring("it was preempted by %s/urgent", w.Namespace))

		// Entries of Trainer 2.1 have no owner.
		userPatch := map[bool]string{true: "podTemplateOverrides[0]", false: "example.com/user"}[trainerOf(ctx) == world.Trainer21]
		e = w.eventuallyExplained(ctx, "urgent", explain.Running, "Running")
		Expect(e.Placement).To(ContainElements(
			And(HaveField("Field", "nodeSelector["+kit.ProductLabel+"]"), HaveField("SetBy", "kueue.x-k8s.io/manager"), HaveField("Value", BeEquivalentTo(`"`+kit.H100+`"`))),
			And(HaveField("Field", "tolerations"), HaveField("SetBy", "kueue.x-k8s.io/manager"), HaveField("Overrode", ContainElement(HaveField("SetBy", userPatch)))),
		))
		Expect(said(ctx, Default, "explain", "urgent", "-n", w.Namespace)).To(ContainSubstring("TrainJob %s/urgent runs with 1 pod in queue queue", w.Namespace))
	}, SpecTimeout(specTimeout))

	DescribeTable("tells who cannot make what", func(ctx context.Context, limited string, phase explain.Phase, reason string) {
		w := newPools(ctx, "8", "0")
		w.limit(ctx, limited, "0")
		w.Make(ctx, w.Job("refused").GPUs("8").Obj())
		e := w.eventuallyExplained(ctx, "refused", phase, reason)
		Expect(e.State.Message).To(ContainSubstring("exceeded quota: limit"))
		Expect(e.State.Stuck).To(BeTrue())
		Expect(e.State.Remedy).To(ContainSubstring("raise the ResourceQuota that the message names"))
		w.eventuallyFinds(ctx, map[explain.Phase]string{explain.Unqueued: "warning", explain.Starting: "error"}[phase], "TrainJobStuck", "TrainJob "+w.Namespace+"/refused")
	},
		Entry("the JobSet", "count/jobsets.jobset.x-k8s.io", explain.Unqueued, "JobSetRefused", SpecTimeout(specTimeout)),
		Entry("the Jobs", jobSetTells, "count/jobs.batch", explain.Starting, "JobsRefused", SpecTimeout(specTimeout)),
		Entry("the pods", "pods", explain.Starting, "PodsRefused", SpecTimeout(specTimeout)),
	)

	It("tells that a new job waits for its JobSet, without which it queues soon", Label("control"), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		_, letThrough := w.holdJobSets(ctx, admissionregistrationv1.Create, func(*admissionv1.AdmissionRequest) bool { return true })
		w.Make(ctx, w.Job("early").GPUs("8").Obj())
		w.eventuallyExplained(ctx, "early", explain.Unqueued, "AwaitsJobSet")
		w.EventuallyTold(ctx, "early", "NotPrepared", fmt.Sprintf("in %s; the job queues without it", config.WaitForJobSet))
		w.EventuallyCondition(ctx, "early", kueue.WorkloadAdmitted)
		letThrough()
		w.EventuallyRuns(ctx, "early", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("does what its page in the docs says", Serial, docsPage, since("2.2"), func(ctx context.Context) {
		steps := docsSteps("docs/plugin.md#explain")
		last := len(steps) - 1
		DeferCleanup(cleansUp, steps[last].Commands)
		shell(ctx, steps[0].Commands)
		user := pageUser(ctx, "team-a")
		for _, step := range steps[1:last] {
			step.Commands = asUser(user, step.Commands)
			followsStep(ctx, step)
		}
	}, SpecTimeout(specTimeout))
})

var _ = It("Forecasts of kubectl trainjob tell when a waiting TrainJob starts, what if, and without whom it would start now", core, since(world.Trainer22), func(ctx context.Context) {
	w, _ := newRunning(ctx, "runs")
	w.MakePending(ctx, w.Job("waits").GPUs("8"))
	w.eventuallyLaterThan(ctx, "waits")
	// Of what is like another one that waits, Kueue says nothing.
	w.Make(ctx, w.Job("last").GPUs("8").Obj())
	w.eventuallyListed(ctx, "last", explain.Waiting)
	w.MakePending(ctx, w.Job("too-big").Nodes(2).GPUs("8"))
	// Whatever else the cluster has seen of running times, what a trainer says of its own job comes first.
	runs := w.TrainJob(ctx, "runs")
	w.ChangeStatus(ctx, runs, func() {
		runs.Status.TrainerStatus = &trainer.TrainerStatus{EstimatedRemainingSeconds: new(int32(time.Hour.Seconds())), LastUpdatedTime: metav1.Now()}
	})

	By("explain and list say it alike")
	Eventually(ctx, func(g Gomega) {
		e := w.explained(ctx, g, "waits")
		g.Expect(e.Start).NotTo(BeNil())
		g.Expect(e.Start.P50).To(HaveValue(BeNumerically("~", time.Hour.Seconds(), 300)))
		g.Expect(e.Start.After).To(Equal(w.Namespace + "/runs"))
		g.Expect(said(ctx, g, "explain", "waits", "-n", w.Namespace)).To(MatchRegexp(`Forecast: starts in about \S+ (h|min).*after %s/runs ends`, w.Namespace))
		g.Expect(said(ctx, g, "explain", "too-big", "-n", w.Namespace)).To(ContainSubstring("does not start before somebody changes something"))
		g.Expect(said(ctx, g, "list", "-n", w.Namespace, "-o", "wide")).To(MatchRegexp(`(?s)STARTS.*waits .*~?\d+ (h|min)`))
	}).Should(Succeed())

	By("simulate plays it with twice the quota, and changes nothing")
	Eventually(ctx, func(g Gomega) {
		table := said(ctx, g, "simulate", "-n", w.Namespace, "--arrivals", "none", "--horizon", "12h", "--set-quota", w.Name("gpus")+"/"+w.Name("h100")+"/nvidia.com/gpu=16")
		g.Expect(table).To(MatchRegexp(`%s/queue .* 3 → `, w.Namespace))
		g.Expect(said(ctx, g, "simulate", "--for", w.Namespace+"/waits", "--now")).To(MatchRegexp(`1 +%s/runs `, w.Namespace))
	}).Should(Succeed())
	Expect(w.TrainJob(ctx, "runs").Status.Conditions).NotTo(ContainElement(HaveField("Type", trainer.TrainJobComplete)))

	By("shares shows who has what, and who is next")
	Expect(said(ctx, Default, "shares", "-n", w.Namespace)).To(And(
		MatchRegexp(`%s +%s +nvidia.com/gpu +8 +8 +0 +0`, w.Name("gpus"), w.Name("h100")),
		MatchRegexp(`(?s)PLACE.*\n\d+ +%[1]s/waits .*\n\d+ +%[1]s/last `, w.Namespace)))
	Expect(complaint(ctx, 1, "simulate", "--set-quota", w.Name("gpus")+"/no-such/nvidia.com/gpu=16")).To(ContainSubstring("has no quota of nvidia.com/gpu in flavor no-such"))
}, SpecTimeout(specTimeout))
