// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("kubectl trainjob migrate", func() {
	It("makes manifests that the API server takes, with the pods that the older ones ask for", since(world.Trainer22), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		older := must(os.ReadFile(filepath.Join(specs.Root(), "docs/samples/older.yaml")))
		_, _, code := runBinary(ctx, string(older), "kubectl", "create", "-n", w.Namespace, "--dry-run=server", "-f", "-")
		Expect(code).NotTo(BeZero(), "the older manifest is refused")

		migrated, report, code := pluginReading(ctx, string(older), "migrate", "-f", "-", "--owner", "example.com/team")
		Expect(code).To(BeZero())
		Expect(report).To(ContainSubstring("-:8: trainjob llama: podTemplateOverrides → runtimePatches of example.com/team"))
		kubectl(ctx, migrated, "create", "-n", w.Namespace, "-f", "-")
		Eventually(ctx, func() string { return jobSetOf(ctx, w, "llama") }).Should(And(
			ContainSubstring(`"nodeSelector":{"example.com/disk":"ssd"}`),
			ContainSubstring(`"key":"example.com/reserved"`),
			ContainSubstring(`"team":"a"`),
		))
	})

	It("exports the TrainJobs of a cluster without what the manager added", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.Make(ctx,
			w.Job("runs").GPUs("8").PodAnnotations("example.com/team", "example.com/mine", "yes", "node").Obj(),
			w.Job("done").Obj())
		w.EventuallyRuns(ctx, "done", 1, nil)
		w.Finish(ctx, "done", "succeeded")
		w.EventuallyRuns(ctx, "runs", 1, onH100)
		Eventually(ctx, func(g Gomega) {
			stdout, report, code := plugin(ctx, "migrate", "-n", w.Namespace)
			g.Expect(code).To(BeZero())
			g.Expect(report).To(ContainSubstring("1 finished TrainJob left out"))
			g.Expect(stdout).To(And(
				ContainSubstring("runtimePatches:"), ContainSubstring("example.com/mine: \"yes\""),
				Not(ContainSubstring("podTemplateOverrides")), Not(ContainSubstring("kueue.x-k8s.io/manager")),
				Not(ContainSubstring("suspend")), Not(ContainSubstring("status:")), Not(ContainSubstring("uid"))))
		}).Should(Succeed())

		exported, _, _ := plugin(ctx, "migrate", "-n", w.Namespace)
		_, _, code := pluginReading(ctx, exported, "validate", "-f", "-", "--from-cluster", "--trainer", "2.3")
		Expect(code).To(BeZero(), "the newest Trainer takes it")
	})

	It("does what its page says", since(world.Trainer22), func(ctx context.Context) {
		shell(ctx, docsCommands("docs/versions.md#migrate-manifests")...)
	})
})

// jobSetOf returns the JobSet of a TrainJob in JSON; empty while there is none.
func jobSetOf(ctx context.Context, w *site, job string) string {
	stdout, _, _ := runBinary(ctx, "", "kubectl", "get", "jobset", "-n", w.Namespace, job, "-o", "jsonpath={.spec}")
	return stdout
}
