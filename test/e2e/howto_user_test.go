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

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

var _ = Describe("The how-to", func() {
	It("on TrainJobs from Python does what it says, and its Python has all that the SDK sends", since(kit.Trainer22), func(ctx context.Context) {
		const page = "docs/howto/python.md"
		python, sent := pythonOf(page), map[string]any{}
		data, err := os.ReadFile(filepath.Join(root(), sdkTrainJob))
		Expect(err).NotTo(HaveOccurred())
		Expect(json.Unmarshal(data, &sent)).To(Succeed())
		delete(sent, "apiVersion")
		delete(sent, "kind")
		for _, leaf := range pythonLeaves(sent) {
			if leaf != `"trainer.kubeflow.org/kubeflow-sdk"` {
				Expect(python).To(ContainSubstring(leaf))
			}
		}
		newWorld(ctx).runsPageAsShown(ctx, page)
	}, SpecTimeout(specTimeout))

	DescribeTable("does what it says", func(ctx context.Context, page string) {
		newWorld(ctx).runsPageAsShown(ctx, page)
	},
		Entry("on prebuilt Workloads", "docs/howto/prebuilt.md", SpecTimeout(specTimeout)),
		Entry("on ProvisioningRequests", "docs/howto/provisioning.md", SpecTimeout(specTimeout)),
		Entry("on time limits", "docs/howto/max-execution-time.md", SpecTimeout(specTimeout)),
	)
})

// pythonOf returns the first Python block of a page.
func pythonOf(page string) string {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(root(), page))
	Expect(err).NotTo(HaveOccurred())
	_, from, found := strings.Cut(string(content), "```python\n")
	Expect(found).To(BeTrue())
	block, _, _ := strings.Cut(from, "```")
	return block
}

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

// step is an sh block of a page, and the text block below it that shows what it prints.
type step struct{ block, shown string }

var fenced = regexp.MustCompile("(?ms)^```(sh|text)\n(.*?)^```\n")

// stepsOf returns the steps of a page.
func stepsOf(page string) []step {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(root(), page))
	Expect(err).NotTo(HaveOccurred())
	var steps []step
	end := 0
	for _, at := range fenced.FindAllSubmatchIndex(content, -1) {
		text := string(content[at[4]:at[5]])
		switch follows := strings.TrimSpace(string(content[end:at[0]])) == ""; {
		case string(content[at[2]:at[3]]) == "sh":
			steps = append(steps, step{block: text})
		case follows && len(steps) > 0:
			steps[len(steps)-1].shown = text
		}
		end = at[1]
	}
	Expect(steps).NotTo(BeEmpty(), "%s has no sh block", page)
	return steps
}

// runsPageAsShown runs the blocks of a page, those with an output below until they print it.
// The last one cleans up, whatever happens.
func (w *world) runsPageAsShown(ctx context.Context, page string) {
	GinkgoHelper()
	steps := stepsOf(page)
	last := len(steps) - 1
	DeferCleanup(func(ctx context.Context) { steps[last].run(ctx, Default) })
	for _, s := range steps[:last] {
		if s.shown == "" {
			s.run(ctx, Default)
			continue
		}
		Eventually(ctx, func(g Gomega) {
			printed := s.run(ctx, g)
			for _, pattern := range s.patterns() {
				g.Expect(printed).To(MatchRegexp(pattern))
			}
		}).Should(Succeed())
	}
}

func (s step) run(ctx context.Context, g Gomega) string {
	GinkgoHelper()
	stdout, stderr, code := runShell(ctx, s.block)
	g.Expect(code).To(BeZero(), "%s\n%s", s.block, stderr)
	return stdout
}

// patterns match the lines shown between those that are "...", which stands for anything within
// a line, too.
func (s step) patterns() []string {
	var patterns []string
	for lines := range strings.SplitSeq(strings.TrimSuffix(s.shown, "\n"), "\n...\n") {
		patterns = append(patterns, "(?m)^"+strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSuffix(lines, "\n...")), `\.\.\.`, ".*")+"$")
	}
	return patterns
}
