// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

var _ = Describe("kubectl trainjob submit", func() {
	It("makes a TrainJob of flags and stays until its pods run", core, func(ctx context.Context) {
		w := newPools(ctx, "16", "0")
		stdout, _, code := plugin(ctx, "submit", "llama", "-n", w.Namespace, "--runtime", "torch-distributed",
			"--nodes", "2", "--gpus-per-node", "8", "--queue", "queue", "--image", "train:1", "--env", "EPOCHS=3",
			"--label", "team=a", "--annotation", "note=b", "--trainer-args", "--fast", "--watch",
			"--runtime-patch", `{trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {metadata: {annotations: {example.com/mine: "yes"}}}}}}]}}}}`,
			"--", "torchrun", "train.py")
		Expect(code).To(BeZero())
		Expect(stdout).To(MatchRegexp(`(?s)llama created.* submitted .* queued .* quota reserved .* admitted  +flavor h100-.* pods running  +runs with 2 pods`))
		pods := w.EventuallyRuns(ctx, "llama", 2, onH100)
		Expect(pods[0].Annotations).To(HaveKeyWithValue("example.com/mine", "yes"))
		container := pods[0].Spec.Containers[0]
		Expect(container.Image).To(Equal("train:1"))
		Expect(container.Command).To(Equal([]string{"torchrun", "train.py"}))
		Expect(container.Args).To(Equal([]string{"--fast"}))
		job := w.TrainJob(ctx, "llama")
		Expect(job.Labels).To(HaveKeyWithValue("team", "a"))
		Expect(job.Annotations).To(HaveKeyWithValue("note", "b"))
	})

	It("warns of a stopped queue, and says in a pipe what the TrainJob waits for", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.SetStopPolicy(ctx, w.LocalQueue(), kueue.Hold)
		Expect(complaint(ctx, 0, "submit", "held", "-n", w.Namespace, "--runtime", "torch-distributed", "--queue", "queue")).
			To(ContainSubstring("warning: LocalQueue queue is stopped (stopPolicy: Hold)"))
		w.SetStopPolicy(ctx, w.LocalQueue(), kueue.None)

		watching := startPlugin(ctx, "submit", "large", "-n", w.Namespace, "--runtime", "torch-distributed",
			"--nodes", "2", "--gpus-per-node", "8", "--queue", "queue", "--watch")
		Eventually(ctx, watching).Should(gbytes.Say(`waits in queue queue .*flavor h100-\S+: ClusterQueue gpus-\S+ has 8 GPUs at the most`))
	})

	It("ends with code 2 when the TrainJob is refused", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		Expect(complaint(ctx, 2, "submit", "job", "-n", w.Namespace, "--runtime", "torch-distributed", "--queue", "queue",
			"--runtime-patch", `{trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: extra}]}}}}`)).
			To(ContainSubstring("the runtime has no replicated job of this name"))
	})

	It("ends with code 2 when the TrainJob is deactivated while it is watched", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		watching := startPlugin(ctx, "submit", "waits", "-n", w.Namespace, "--runtime", "torch-distributed",
			"--nodes", "2", "--gpus-per-node", "8", "--queue", "queue", "--watch")
		w.EventuallyWorkload(ctx, "waits")
		w.Activate(ctx, "waits", false)
		Eventually(ctx, watching).Should(gexec.Exit(2))
		Expect(string(watching.Err.Contents())).To(ContainSubstring("was taken out of its queue"))
	})

	It("does what its page says", Serial, docsPage, core, func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) { kubectl(ctx, "", "delete", "-k", "config/samples", "--ignore-not-found") })
		runsPage(ctx, "docs/plugin.md#submit", pageUser(ctx, "jobs"))
	})
})
