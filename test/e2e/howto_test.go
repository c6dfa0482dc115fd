// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("The how-to", func() {
	It("on TrainJobs from Python does what it says, and its Python has all that the SDK sends", Serial, docsPage, since(world.Trainer22), func(ctx context.Context) {
		const page = "docs/use.md#from-python"
		_, after, _ := strings.Cut(docsText(page), "```python\n")
		python, _, found := strings.Cut(after, "```")
		Expect(found).To(BeTrue(), "a block of Python")
		sent := map[string]any{}
		data := must(os.ReadFile(filepath.Join(specs.Root(), sdkTrainJob)))
		Expect(json.Unmarshal(data, &sent)).To(Succeed())
		delete(sent, "apiVersion")
		delete(sent, "kind")
		for _, leaf := range pythonLeaves(sent) {
			if leaf != `"trainer.kubeflow.org/kubeflow-sdk"` {
				Expect(python).To(ContainSubstring(leaf))
			}
		}
		newWorld(ctx).followsPage(ctx, page)
	}, SpecTimeout(specTimeout))

	DescribeTable("does what it says", Serial, docsPage, func(ctx context.Context, page string) {
		newWorld(ctx).followsPage(ctx, page)
	},
		Entry("on prebuilt Workloads", "docs/use.md#bring-a-workload-along", SpecTimeout(specTimeout)),
		Entry("on ProvisioningRequests", "docs/operate.md#nodes-on-request", SpecTimeout(specTimeout)),
		Entry("on priorities", "docs/use.md#raise-a-priority", SpecTimeout(specTimeout)),
		Entry("on time limits", "docs/use.md#limit-the-time", SpecTimeout(specTimeout)),
	)
})

// sdkTrainJob is what kubeflow.trainer's TrainerClient sends for the Python of
// docs/use.md#from-python: a CustomTrainerContainer with options Name, Labels, Annotations,
// TrainerCommand, TrainerArgs and RuntimePatch.
const sdkTrainJob = "docs/samples/sdk-trainjob.json"

// pythonLeaves returns the values of a JSON value, and the keys that people choose, as Python
// writes them.
func pythonLeaves(value any) []string {
	var leaves []string
	switch v := value.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if strings.Contains(key, "/") {
				leaves = append(leaves, strconv.Quote(key))
			}
			leaves = append(leaves, pythonLeaves(v[key])...)
		}
	case []any:
		for _, item := range v {
			leaves = append(leaves, pythonLeaves(item)...)
		}
	case string:
		leaves = append(leaves, strconv.Quote(v))
	case bool:
		leaves = append(leaves, map[bool]string{true: "True", false: "False"}[v])
	default:
		leaves = append(leaves, fmt.Sprint(v))
	}
	return leaves
}

var _ = It("The page on forecasts shows what simulate prints for its samples", Serial, docsPage, func(ctx context.Context) {
	w := newWorld(ctx)
	for _, step := range docsSteps("docs/forecast.md#what-if") {
		w.followsStep(ctx, step)
	}
}, SpecTimeout(specTimeout))

var _ = Describe("What the how-tos say of jobs that run, or do not", func() {
	It("is what is printed for a job that does not start", Serial, docsPage, since(world.Trainer22), long, func(ctx context.Context) {
		newWorld(ctx).followsPage(ctx, "docs/troubleshooting.md#my-job-does-not-start")
	}, SpecTimeout(specTimeout))

	It("is what is printed for a job whose Workload somebody finished", func(ctx context.Context) {
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

	It("is what becomes of a job that is preempted", Serial, docsPage, since(world.Trainer23), func(ctx context.Context) {
		newWorld(ctx).followsPage(ctx, "docs/use.md#checkpoints-and-preemption")
	}, SpecTimeout(specTimeout))

	It("is how slices and shared GPUs are asked for", Serial, docsPage, func(ctx context.Context) {
		DeferCleanup(eventuallyNothingGenerated)
		newWorld(ctx).followsPage(ctx, "docs/use.md#mig-and-shared-gpus")
	}, SpecTimeout(specTimeout))

	It("is how a queue with several pools gives its GPUs away", Serial, docsPage, since(world.Trainer22), func(ctx context.Context) {
		newWorld(ctx).followsPage(ctx, "docs/use.md#several-pools")
	}, SpecTimeout(specTimeout))
})

// followsPage runs the blocks of a page, the last of which cleans up, and expects what the page
// shows of a block's output to be printed.
func (w *site) followsPage(ctx context.Context, page string) {
	steps := docsSteps(page)
	last := len(steps) - 1
	DeferCleanup(cleansUp, steps[last].commands)
	for _, step := range steps[:last] {
		w.followsStep(ctx, step)
	}
}

// followsStep runs a block, again where the page shows what it prints, until it prints that.
func (w *site) followsStep(ctx context.Context, step docsStep) {
	attempt := func(g Gomega) {
		stdout, stderr, code := runShell(ctx, step.commands)
		g.Expect(code).To(BeZero(), "%s\n%s", step.commands, stderr)
		for line := range strings.Lines(step.shown) {
			if shown := strings.TrimSpace(line); shown != "" {
				g.Expect(stdout+stderr).To(MatchRegexp(asShown(shown)), "what the page shows of\n%s", step.commands)
			}
		}
	}
	if step.shown == "" {
		attempt(Default)
		return
	}
	Eventually(ctx, attempt).Should(Succeed())
}

var (
	spaces  = regexp.MustCompile(`\s+`)
	elapsed = regexp.MustCompile(`\b\d+(\\\.\d+)?(ms|s|m|h)\b`)
	clock   = regexp.MustCompile(`\b\d\d:\d\d:\d\d\b`)
	percent = regexp.MustCompile(`\b\d+%`)
	hash    = regexp.MustCompile(`(trainjob-[a-z0-9-]+-)[0-9a-f]{5}\b`)
)

// asShown is what matches a line of the docs in an output: how wide its columns are, times, and
// the hashes in names of Workloads may differ, and ... stands for anything.
func asShown(line string) string {
	pattern := regexp.QuoteMeta(line)
	pattern = clock.ReplaceAllString(pattern, `\S+`)
	pattern = elapsed.ReplaceAllString(pattern, `\S+`)
	pattern = percent.ReplaceAllString(pattern, `\S+`)
	pattern = hash.ReplaceAllString(pattern, `${1}[0-9a-f]{5}`)
	pattern = strings.ReplaceAll(pattern, `\.\.\.`, `.*`)
	return spaces.ReplaceAllString(pattern, `\s+`)
}
