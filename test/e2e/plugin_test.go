// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// plugin runs bin/kubectl-trainjob against the specs' cluster and gives what it printed
// and its exit code.
func plugin(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	GinkgoHelper()
	return pluginReading(ctx, "", args...)
}

// pluginReading is plugin with a standard input.
func pluginReading(ctx context.Context, stdin string, args ...string) (stdout, stderr string, code int) {
	GinkgoHelper()
	return runBinary(ctx, stdin, "kubectl-trainjob", args...)
}

// said runs the plugin where it has nothing to complain of, and gives what it printed.
func said(ctx context.Context, g Gomega, args ...string) string {
	GinkgoHelper()
	stdout, stderr, code := plugin(ctx, args...)
	g.Expect(code).To(BeZero(), stderr)
	return stdout
}

// printed reads what the plugin prints as JSON.
func printed[T any](ctx context.Context, g Gomega, args ...string) T {
	GinkgoHelper()
	var read T
	g.Expect(json.Unmarshal([]byte(said(ctx, g, append(args, "-o", "json")...)), &read)).To(Succeed())
	return read
}

// refused runs the plugin where it ends with an exit code, and gives what it complains of.
func refused(ctx context.Context, code int, args ...string) string {
	GinkgoHelper()
	stdout, stderr, got := plugin(ctx, args...)
	Expect(got).To(Equal(code), stdout+stderr)
	return stderr
}

// startPlugin starts kubectl trainjob, which goes on until the spec is over.
func startPlugin(ctx context.Context, args ...string) *gexec.Session {
	GinkgoHelper()
	cmd, err := terminal().Command(ctx, "kubectl-trainjob", args...)
	Expect(err).NotTo(HaveOccurred())
	session, err := gexec.Start(cmd, GinkgoWriter, GinkgoWriter)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { session.Kill() })
	return session
}

// kubectl runs bin/kubectl and expects it to succeed; it gives what it printed.
func kubectl(ctx context.Context, stdin string, args ...string) string {
	GinkgoHelper()
	stdout, stderr, code := runBinary(ctx, stdin, "kubectl", args...)
	Expect(code).To(BeZero(), "kubectl %s: %s", strings.Join(args, " "), stderr)
	return stdout
}

// runShell runs a block of shell commands as a reader of the docs would.
func runShell(ctx context.Context, block string) (stdout, stderr string, code int) {
	GinkgoHelper()
	cmd, err := terminal().Shell(ctx, block)
	Expect(err).NotTo(HaveOccurred())
	return run(cmd, "")
}

// shell runs blocks that succeed; it gives what they printed.
func shell(ctx context.Context, blocks ...string) string {
	GinkgoHelper()
	all := ""
	for _, block := range blocks {
		stdout, stderr, code := runShell(ctx, block)
		Expect(code).To(BeZero(), "%s\n%s", block, stderr)
		all += stdout
	}
	return all
}

func runBinary(ctx context.Context, stdin, name string, args ...string) (stdout, stderr string, code int) {
	GinkgoHelper()
	cmd, err := terminal().Command(ctx, name, args...)
	Expect(err).NotTo(HaveOccurred())
	return run(cmd, stdin)
}

func run(cmd *exec.Cmd, stdin string) (stdout, stderr string, code int) {
	GinkgoHelper()
	cmd.Stdin = strings.NewReader(stdin)
	stdout, stderr, code, err := terminal().Run(cmd)
	Expect(err).NotTo(HaveOccurred())
	return stdout, stderr, code
}

// terminal is that of the specs' cluster.
func terminal() world.Terminal {
	return world.Terminal{Kubeconfig: cluster.Kubeconfig, Log: GinkgoWriter}
}

// runsPage runs the blocks of a page of the docs. The last one cleans up, whatever happens.
func runsPage(ctx context.Context, page string) {
	GinkgoHelper()
	blocks := docsCommands(page)
	last := len(blocks) - 1
	DeferCleanup(func(ctx context.Context) { shell(ctx, blocks[last]) })
	shell(ctx, blocks[:last]...)
}

// docsCommands returns the sh blocks of a page below the repository's root, in their order.
func docsCommands(page string) []string {
	GinkgoHelper()
	var blocks []string
	for _, step := range docsSteps(page) {
		blocks = append(blocks, step.commands)
	}
	return blocks
}

// docsStep is a sh block of a page, and what the text blocks behind it show of its output.
type docsStep struct{ commands, shown string }

// docsSteps returns the sh blocks of a page below the repository's root, in their order.
func docsSteps(page string) []docsStep {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join(root(), page))
	Expect(err).NotTo(HaveOccurred())
	var steps []docsStep
	fence := ""
	for line := range strings.Lines(string(content)) {
		mark, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case fence != "" && isFence:
			fence = ""
		case isFence:
			if fence = cmp.Or(mark, "none"); fence == "sh" {
				steps = append(steps, docsStep{})
			}
		case fence == "sh":
			steps[len(steps)-1].commands += line
		case fence == "text" && len(steps) > 0:
			steps[len(steps)-1].shown += line
		}
	}
	Expect(steps).NotTo(BeEmpty(), "%s has no sh block", page)
	return steps
}

func root() string {
	GinkgoHelper()
	dir, err := world.Root()
	Expect(err).NotTo(HaveOccurred())
	return dir
}
