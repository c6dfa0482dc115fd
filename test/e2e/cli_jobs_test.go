// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/csv"
	"encoding/xml"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/timeline"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/usage"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

var _ = Describe("kubectl trainjob logs", func() {
	It("names what there is no log of, and what tells why", func(ctx context.Context) {
		w, _ := newRunning(ctx, "runs")
		w.MakePending(ctx, w.Job("waits").GPUs("8"))

		fails := func(text string, args ...string) {
			Expect(complaint(ctx, 1, append([]string{"logs", "-n", w.Namespace}, args...)...)).To(ContainSubstring(text))
		}
		fails("TrainJob waits has no pods: kubectl trainjob explain -n "+w.Namespace+" waits tells why", "waits")
		fails("there is no TrainJob none", "none")
		fails("none of those that --job, --index and --container name", "runs", "--job", "launcher")
		fails("none of those", "runs", "--index", "7")
		fails("exclude each other", "runs", "-f", "-p")
		w.Make(ctx, kit.RoleBinding(w.Namespace, "kueue-trainjob-viewer-role", "bob"))
		Expect(complaint(ctx, exit.Unseen, "logs", "-n", w.Namespace, "runs", "--as", "bob")).
			To(ContainSubstring("ask an admin for the permission to list pods"))
		// A fake pod has no kubelet; the error says whose log it is.
		fails("node-0-0 (pod runs-node-0-0-", "runs", "--job", "node", "--index", "0")
	}, SpecTimeout(specTimeout))

	It("follows a TrainJob that waits until it is over", func(ctx context.Context) {
		w, _ := newRunning(ctx, "runs")
		w.MakePending(ctx, w.Job("later").GPUs("8"))
		following := startPlugin(ctx, "logs", "later", "-n", w.Namespace, "--follow")
		Consistently(ctx, following).ShouldNot(gexec.Exit())
		w.Finish(ctx, "runs", "succeeded")
		pod := w.EventuallyRuns(ctx, "later", 1, onH100)[0]
		Eventually(ctx, func() string { return string(following.Err.Contents()) }).Should(ContainSubstring("node-0-0 (pod " + pod.Name + ")"))
		w.Finish(ctx, "later", "succeeded")
		Eventually(ctx, following).Should(gexec.Exit(0))
	}, SpecTimeout(specTimeout))
})

var _ = It("kubectl trainjob logs on a node with a kubelet prints and follows what each container says, also of pods that come later", Label("kubelet"), Serial, func(ctx context.Context) {
	kubeletNode(ctx)
	w := newWorld(ctx)
	w.kubeletPool(ctx)
	w.MakeRunning(ctx, w.payload("first").GPUs("8"), 1, onKubelet)
	w.MakePending(ctx, w.payload("later", "-run-for=5s").GPUs("8"))
	following := startPlugin(ctx, "logs", "later", "-n", w.Namespace, "--follow")
	Expect(w.Delete(ctx, w.payload("first").Obj())).To(Succeed())
	Eventually(ctx, following).Should(gexec.Exit(0))
	Expect(string(following.Out.Contents())).To(MatchRegexp(`^\[node-0-0\] \S+ started\n\[node-0-0\] \S+ done, with 0 MiB held\n$`))
	Expect(w.says(ctx, "logs", "later")).To(MatchRegexp(`^\S+ started\n\S+ done, with 0 MiB held\n$`))
	Expect(w.says(ctx, "logs", "later", "--prefix", "--tail", "1", "--index", "0")).To(MatchRegexp(`^\[node-0-0\] \S+ done, with 0 MiB held\n$`))
}, SpecTimeout(specTimeout))

var _ = Describe("kubectl trainjob timeline", func() {
	It("tells who did what of a preempted job, in order, and where the time went", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.MakeRunning(ctx, w.Job("llm").GPUs("8"), 1, onH100, kit.Priority(w.Name("urgent"), 1000))
		w.MakeRunning(ctx, w.Job("urgent").Priority(w.Name("urgent")).GPUs("8"), 1, onH100)
		w.Finish(ctx, "urgent", "succeeded")
		w.EventuallyRuns(ctx, "llm", 1, onH100)
		w.Succeed(ctx, "llm")

		var t timeline.Timeline
		Eventually(ctx, func(g Gomega) {
			t = printed[timeline.Timeline](ctx, g, "timeline", "llm", "-n", w.Namespace)
			g.Expect(t.Ended).To(BeTrue())
			steps := []string{"created it", "made it", "QuotaReserved", "Admitted", "Started", "Evicted", "Admitted", "Started", "reported it as Complete"}
			for _, s := range t.Steps {
				if match, _ := HavePrefix(steps[0]).Match(s.Step); match {
					if steps = steps[1:]; len(steps) == 0 {
						break
					}
				}
			}
			g.Expect(steps).To(BeEmpty(), "%+v", t.Steps)
		}).Should(Succeed())
		for _, actor := range []timeline.Actor{timeline.User, timeline.Webhook, timeline.Trainer, timeline.JobSet, timeline.Manager, timeline.Kueue, timeline.JobController, timeline.Scheduler, timeline.Kubelet} {
			Expect(t.Steps).To(ContainElement(HaveField("Actor", actor)))
		}
		share := 0.0
		for _, span := range t.Spans {
			share += span.Share
		}
		Expect(share).To(BeNumerically("~", 1, 0.001))
		Expect(t.Spans).To(ContainElements(HaveField("Phase", timeline.Stopping), HaveField("Phase", timeline.Running)))
		Expect(xml.Unmarshal([]byte(w.says(ctx, "timeline", "llm", "-o", "svg")), &struct{}{})).To(Succeed())
	}, SpecTimeout(specTimeout))

	It("does what its page in the docs says", Serial, docsPage, func(ctx context.Context) {
		runsPage(ctx, "docs/plugin.md#timeline", pageUser(ctx, "jobs"))
	}, SpecTimeout(specTimeout))
})

var _ = Describe("kubectl trainjob usage", func() {
	It("prints the manager's ledger by queue and flavor, and by user what the Workloads tell", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		job := w.Job("llm").GPUs("8").Obj()
		job.Labels["example.com/user"] = "ann"
		w.Make(ctx, job)
		w.EventuallyRuns(ctx, "llm", 1, onH100)
		w.EventuallyCondition(ctx, "llm", kueue.WorkloadPodsReady)
		// Objects tell whole seconds: an end may seem to be up to one second before it was.
		const second = 8.0 / 3600
		var running usage.Line
		Eventually(ctx, func(g Gomega) {
			bill := w.usage(ctx, g)
			g.Expect(bill.Lines).To(HaveLen(1))
			running = bill.Lines[0]
			g.Expect(running.Running).To(BeNumerically(">", 2*second))
		}).Should(Succeed())
		Expect(running.ClusterQueue).To(Equal(w.Name("gpus")))
		Expect(running.LocalQueue).To(Equal("queue"))
		Expect(running.Resource).To(Equal(string(kit.GPU)))
		Expect(running.Held).To(BeNumerically("~", running.Waiting+running.Running+running.Stopping, 1e-9))
		Expect(running.Useful).To(BeZero(), "it runs yet")

		w.Succeed(ctx, "llm")
		done := w.usage(ctx, Default).Lines[0]
		Expect(done.Useful).To(BeNumerically("~", done.Running, 1e-9))
		Expect(done.Useful).To(BeNumerically(">=", running.Running-second))
		Expect(w.usage(ctx, Default).Lines[0]).To(Equal(done), "what is over costs no more")

		Expect(w.usage(ctx, Default, "--by", "flavor").Lines[0].Flavor).To(Equal(w.Name("h100")))
		Expect(w.usage(ctx, Default, "--by", "user", "--user-label", "example.com/user").Lines[0].User).To(Equal("ann"))
		Expect(w.usage(ctx, Default).Source).To(Equal("ledger"))
		stdout, stderr, code := plugin(ctx, "usage", "-n", w.Namespace, "-o", "csv")
		Expect(code).To(BeZero())
		Expect(stderr).To(ContainSubstring("when the manager's ledger began"))
		rows := must(csv.NewReader(strings.NewReader(stdout)).ReadAll())
		Expect(rows).To(HaveLen(2))
		Expect(rows[1]).To(ContainElements(w.Name("gpus"), "GPU-hours"))
	}, SpecTimeout(specTimeout))

	It("has no 0 for what was used by a run that was evicted, and by a job that is gone", func(ctx context.Context) {
		w, _ := newRunning(ctx, "llm")
		w.EventuallyCondition(ctx, "llm", kueue.WorkloadPodsReady)
		// Times are whole seconds: what has run for less than one may be 0.
		const twoSeconds = 2 * 8.0 / 3600
		Eventually(ctx, func(g Gomega) {
			g.Expect(w.usage(ctx, g).Lines).To(ConsistOf(HaveField("Running", BeNumerically(">", twoSeconds))))
		}).Should(Succeed())
		w.Activate(ctx, "llm", false)
		w.EventuallyAtTheGate(ctx, "llm")
		lost := func(g Gomega) { g.Expect(w.usage(ctx, g).Lines).To(ConsistOf(HaveField("Lost", Not(BeZero())))) }
		Eventually(ctx, lost).Should(Succeed())
		gone := w.Job("llm").Obj()
		Expect(w.Delete(ctx, gone)).To(Succeed())
		w.EventuallyGone(ctx, gone)
		lost(Default)

		bill := printed[usage.Bill](ctx, Default, "usage", "-n", w.Namespace, "--since", "1s")
		Expect(bill.Source).To(Equal("cluster"), "the ledger has no bill of a second")
		Expect(complaint(ctx, exit.Failed, "usage", "--since", "yesterday")).To(ContainSubstring("--since yesterday: give a time such as 12h, 30d or 4w"))
	}, SpecTimeout(specTimeout))

	It("does what its page in the docs says", Serial, docsPage, func(ctx context.Context) {
		runsPage(ctx, "docs/operate.md#who-used-what", pageUser(ctx, "jobs"))
	}, SpecTimeout(specTimeout))
})

// usage returns the bill of the spec's namespace.
func (w *site) usage(ctx context.Context, g Gomega, args ...string) usage.Bill {
	return printed[usage.Bill](ctx, g, append([]string{"usage", "-n", w.Namespace}, args...)...)
}
