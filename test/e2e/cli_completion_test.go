// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("kubectl trainjob in a shell", func() {
	It("completes as its page says, with kubectl in front", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.Make(ctx, w.Job("waits").GPUs("16").Obj())
		shell(ctx, docsCommands("docs/plugin.md")...)
		offered := strings.Split(kubectl(ctx, "", "__complete", "trainjob", "explain", "-n", w.Namespace, ""), "\n")
		Expect(offered).To(ContainElement("waits"))
		Expect(offered).To(ContainElement(":4"), "no names of files")
	}, SpecTimeout(specTimeout))
})
