// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	listing "github.com/kueue-trainer/kueue-trainer/pkg/cli/list"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

var _ = Describe("kubectl trainjob list", func() {
	It("tells the true state of every TrainJob, as explain does, and follows changes", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.MakeRunning(ctx, w.Job("runs").Priority(w.Name("urgent")).GPUs("8"), 1, onH100, kit.Priority(w.Name("urgent"), 1000))
		w.MakePending(ctx, w.Job("waits").Priority(w.Name("urgent")).GPUs("8"))
		w.MakePending(ctx, w.Job("too-big").Nodes(2).GPUs("8"))

		Eventually(ctx, func(g Gomega) {
			table, stderr, code := plugin(ctx, "list", "-n", w.Namespace)
			g.Expect(code).To(BeZero(), stderr)
			g.Expect(stderr).To(BeEmpty())
			g.Expect(table).To(MatchRegexp(`runs +Running +queue +%s +8 +1000 +- +\S+ +-\n`, w.Name("h100")))
			g.Expect(table).To(MatchRegexp(`waits +Waiting +queue +- +8 +1000 +1 +\S+ +QuotaInUse\n`))
			g.Expect(table).To(MatchRegexp(`too-big +Waiting +queue +- +16 +0 +2 +\S+ +ExceedsQuota\n`))
		}).Should(Succeed())
		for _, job := range w.listed(ctx, Default) {
			e := w.explained(ctx, Default, job.Name)
			Expect(job.Phase).To(Equal(e.State.Phase), job.Name)
			Expect(job.Reason).To(Equal(e.State.Reason), job.Name)
		}
		for _, of := range []string{"-n=" + w.Namespace, "-A"} {
			// explain tells of all that do not run yet.
			Eventually(ctx, func(g Gomega) string { return said(ctx, g, "explain", of) }).Should(And(
				MatchRegexp(`(?m)^%s +waits +QuotaInUse +waits in queue queue .* +wait until others in ClusterQueue`, w.Namespace),
				Not(MatchRegexp(`(?m)^%s +runs `, w.Namespace))))
		}

		watching := startPlugin(ctx, "list", "-n", w.Namespace, "--watch")
		Eventually(ctx, watching.Out).Should(gbytes.Say(`waits +Waiting`))
		w.Finish(ctx, "runs", "succeeded")
		Eventually(ctx, watching.Out).Should(gbytes.Say(`waits +Running`))
		Eventually(ctx, watching.Interrupt()).Should(gexec.Exit(0))
	}, SpecTimeout(specTimeout))

	It("tells who is next across queues of a cohort", func(ctx context.Context) {
		w := newWorld(ctx)
		one, other := w.member("all", "one", "8"), w.member("all", "other", "8")
		one.Spec.Preemption, other.Spec.Preemption = nil, nil
		w.share(ctx, one, other)
		w.MakeRunning(ctx, w.Job("holds").Queue("one").Nodes(2).GPUs("8"), 2, onH100, kit.Priority(w.Name("urgent"), 1000))
		w.MakePending(ctx, w.Job("first").Queue("one").GPUs("8"))
		w.MakePending(ctx, w.Job("urgent").Queue("one").Priority(w.Name("urgent")).GPUs("8"))
		w.MakePending(ctx, w.Job("others").Queue("other").GPUs("8"))

		Eventually(ctx, func(g Gomega) {
			table := said(ctx, g, "list", "-n", w.Namespace, "--by-cohort")
			// What is lent comes back to its owner first.
			g.Expect(table).To(MatchRegexp(`(?s)COHORT +NEXT +NAME.*\n%[1]s +1 +others .*\n%[1]s +2 +urgent .*\n%[1]s +3 +first `, w.Name("all")))
			g.Expect(table).NotTo(ContainSubstring("holds"))
		}).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("tells a user of a namespace what he may know, and names once each kind that he may not read; with the queues he knows all", func(ctx context.Context) {
		w, _ := newRunning(ctx, "runs")
		user := w.user(ctx)
		w.MakePending(ctx, w.Job("waits").GPUs("8"))
		w.eventuallyLaterThan(ctx, "waits")
		w.Make(ctx, w.Job("waits-too").GPUs("8").Obj())
		Eventually(ctx, func(g Gomega) {
			table, stderr, code := plugin(ctx, "list", "-n", w.Namespace, "--as", user)
			g.Expect(code).To(Equal(exit.Unseen), stderr)
			g.Expect(table).To(MatchRegexp(`runs +Running +queue +%s +8 +0 +- +\S+ +-\n`, w.Name("h100")))
			g.Expect(table).To(MatchRegexp(`waits +Waiting +queue +- +8 +0 +\S+ +\S+ +<unknown>\n`))
			g.Expect(stderr).To(MatchRegexp(`(?m)^note: reason is <unknown>: you may not list all clusterqueues.kueue.x-k8s.io; ask an admin for ClusterRole kueue-trainer-queues-viewer$`))
		}).Should(Succeed())
		Expect(complaint(ctx, exit.Unseen, "list", "-A", "--as", user)).To(ContainSubstring("name one with -n"))

		w.Make(ctx, seesQueues(user))
		Eventually(ctx, func(g Gomega) {
			table, stderr, code := plugin(ctx, "list", "-n", w.Namespace, "--as", user)
			g.Expect(code).To(BeZero(), stderr)
			g.Expect(stderr).To(BeEmpty())
			g.Expect(table).To(MatchRegexp(`waits +Waiting +queue +- +8 +0 +1 +\S+ +QuotaInUse\n`))
			g.Expect(table).To(MatchRegexp(`waits-too +Waiting +queue +- +8 +0 +2 +\S+ +QuotaInUse\n`))
		}).Should(Succeed())
	}, SpecTimeout(specTimeout))
})

func (w *site) listed(ctx context.Context, g Gomega) []listing.TrainJob {
	return printed[listing.List](ctx, g, "list", "-n", w.Namespace).TrainJobs
}

// eventuallyListed waits until list says that a TrainJob is in a phase, and returns what it says.
func (w *site) eventuallyListed(ctx context.Context, name string, phase explain.Phase) (found listing.TrainJob) {
	Eventually(ctx, func(g Gomega) []listing.TrainJob { return w.listed(ctx, g) }).
		Should(ContainElement(And(HaveField("Name", name), HaveField("Phase", phase)), &found))
	return found
}

// user returns one with ClusterRole kueue-trainer-user in the spec's namespace, and no more.
func (w *site) user(ctx context.Context) string {
	user := w.Name("ml-engineer")
	w.Make(ctx, kit.RoleBinding(w.Namespace, "kueue-trainer-user", user))
	eventuallyMay(ctx, user, w.Namespace)
	return user
}

var _ = Describe("kubectl trainjob hold, stop, resume and requeue", func() {
	It("hold a user's job that waits, which keeps its place", func(ctx context.Context) {
		w, _ := newRunning(ctx, "runs")
		user := w.user(ctx)
		w.MakePending(ctx, w.Job("first").GPUs("8"))
		wl := w.Workload(ctx, "first")
		Expect(w.says(ctx, "hold", "first", "--as", user)).To(ContainSubstring("held out of queue queue; it keeps its place"))
		w.Make(ctx, w.Job("second").GPUs("8").Obj())
		Expect(w.eventuallyListed(ctx, "first", explain.Held).Queue).To(Equal("queue.held"))
		w.eventuallyListed(ctx, "second", explain.Waiting)

		w.Finish(ctx, "runs", "succeeded")
		w.EventuallyRuns(ctx, "second", 1, onH100)
		Expect(w.Pods(ctx, "first")).To(BeEmpty())
		w.Make(ctx, w.Job("third").GPUs("8").Obj())
		Expect(w.says(ctx, "resume", "first", "--as", user)).To(ContainSubstring("queued again in queue"))
		Eventually(ctx, func(g Gomega) {
			g.Expect(w.listed(ctx, g)).To(ContainElement(And(HaveField("Name", "first"), HaveField("Position", HaveValue(Equal(1))))))
			g.Expect(w.Workload(ctx, "first")).To(HaveField("UID", wl.UID))
		}).Should(Succeed())
		w.Finish(ctx, "second", "succeeded")
		w.EventuallyRuns(ctx, "first", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("stop a user's job: its quota goes to others with its last pod, and it stays stopped", core, func(ctx context.Context) {
		w, _ := newRunning(ctx, "runs", "6s")
		user := w.user(ctx)
		w.MakePending(ctx, w.Job("next").GPUs("8"))
		Expect(w.says(ctx, "stop", "runs", "--as", user)).To(ContainSubstring("stopped: 1 pod end"))
		w.eventuallyListed(ctx, "runs", explain.Stopping)
		w.EventuallyRuns(ctx, "next", 1, onH100)
		w.eventuallyListed(ctx, "runs", explain.Held)
		w.Succeed(ctx, "next")
		w.ConsistentlyIdle(ctx, "runs")
		Expect(w.says(ctx, "stop", "runs", "--as", user)).To(ContainSubstring("is stopped already"))
		w.says(ctx, "resume", "runs", "--as", user)
		w.EventuallyRuns(ctx, "runs", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("resume a job whose pods still end behind those that wait", func(ctx context.Context) {
		w, _ := newRunning(ctx, "runs", "10s")
		user := w.user(ctx)
		w.MakePending(ctx, w.Job("next").GPUs("8"))
		w.says(ctx, "stop", "runs", "--as", user)
		Expect(w.says(ctx, "hold", "runs", "--as", user)).To(ContainSubstring("is being stopped, and held then"))
		said := w.says(ctx, "resume", "runs", "--as", user)
		Expect(said).To(MatchRegexp(`(?s)still has its quota: waiting .*queued again in queue\n`))
		w.EventuallyRuns(ctx, "next", 1, onH100)
		w.eventuallyListed(ctx, "runs", explain.Waiting)
		w.Finish(ctx, "next", "succeeded")
		w.EventuallyRuns(ctx, "runs", 1, onH100)
	}, SpecTimeout(specTimeout))

	DescribeTable("requeue a job", func(ctx context.Context, gpus string) {
		w, _ := newRunning(ctx, "runs")
		w.MakePending(ctx, w.Job("next").GPUs(gpus))
		Expect(w.says(ctx, "requeue", "runs")).To(ContainSubstring("queued again in queue"))
		w.EventuallyRuns(ctx, "next", 1, onH100)
		w.eventuallyListed(ctx, "runs", explain.Waiting)
		w.Finish(ctx, "next", "succeeded")
		w.EventuallyRuns(ctx, "runs", 1, onH100)
	},
		Entry("behind those that wait", "8", SpecTimeout(specTimeout)),
		Entry("behind those of another shape that wait", "4", SpecTimeout(specTimeout)),
	)

	It("resume a deactivated job for who may, and tell others who can", func(ctx context.Context) {
		w, _ := newRunning(ctx, "llm")
		w.Activate(ctx, "llm", false)
		w.eventuallyListed(ctx, "llm", explain.Deactivated)
		Expect(complaint(ctx, exit.Unseen, "resume", "llm", "-n", w.Namespace, "--as", w.user(ctx))).
			To(ContainSubstring("somebody with Kueue's role batch-admin can, by kubectl -n %s patch workload", w.Namespace))
		Expect(w.says(ctx, "resume", "llm")).To(ContainSubstring("activated"))
		w.EventuallyRuns(ctx, "llm", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("are what the webhook names to somebody who suspends a job that runs", core, func(ctx context.Context) {
		w, pods := newRunning(ctx, "llm")
		_, stderr, code := runBinary(ctx, "", "kubectl", "-n", w.Namespace, "patch", "trainjob", "llm", "--type=merge", "-p", `{"spec":{"suspend":true}}`)
		Expect(code).To(BeZero(), stderr)
		Expect(stderr).To(ContainSubstring("kubectl trainjob stop -n %s llm keeps it stopped", w.Namespace))
		Eventually(ctx, w.Pods).WithArguments(ctx, "llm").Should(ConsistOf(HaveField("UID", Not(Equal(pods[0].UID)))))
		Expect(complaint(ctx, 0, "stop", "llm", "-n", w.Namespace)).To(BeEmpty())
	}, SpecTimeout(specTimeout))
})

func (w *site) says(ctx context.Context, args ...string) string {
	return said(ctx, Default, append(args, "-n", w.Namespace)...)
}
