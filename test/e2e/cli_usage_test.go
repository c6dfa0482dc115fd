// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/csv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/usage"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

var _ = Describe("kubectl trainjob usage", func() {
	It("prints what the Workloads of the cluster tell, by queue, flavor and user", func(ctx context.Context) {
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
		stdout, stderr, code := plugin(ctx, "usage", "-n", w.Namespace, "-o", "csv")
		Expect(code).To(BeZero())
		Expect(stderr).To(ContainSubstring("this is only what the Workloads in the cluster tell now"))
		rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
		Expect(err).NotTo(HaveOccurred())
		Expect(rows).To(HaveLen(2))
		Expect(rows[1]).To(ContainElements(w.Name("gpus"), "GPU-hours"))
	}, SpecTimeout(specTimeout))

	It("says what is wrong with a flag, and what one may not see", func(ctx context.Context) {
		w := newWorld(ctx)
		for args, want := range map[string]string{
			"--by team":             "--by team: use queue, user or flavor",
			"--by user":             "name the label of TrainJobs that says whose they are with --user-label",
			"--since yesterday":     "--since yesterday: give a time such as 12h, 30d or 4w",
			"--token-file /nowhere": "--token-file is for --prometheus",
			"--prometheus http://127.0.0.1:1 -n none": "asking Prometheus:",
		} {
			_, stderr, code := plugin(ctx, append([]string{"usage"}, strings.Fields(args)...)...)
			Expect(code).To(Equal(exit.Failed), args)
			Expect(stderr).To(ContainSubstring(want), args)
		}
		Expect(refused(ctx, exit.Unseen, "usage", "-n", w.Namespace, "--as", "nobody")).
			To(ContainSubstring("you may not list TrainJobs in namespace " + w.Namespace))
	}, SpecTimeout(specTimeout))

	It("does what its page in the docs says", Serial, docsPage, func(ctx context.Context) {
		runsPage(ctx, "docs/usage.md")
	}, SpecTimeout(specTimeout))

	It("completes what a bill may be split by", func(ctx context.Context) {
		Expect(strings.Split(completed(ctx, "usage", "--by", ""), "\n")).To(ContainElements("queue", "user", "flavor"))
	}, SpecTimeout(specTimeout))
})

// usage returns the bill of the spec's namespace.
func (w *site) usage(ctx context.Context, g Gomega, args ...string) usage.Bill {
	GinkgoHelper()
	return printed[usage.Bill](ctx, g, append([]string{"usage", "-n", w.Namespace}, args...)...)
}
