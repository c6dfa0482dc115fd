// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/version"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
)

// These examples take the installation away, or change it for all specs; what they do has specs and tests of its own.
var notRun = []string{"kubectl trainjob uninstall", "kubectl delete -k config/default", "kubectl trainjob hand-back", "kubectl replace",
	// Fake pods have no logs, and jq is not on everybody's machine.
	"kubectl trainjob logs", "| jq",
	// Nobody runs a Prometheus here.
	"--prometheus"}

var _ = Describe("the help of kubectl trainjob", func() {
	It("has examples that run", Serial, core, func(ctx context.Context) {
		w := newPools(ctx, "32", "0")
		w.MakeRunning(ctx, w.Job("llm").GPUs("8"), 1, onH100)
		w.MakePending(ctx, w.Job("big").Nodes(4).GPUs("8"))
		// Whatever becomes of these two, one has quota and one waits for it.
		w.MakeRunning(ctx, w.Job("rest").GPUs("8"), 1, onH100)
		w.MakePending(ctx, w.Job("next").Nodes(8).GPUs("4"))
		vision, language := w.Name("vision"), w.Name("language")
		w.Make(ctx, kit.Namespace(vision), kit.Namespace(language))
		DeferCleanup(eventuallyNothingGenerated)
		if len(kubeletNodes(ctx)) > 0 {
			w.Make(ctx, w.kubeletFlavor(), kit.ClusterQueue(w.Name("kubelet"), kit.Quota{Flavor: w.Name("kubelet"), GPUs: "8"}))
		}
		// What an earlier spec deletes may take a while to go, and doctor is among the examples.
		w.eventuallyInOrder(ctx)
		shell := w.exampleShell(ctx)
		// Only one that waits may have another priority, or start now.
		w.Make(ctx, kit.Priority(w.Name("urgent"), 1000))
		here := strings.NewReplacer("--set-quota team-a/h100", "--set-quota "+w.Name("gpus")+"/"+w.Name("h100"), "--for team-a/llm", "--for "+w.Namespace+"/next", "explain llm -n team-a --priority urgent", "explain big -n "+w.Namespace+" --priority "+w.Name("urgent"), "team-a", w.Namespace, "--queue gpus", "--queue queue", "vision", vision, "language", language)
		for name, of := range map[string]string{"queues.yaml": "forecast-queues.yaml", "july.csv": "forecast-jobs.csv"} {
			content := must(os.ReadFile(filepath.Join(specs.Root(), "docs/samples", of)))
			shell.write(name, here.Replace(string(content)))
		}
		shell.write("fair.yaml", "fairSharing: {}")
		ran := 0
		for _, cmd := range allCommands(cli.NewCommand(genericiooptions.NewTestIOStreamsDiscard())) {
			Expect(cmd.Example).NotTo(BeEmpty(), "%s has no example", cmd.CommandPath())
			for _, example := range commandsOf(cmd.Example) {
				if slices.ContainsFunc(notRun, func(part string) bool { return strings.Contains(example, part) }) {
					continue
				}
				ran++
				shell.run(ctx, here.Replace(example))
				if strings.Contains(example, "trainjob submit") || strings.Contains(example, "create -f") {
					kubectl(ctx, "", "delete", "trainjobs", "llama", "job", "-n", w.Namespace, "--ignore-not-found", "--cascade=foreground")
				}
			}
		}
		Expect(ran).To(BeNumerically(">", 20))
	}, SpecTimeout(specTimeout))

	It("says in one sentence why there is no answer", func(ctx context.Context) {
		Expect(complaint(ctx, 1, "pools", "--server", "https://127.0.0.1:1")).
			To(HaveSuffix("the API server at https://127.0.0.1:1 cannot be reached (connection refused): " +
				"check that it runs, and that --context or --kubeconfig names the cluster that you mean\n"))
		_, stderr, code := runShell(ctx, "env -u KUBECONFIG HOME=/nowhere kubectl-trainjob explain llm")
		Expect(code).To(Equal(1))
		Expect(stderr).To(Equal("error: no cluster is configured: name a kubeconfig file with --kubeconfig or KUBECONFIG, or a server with --server\n"))
		Expect(complaint(ctx, 1, "pools", "--context", "no-such")).
			To(Equal("error: context \"no-such\" does not exist: kubectl config get-contexts lists those that there are\n"))
	}, SpecTimeout(specTimeout))
})

// allCommands are the commands that do something, and the root.
func allCommands(root *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{root}
	for _, cmd := range root.Commands() {
		if !cmd.Hidden && cmd.Name() != "completion" && cmd.Name() != "help" {
			all = append(all, allCommands(cmd)...)
		}
	}
	return all
}

// commandsOf are the commands of an Example block.
func commandsOf(examples string) []string {
	var all []string
	for line := range strings.Lines(strings.ReplaceAll(examples, "\\\n", "")) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, line)
		}
	}
	return all
}

// exampleShell is a directory with the files that examples name, and a kubeconfig of the world's namespace.
type exampleShell struct{ dir string }

func (w *site) exampleShell(ctx context.Context) exampleShell {
	s := exampleShell{GinkgoT().TempDir()}
	job := w.listOf(`{"kind":"TrainJob","metadata":{"name":"job"},"spec":{` + torch + `}}`)
	s.write("job.yaml", job)
	s.write("manifests/job.yaml", job)
	s.write("runtimes/own.yaml", w.listOf(runtimeOf("", `"image":"i"`)))
	s.write("kubeconfig", kubectl(ctx, "", "config", "view", "--raw", "--flatten"))
	s.run(ctx, "kubectl config set-context --current --namespace="+w.Namespace)
	s.run(ctx, `kubectl config set-context new --cluster="$(kubectl config view --minify -o jsonpath='{.contexts[0].context.cluster}')" --user="$(kubectl config view --minify -o jsonpath='{.contexts[0].context.user}')"`)
	s.run(ctx, "kubectl create role ml-team -n "+w.Namespace+" --verb=get,list --resource=trainjobs.trainer.kubeflow.org,workloads.kueue.x-k8s.io,jobsets.jobset.x-k8s.io,pods,events,configmaps")
	s.run(ctx, "kubectl create rolebinding ml-team -n "+w.Namespace+" --role=ml-team --group=ml-team")
	return s
}

func (s exampleShell) write(path, content string) {
	path = filepath.Join(s.dir, path)
	Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
	Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
}

// run runs an example. One that follows is ended after a while; one that shows differences may find some.
func (s exampleShell) run(ctx context.Context, example string) {
	follows := strings.HasSuffix(example, " --watch")
	if follows {
		example = "timeout 2 " + example
	}
	at := specs.Terminal{Kubeconfig: filepath.Join(s.dir, "kubeconfig")}
	cmd := at.Shell(ctx, "set +e; "+example)
	cmd.Dir = s.dir
	stdout, stderr, code := at.Run(cmd, "")
	want := []any{0}
	if follows {
		want = []any{124}
	} else if strings.Contains(example, "kubectl diff") {
		want = []any{0, 1}
	}
	Expect(code).To(BeElementOf(want...), "%s\n%s%s", example, stdout, stderr)
	if example == "kubectl apply -f pools.yaml" {
		s.run(ctx, "kubectl delete -f pools.yaml")
	}
}

var _ = Describe("kubectl trainjob in a shell", func() {
	It("does for a user what the page on rights says", Serial, docsPage, func(ctx context.Context) {
		runsPage(ctx, "docs/rights.md", "")
	}, SpecTimeout(specTimeout))

	It("completes as its page says, with kubectl in front", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.Make(ctx, w.Job("waits").GPUs("16").Obj())
		shell(ctx, docsCommands("docs/plugin.md#install")...)
		shell(ctx, docsCommands("docs/plugin.md#as-in-kubectl")...)
		offered := strings.Split(kubectl(ctx, "", "__complete", "trainjob", "explain", "-n", w.Namespace, ""), "\n")
		Expect(offered).To(ContainElements("waits", ":4"), ":4 is for no names of files")
		for flag, offers := range map[string][]any{"pools -n": {w.Namespace}, "pools --context": {"user"}, "usage --by": {"queue", "user", "flavor"}} {
			asked := append(append([]string{"__complete"}, strings.Fields(flag)...), "")
			Expect(strings.Split(said(ctx, Default, asked...), "\n")).To(ContainElements(offers...), flag)
		}
	}, SpecTimeout(specTimeout))
})

var _ = Describe("kubectl trainjob version", func() {
	It("tells Kueue's release and the generation of Trainer, and finds nothing wrong", core, func(ctx context.Context) {
		stdout := said(ctx, Default, "version", "-o", "json")
		var report version.Report
		Expect(json.Unmarshal([]byte(stdout), &report)).To(Succeed())
		Expect(report.Problems).To(BeEmpty())
		Expect(report.Parts).To(ContainElements(
			And(HaveField("Name", "Kueue"), HaveField("Version", HavePrefix("v"+report.Parts[0].Wants))),
			And(HaveField("Name", "Trainer"), HaveField("Generation", trainerOf(ctx)))))
	}, SpecTimeout(specTimeout))

	It("tells somebody without rights what he may not read, once of each kind", func(ctx context.Context) {
		stdout, stderr, code := plugin(ctx, "version", "--as", "nobody")
		Expect(code).To(Equal(exit.Unseen), stderr)
		Expect(stdout).To(ContainSubstring("Nothing can be seen that tells whether they go together."))
		Expect(strings.Split(stderr, "\n")).To(ConsistOf(
			HavePrefix("note: you may not read customresourcedefinitions."), HavePrefix("note: you may not read deployments.apps, "),
			HavePrefix("note: you may not read configmaps, "), HavePrefix("note: you may not read mutatingwebhookconfigurations."),
			HavePrefix("error: you may not read all "), BeEmpty()))
	}, SpecTimeout(specTimeout))
})
