// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/version"
)

var _ = Describe("kubectl trainjob version", func() {
	It("tells Kueue's release and the generation of Trainer, and finds nothing wrong", core, func(ctx context.Context) {
		stdout, stderr, code := plugin(ctx, "version", "-o", "json")
		Expect(code).To(BeZero(), stderr)
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
		Expect(stdout).To(ContainSubstring("as far as that can be seen"))
		Expect(stderr).To(MatchRegexp(`^note: you may not read customresourcedefinitions\S+, .*\nnote: you may not read deployments.apps, .*\nnote: you may not read configmaps, .*\nnote: you may not read mutatingwebhookconfigurations\S+, .*\nerror: you may not read all .*\n$`))
	}, SpecTimeout(specTimeout))

	It("does what its page in the docs says", func(ctx context.Context) {
		shell(ctx, docsCommands("docs/version.md")...)
	}, SpecTimeout(specTimeout))
})
