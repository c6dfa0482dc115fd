// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
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

	DescribeTable("refuses flags that say nothing", func(ctx context.Context, says string, flags ...string) {
		w := newWorld(ctx)
		Expect(refused(ctx, 1, append([]string{"submit", "job", "-n", w.Namespace, "--runtime", "torch-distributed"}, flags...)...)).
			To(ContainSubstring(says))
		Expect(w.Names(ctx, &trainer.TrainJobList{})).To(BeEmpty())
	},
		Entry("no nodes", "--nodes=0: no pod would run; name 1 or more", "--nodes", "0"),
		Entry("no GPUs", "--gpus-per-node=0: a runtime's GPUs cannot be taken away", "--gpus-per-node", "0"),
		Entry("no queue", "--queue is empty", "--queue", ""),
	)

	It("warns of a stopped queue, and says in a pipe what the TrainJob waits for", func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		stop := func(policy string) {
			kubectl(ctx, "", "patch", "localqueue", "queue", "-n", w.Namespace, "--type=merge", "-p", `{"spec":{"stopPolicy":"`+policy+`"}}`)
		}
		stop("Hold")
		_, stderr, code := plugin(ctx, "submit", "held", "-n", w.Namespace, "--runtime", "torch-distributed", "--queue", "queue")
		Expect(code).To(BeZero())
		Expect(stderr).To(ContainSubstring("warning: LocalQueue queue is stopped (stopPolicy: Hold)"))
		stop("None")

		watching := startPlugin(ctx, "submit", "large", "-n", w.Namespace, "--runtime", "torch-distributed",
			"--nodes", "2", "--gpus-per-node", "8", "--queue", "queue", "--watch")
		Eventually(ctx, watching).Should(gbytes.Say(`waits in queue queue .*flavor h100-\S+ has 8 GPUs at the most`))
	})

	It("refuses a command for a runtime that brings its own trainer", core, func(ctx context.Context) {
		w := newWorld(ctx)
		Expect(refused(ctx, 1, "submit", "job", "-n", w.Namespace, "--runtime", "torchtune-llama3.2-1b", "--", "train")).
			To(ContainSubstring("brings a trainer with a command and arguments of its own"))
	})

	It("ends with code 2 when the TrainJob is refused", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		_, stderr, code := plugin(ctx, "submit", "job", "-n", w.Namespace, "--runtime", "torch-distributed", "--queue", "queue",
			"--runtime-patch", `{trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: extra}]}}}}`)
		Expect(code).To(Equal(2))
		Expect(stderr).To(ContainSubstring("the runtime has no replicated job of this name"))
	})

	It("ends with code 2 when the TrainJob is deactivated while it is watched", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		done := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(done)
			_, stderr, code := plugin(ctx, "submit", "waits", "-n", w.Namespace, "--runtime", "torch-distributed",
				"--nodes", "2", "--gpus-per-node", "8", "--queue", "queue", "--watch")
			Expect(code).To(Equal(2))
			Expect(stderr).To(ContainSubstring("was taken out of its queue"))
		}()
		w.EventuallyWorkload(ctx, "waits")
		w.Activate(ctx, "waits", false)
		Eventually(ctx, done).Should(BeClosed())
	})

	It("does what its page says", Serial, docsPage, core, func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) { kubectl(ctx, "", "delete", "-k", "config/samples", "--ignore-not-found") })
		runsPage(ctx, "docs/plugin.md#submit", pageUser(ctx, "jobs"))
	})
})
