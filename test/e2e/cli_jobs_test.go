// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/csv"
	"encoding/xml"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/timeline"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/usage"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
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

	It("does what its page says", Serial, docsPage, func(ctx context.Context) {
		DeferCleanup(func(ctx context.Context) { kubectl(ctx, "", "delete", "-k", "config/samples", "--ignore-not-found") })
		runsPage(ctx, "docs/plugin.md#submit", pageUser(ctx, "jobs"))
	})
})

var _ = Describe("kubectl trainjob logs", func() {
	It("names what there is no log of, and what tells why", func(ctx context.Context) {
		w, _ := newRunning(ctx, "runs")
		w.MakePending(ctx, w.Job("waits").GPUs("8"))
		for args, text := range map[string]string{
			"waits":               "TrainJob waits has no pods: kubectl trainjob explain -n " + w.Namespace + " waits tells why",
			"runs -f -p":          "exclude each other",
			"runs --job launcher": "none of those that --job, --index and --container name",
			// A fake pod has no kubelet; the error says whose log it is.
			"runs --job node --index 0": "node-0-0 (pod runs-node-0-0-",
		} {
			Expect(complaint(ctx, 1, append([]string{"logs", "-n", w.Namespace}, strings.Fields(args)...)...)).To(ContainSubstring(text))
		}
		w.Make(ctx, kit.RoleBinding(w.Namespace, "kueue-trainjob-viewer-role", "bob"))
		Expect(complaint(ctx, exit.Unseen, "logs", "-n", w.Namespace, "runs", "--as", "bob")).To(ContainSubstring("ask an admin for the permission to list pods"))
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
		Eventually(ctx, following).Should(gexec.Exit(1), "a fake pod has no log")
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

var _ = It("kubectl trainjob timeline tells who did what of a preempted job, in order, and where the time went", func(ctx context.Context) {
	w, _ := newRunning(ctx, "llm")
	w.preempt(ctx, "llm")
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

var _ = It("kubectl trainjob usage prints the manager's ledger by queue and flavor, and by user what the Workloads tell", func(ctx context.Context) {
	w := newPools(ctx, "8", "0")
	job := w.Job("llm").GPUs("8")
	job.Labels["example.com/user"] = "ann"
	w.MakeRunning(ctx, job, 1, onH100)
	w.EventuallyCondition(ctx, "llm", kueue.WorkloadPodsReady)
	// Objects tell whole seconds: an end may seem to be up to one second before it was.
	const second = 8.0 / 3600
	var running usage.Line
	Eventually(ctx, func(g Gomega) {
		bill := w.usage(ctx, g)
		g.Expect(bill.Lines).To(HaveLen(1))
		running = bill.Lines[0]
		g.Expect(running.Running).To(HaveValue(BeNumerically(">", 2*second)))
	}).Should(Succeed())
	Expect(running.ClusterQueue).To(Equal(w.Name("gpus")))
	Expect(running.LocalQueue).To(Equal("queue"))
	Expect(running.Resource).To(Equal(string(kit.GPU)))
	Expect(running.Held).To(HaveValue(BeNumerically("~", *running.Waiting+*running.Running+*running.Stopping, 1e-9)))
	Expect(running.Useful).To(HaveValue(BeZero()), "it runs yet")

	w.Succeed(ctx, "llm")
	done := w.usage(ctx, Default).Lines[0]
	Expect(done.Useful).To(HaveValue(BeNumerically("~", *done.Running, 1e-9)))
	Expect(done.Useful).To(HaveValue(BeNumerically(">=", *running.Running-second)))
	Expect(w.usage(ctx, Default).Lines[0]).To(Equal(done), "what is over costs no more")

	Expect(w.usage(ctx, Default, "--by", "flavor").Lines[0].Flavor).To(Equal(w.Name("h100")))
	Expect(w.usage(ctx, Default, "--by", "user", "--user-label", "example.com/user").Lines[0].User).To(Equal("ann"))
	Expect(w.usage(ctx, Default).Source).To(Equal("ledger"))
	Expect(w.usage(ctx, Default, "--since", "1s").Source).To(Equal("cluster"), "the ledger has no bill of a second")
	Expect(complaint(ctx, exit.Failed, "usage", "--since", "yesterday")).To(ContainSubstring("--since yesterday: give a time such as 12h, 30d or 4w"))
	stdout, stderr, code := plugin(ctx, "usage", "-n", w.Namespace, "-o", "csv")
	Expect(code).To(BeZero())
	Expect(stderr).To(ContainSubstring("when the manager's ledger began"))
	rows := must(csv.NewReader(strings.NewReader(stdout)).ReadAll())
	Expect(rows).To(HaveLen(2))
	Expect(rows[1]).To(ContainElements(w.Name("gpus"), "GPU-hours"))
}, SpecTimeout(specTimeout))

func (w *site) usage(ctx context.Context, g Gomega, args ...string) usage.Bill {
	return printed[usage.Bill](ctx, g, append([]string{"usage", "-n", w.Namespace}, args...)...)
}
