// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("The how-to", func() {
	It("on TrainJobs from Python does what it says, and its Python has all that the SDK sends", Serial, docsPage, since(world.Trainer22), func(ctx context.Context) {
		const page = "docs/use.md#from-python"
		_, after, _ := strings.Cut(docsText(page), "```python\n")
		python, _, found := strings.Cut(after, "```")
		Expect(found).To(BeTrue(), "a block of Python")
		sent := must(os.ReadFile(filepath.Join(specs.Root(), sdkTrainJob)))
		for _, leaf := range leaves.FindAllString(string(sent), -1) {
			leaf = strings.NewReplacer("true", "True", "false", "False").Replace(strings.TrimRight(leaf, ",:"))
			if !slices.Contains([]string{`"trainer.kubeflow.org/v1alpha1"`, `"TrainJob"`, `"trainer.kubeflow.org/kubeflow-sdk"`}, leaf) {
				Expect(python).To(ContainSubstring(leaf))
			}
		}
		followsPage(ctx, page)
	}, SpecTimeout(specTimeout))

	DescribeTable("does what it says", Serial, docsPage, func(ctx context.Context, page string) {
		DeferCleanup(eventuallyNothingGenerated)
		followsPage(ctx, page)
	},
		Entry("on prebuilt Workloads", "docs/use.md#bring-a-workload-along", SpecTimeout(specTimeout)),
		Entry("on ProvisioningRequests", "docs/operate.md#nodes-on-request", SpecTimeout(specTimeout)),
		Entry("on priorities", "docs/use.md#raise-a-priority", SpecTimeout(specTimeout)),
		Entry("on time limits", "docs/use.md#limit-the-time", SpecTimeout(specTimeout)),
		Entry("on a job that does not start", long, since(world.Trainer22), "docs/troubleshooting.md#my-job-does-not-start", SpecTimeout(specTimeout)),
		Entry("on preemption", since(world.Trainer23), "docs/use.md#checkpoints-and-preemption", SpecTimeout(specTimeout)),
		Entry("on slices and shared GPUs", "docs/use.md#mig-and-shared-gpus", SpecTimeout(specTimeout)),
		Entry("on several pools", since(world.Trainer22), "docs/use.md#several-pools", SpecTimeout(specTimeout)),
	)
})

// sdkTrainJob is what kubeflow.trainer's TrainerClient sends for the Python of docs/use.md#from-python: a
// CustomTrainerContainer with options Name, Labels, Annotations, TrainerCommand, TrainerArgs and RuntimePatch.
const sdkTrainJob = "docs/samples/sdk-trainjob.json"

// leaves are the values of indented JSON, and the keys that people choose.
var leaves = regexp.MustCompile(`(?m)"[^"]*/[^"]*":|(?:"[^"]*"|[\w.]+),?$`)

var _ = It("The page on forecasts shows what simulate prints for its samples", Serial, docsPage, func(ctx context.Context) {
	for _, step := range docsSteps("docs/forecast.md#what-if") {
		followsStep(ctx, step)
	}
}, SpecTimeout(specTimeout))

var _ = It("A job whose Workload somebody finished is told what the how-to says", func(ctx context.Context) {
	w := newPools(ctx, "8", "0")
	w.MakePending(ctx, w.Job("waits").Nodes(2).GPUs("8"))
	wl := w.Workload(ctx, "waits")
	w.ChangeStatus(ctx, wl, func() {
		apimeta.SetStatusCondition(&wl.Status.Conditions, metav1.Condition{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue,
			Reason: "ByHand", Message: "it was in the way", LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Minute))})
	})

	state := w.eventuallyExplained(ctx, "waits", explain.Deactivated, "ByHand").State
	Expect(state.Stuck).To(BeTrue())
	page := docsText("docs/troubleshooting.md#my-job-does-not-start")
	told := strings.ReplaceAll(strings.TrimSuffix(state.Message, ": it was in the way"), wl.Name, "...")
	Expect(page).To(ContainSubstring(told))
}, SpecTimeout(specTimeout))

var _ = DescribeTable("kubectl trainjob does for a user what its page says", Serial, docsPage, func(ctx context.Context, page string) {
	runsPage(ctx, page, pageUser(ctx, "jobs"))
},
	Entry("on list", "docs/plugin.md#list", SpecTimeout(specTimeout)),
	Entry("on timeline", "docs/plugin.md#timeline", SpecTimeout(specTimeout)),
	Entry("on usage", "docs/operate.md#who-used-what", SpecTimeout(specTimeout)),
	Entry("on hold, stop, resume and requeue", "docs/plugin.md#hold-stop-resume-requeue", SpecTimeout(specTimeout)),
)

var _ = DescribeTable("kubectl trainjob does what its page says", func(ctx context.Context, page string) {
	shell(ctx, docsCommands(page)...)
},
	Entry("on version", "docs/plugin.md#version", SpecTimeout(specTimeout)),
	Entry("on migrate", since(world.Trainer22), "docs/versions.md#migrate-manifests", SpecTimeout(specTimeout)),
)

var _ = It("The runbooks' commands look at a cluster that is in order", Serial, docsPage, func(ctx context.Context) {
	for _, page := range []string{
		"docs/runbooks/KueueTrainerAbsent.md", "docs/runbooks/KueueTrainerBothIntegrationsActive.md", "docs/runbooks/KueueTrainerInTreeUnknown.md",
		"docs/runbooks/KueueTrainerTrainerUnknown.md", "docs/runbooks/KueueTrainerWebhookFailing.md", "docs/runbooks/KueueTrainerWritesInVain.md",
	} {
		for _, block := range docsCommands(page) {
			// doctor ends with 2 where something is wrong, such as nodes that no flavor has.
			shell(ctx, "kubectl() { command kubectl \"$@\" || test $? -eq 2; }\n"+block)
		}
	}
}, SpecTimeout(specTimeout))

// followsPage runs the blocks of a page, of which the last cleans up, and expects the output that the page shows.
func followsPage(ctx context.Context, page string) {
	steps := docsSteps(page)
	last := len(steps) - 1
	DeferCleanup(cleansUp, steps[last].Commands)
	for _, step := range steps[:last] {
		followsStep(ctx, step)
	}
}

// followsStep runs a block, again where the page shows what it prints, until it prints that.
func followsStep(ctx context.Context, step pages.Step) {
	attempt := func(g Gomega) {
		stdout, stderr, code := runShell(ctx, step.Commands)
		g.Expect(code).To(BeZero(), "%s\n%s", step.Commands, stderr)
		for line := range strings.Lines(step.Shown) {
			if shown := strings.TrimSpace(line); shown != "" {
				g.Expect(stdout+stderr).To(MatchRegexp(asShown(shown)), "what the page shows of\n%s", step.Commands)
			}
		}
	}
	if step.Shown == "" {
		attempt(Default)
		return
	}
	Eventually(ctx, attempt).Should(Succeed())
}

var (
	spaces = regexp.MustCompile(`\s+`)
	// varies is a time of day, one that has passed, or a share.
	varies = regexp.MustCompile(`\b\d\d:\d\d:\d\d\b|\b\d+(\\\.\d+)?(ms|s|m|h)\b|\b\d+%`)
	hash   = regexp.MustCompile(`(trainjob-[a-z0-9-]+-)[0-9a-f]{5}\b`)
)

// asShown is what matches a line of the docs in an output: how wide its columns are, times, and
// the hashes in names of Workloads may differ, and ... stands for anything.
func asShown(line string) string {
	pattern := varies.ReplaceAllString(regexp.QuoteMeta(line), `\S+`)
	pattern = hash.ReplaceAllString(pattern, `${1}[0-9a-f]{5}`)
	pattern = strings.ReplaceAll(pattern, `\.\.\.`, `.*`)
	return spaces.ReplaceAllString(pattern, `\s+`)
}
