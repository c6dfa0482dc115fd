// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

var _ = Describe("kubectl trainjob migrate", func() {
	It("makes manifests that the API server takes, with the pods that the older ones ask for", since(kit.Trainer22), func(ctx context.Context) {
		w := newWorld(ctx)
		w.pools(ctx, "8", "0")
		older, err := os.ReadFile(filepath.Join(root(), "docs/samples/older.yaml"))
		Expect(err).NotTo(HaveOccurred())
		_, _, code := runBinary(ctx, string(older), "kubectl", "create", "-n", w.namespace, "--dry-run=server", "-f", "-")
		Expect(code).NotTo(BeZero(), "the older manifest is refused")

		migrated, report, code := pluginReading(ctx, string(older), "migrate", "-f", "-", "--owner", "example.com/team")
		Expect(code).To(BeZero())
		Expect(report).To(ContainSubstring("-:8: trainjob llama: podTemplateOverrides → runtimePatches of example.com/team"))
		kubectl(ctx, migrated, "create", "-n", w.namespace, "-f", "-")
		Eventually(ctx, func() string { return jobSetOf(ctx, w, "llama") }).Should(And(
			ContainSubstring(`"nodeSelector":{"example.com/disk":"ssd"}`),
			ContainSubstring(`"key":"example.com/reserved"`),
			ContainSubstring(`"team":"a"`),
		))
	})

	It("exports the TrainJobs of a cluster without what the manager added", core, func(ctx context.Context) {
		w := newWorld(ctx)
		w.pools(ctx, "8", "0")
		w.make(ctx,
			w.job("runs").GPUs("8").PodAnnotation("example.com/team", "node", "example.com/mine", "yes").Obj(),
			w.job("done").Obj())
		w.eventuallyRuns(ctx, "done", 1, nil)
		w.finish(ctx, "done", "succeeded")
		w.eventuallyRuns(ctx, "runs", 1, onH100)
		Eventually(ctx, func(g Gomega) {
			stdout, report, code := plugin(ctx, "migrate", "-n", w.namespace)
			g.Expect(code).To(BeZero())
			g.Expect(report).To(ContainSubstring("1 finished TrainJob left out"))
			g.Expect(stdout).To(And(
				ContainSubstring("runtimePatches:"), ContainSubstring("example.com/mine: \"yes\""),
				Not(ContainSubstring("podTemplateOverrides")), Not(ContainSubstring("kueue.x-k8s.io/manager")),
				Not(ContainSubstring("suspend")), Not(ContainSubstring("status:")), Not(ContainSubstring("uid"))))
		}).Should(Succeed())

		exported, _, _ := plugin(ctx, "migrate", "-n", w.namespace)
		_, _, code := pluginReading(ctx, exported, "validate", "-f", "-", "--from-cluster", "--trainer", "2.3")
		Expect(code).To(BeZero(), "the newest Trainer takes it")
	})

	It("does what its page says", since(kit.Trainer22), func(ctx context.Context) {
		for _, block := range docsCommands("docs/migrate.md") {
			_, stderr, code := runShell(ctx, block)
			Expect(code).To(BeZero(), "%s\n%s", block, stderr)
		}
	})
})

// jobSetOf returns the JobSet of a TrainJob in JSON; empty while there is none.
func jobSetOf(ctx context.Context, w *world, job string) string {
	GinkgoHelper()
	stdout, _, _ := runBinary(ctx, "", "kubectl", "get", "jobset", "-n", w.namespace, job, "-o", "jsonpath={.spec}")
	return stdout
}
