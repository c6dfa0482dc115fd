// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var shell = regexp.MustCompile("(?s)\n```sh\n(.*?)\n```")

var _ = Describe("docs/multikueue.md", func() {
	It("has commands that run as they stand", func(ctx context.Context) {
		root, err := world.Root()
		Expect(err).NotTo(HaveOccurred())
		page, err := os.ReadFile(filepath.Join(root, "docs", "multikueue.md"))
		Expect(err).NotTo(HaveOccurred())
		blocks := shell.FindAllSubmatch(page, -1)
		Expect(blocks).NotTo(BeEmpty())
		for _, block := range blocks {
			cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", string(block[1]))
			cmd.Dir, cmd.Stdout, cmd.Stderr = root, GinkgoWriter, GinkgoWriter
			cmd.Env = append(os.Environ(), "KUBECONFIG="+fleet.Kubeconfig(), "PATH="+filepath.Join(root, "bin")+":"+os.Getenv("PATH"))
			Expect(cmd.Run()).To(Succeed(), "%s", block[1])
		}
	}, SpecTimeout(specTimeout))
})
