// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("kubectl trainjob migrate", func() {
	It("does what its page says", since(world.Trainer22), func(ctx context.Context) {
		shell(ctx, docsCommands("docs/versions.md#migrate-manifests")...)
	})
})
