// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

var _ = Describe("kubectl trainjob validate", func() {
	DescribeTable("says what the API server says", core, func(ctx context.Context, metadata, spec string, valid bool) {
		w := newWorld(ctx)
		w.pools(ctx, "8", "0")
		manifest := fmt.Sprintf(`{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{"namespace":%q,%s},"spec":{%s}}`, w.namespace, metadata, spec)
		_, _, server := runBinary(ctx, manifest, "kubectl", "create", "--dry-run=server", "--validate=strict", "-f", "-")
		Expect(server).To(exitWith(valid), "the API server")
		_, _, code := pluginReading(ctx, manifest, "validate", "-f", "-", "--from-cluster")
		Expect(code).To(exitWith(valid), "the plugin")
	},
		Entry("a TrainJob with a queue", queued, torch, true),
		Entry("a queue that is no name", `"name":"job","labels":{"kueue.x-k8s.io/queue-name":"Not_A_Name"}`, torch, false),
		Entry("a label that is none", `"name":"job","labels":{"foo bar":"a"}`, torch, false),
		Entry("an amount that is none", queued, torch+`,"trainer":{"resourcesPerNode":{"limits":{"nvidia.com/gpu":"x"}}}`, false),
		Entry("a name that is none", `"name":"1job"`, torch, false),
		Entry("a runtime that is missing", queued, `"runtimeRef":{"name":"no-such-runtime"}`, false),
		Entry("a field that is none", queued, torch+`,"replicas":3`, false),
		Entry("a variable that Trainer sets", since(kit.Trainer22), queued, torch+`,"trainer":{"env":[{"name":"PET_NNODES","value":"3"}]}`, false),
		Entry("an initializer that the runtime does not have", queued, torch+`,"initializer":{"dataset":{"storageUri":"hf://a/b"}}`, false),
	)

	It("takes every runtime that Trainer ships", core, func(ctx context.Context) {
		w := newWorld(ctx)
		names := kubectl(ctx, "", "get", "clustertrainingruntimes", "-o", "jsonpath={.items[*].metadata.name}")
		for name := range strings.FieldsSeq(names) {
			manifest := fmt.Sprintf(`{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{"namespace":%q,%s},"spec":{"runtimeRef":{"name":%q}}}`, w.namespace, queued, name)
			stdout, _, code := pluginReading(ctx, manifest, "validate", "-f", "-", "--from-cluster")
			Expect(code).To(BeZero(), "%s: %s", name, stdout)
		}
	})

	It("does what its page says", core, func(ctx context.Context) {
		for _, block := range docsCommands("docs/validate.md") {
			_, stderr, code := runShell(ctx, block)
			Expect(code).To(BeZero(), "%s\n%s", block, stderr)
		}
	})
})

const (
	queued = `"name":"job","labels":{"kueue.x-k8s.io/queue-name":"queue"}`
	torch  = `"runtimeRef":{"name":"torch-distributed"}`
)

// exitWith matches the exit code of a command that succeeds, or fails.
func exitWith(success bool) types.GomegaMatcher {
	if success {
		return BeZero()
	}
	return Not(BeZero())
}
