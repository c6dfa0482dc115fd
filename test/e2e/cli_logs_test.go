// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
)

var _ = Describe("kubectl trainjob logs", func() {
	It("names what there is no log of, and what tells why", func(ctx context.Context) {
		w, _ := newRunning(ctx, "runs")
		w.MakePending(ctx, w.Job("waits").GPUs("8"))

		fails := func(text string, args ...string) {
			GinkgoHelper()
			Expect(refused(ctx, 1, append([]string{"logs", "-n", w.Namespace}, args...)...)).To(ContainSubstring(text))
		}
		fails("TrainJob waits has no pods: kubectl trainjob explain -n "+w.Namespace+" waits tells why", "waits")
		fails("there is no TrainJob none", "none")
		fails("none of those that --job, --index and --container name", "runs", "--job", "launcher")
		fails("none of those", "runs", "--index", "7")
		fails("exclude each other", "runs", "-f", "-p")
		Expect(refused(ctx, exit.Unseen, "logs", "-n", w.Namespace, "runs", "--as", w.batchUser(ctx))).
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

var _ = Describe("kubectl trainjob logs on a node with a kubelet", Label("kubelet"), Serial, func() {
	It("prints and follows what each container says, also of pods that come later", func(ctx context.Context) {
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
})
