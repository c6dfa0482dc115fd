// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
)

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

	It("do what their page in the docs says", Serial, docsPage, func(ctx context.Context) {
		runsPage(ctx, "docs/plugin.md#hold-stop-resume-requeue", pageUser(ctx, "jobs"))
	}, SpecTimeout(specTimeout))
})

// says runs the plugin in the spec's namespace, and returns what it printed.
func (w *site) says(ctx context.Context, args ...string) string {
	return said(ctx, Default, append(args, "-n", w.Namespace)...)
}
