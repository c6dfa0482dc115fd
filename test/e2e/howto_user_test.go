// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("The how-to", func() {
	It("on TrainJobs from Python does what it says, and its Python has all that the SDK sends", Serial, docsPage, since(world.Trainer22), func(ctx context.Context) {
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
		newWorld(ctx).followsPage(ctx, page)
	}, SpecTimeout(specTimeout))

	DescribeTable("does what it says", Serial, docsPage, func(ctx context.Context, page string) {
		newWorld(ctx).followsPage(ctx, page)
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
