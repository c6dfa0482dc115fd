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
		w.Make(ctx, kit.Priority(w.Name("urgent"), 1000))
		w.MakeRunning(ctx, w.Job("runs").Priority(w.Name("urgent")).GPUs("8"), 1, onH100)
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
		w.Make(ctx, kit.Priority(w.Name("urgent"), 1000))
		w.MakeRunning(ctx, w.Job("holds").Queue("one").Nodes(2).GPUs("8"), 2, onH100)
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
		w := newPools(ctx, "8", "0")
		user := w.user(ctx)
		w.MakeRunning(ctx, w.Job("runs").GPUs("8"), 1, onH100)
		w.MakePending(ctx, w.Job("waits").GPUs("8"))
		w.eventuallyLaterThan(ctx, "waits")
		w.Make(ctx, w.Job("waits-too").GPUs("8").Obj())
		Eventually(ctx, func(g Gomega) {
			table, stderr, code := plugin(ctx, "list", "-n", w.Namespace, "--as", user)
			g.Expect(code).To(Equal(exit.Unseen), stderr)
			g.Expect(table).To(MatchRegexp(`runs +Running +queue +%s +8 +0 +- +\S+ +-\n`, w.Name("h100")))
			g.Expect(table).To(MatchRegexp(`waits +Waiting +queue +- +8 +0 +\S+ +\S+ +<unknown>\n`))
			g.Expect(stderr).To(MatchRegexp(`(?m)^note: reason is <unknown>: you may not list all clusterqueues.kueue.x-k8s.io; ask an admin for that$`))
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

	It("does what its page in the docs says", Serial, docsPage, func(ctx context.Context) {
		runsPage(ctx, "docs/plugin.md#list", pageUser(ctx, "jobs"))
	}, SpecTimeout(specTimeout))
})

// listed runs "list -o json" in the spec's namespace.
func (w *site) listed(ctx context.Context, g Gomega) []listing.TrainJob {
	return printed[listing.List](ctx, g, "list", "-n", w.Namespace).TrainJobs
}

// eventuallyListed waits until list says that a TrainJob is in a phase, and returns what it says.
func (w *site) eventuallyListed(ctx context.Context, name string, phase explain.Phase) listing.TrainJob {
	var found listing.TrainJob
	Eventually(ctx, func(g Gomega) {
		for _, job := range w.listed(ctx, g) {
			if job.Name == name {
				found = job
			}
		}
		g.Expect(found.Phase).To(Equal(phase), found.Message)
	}).Should(Succeed())
	return found
}

// user returns one with ClusterRole kueue-trainer-user in the spec's namespace, and no more.
func (w *site) user(ctx context.Context) string {
	user := w.Name("ml-engineer")
	w.Make(ctx, kit.RoleBinding(w.Namespace, "kueue-trainer-user", user))
	eventuallyMay(ctx, user, w.Namespace)
	return user
}
