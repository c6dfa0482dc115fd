// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"cmp"
	"context"
	"errors"
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

// startPlugin starts kubectl trainjob, which goes on until the spec is over.
func startPlugin(ctx context.Context, args ...string) *gexec.Session {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, filepath.Join(root(), "bin", "kubectl-trainjob"), append([]string{"--kubeconfig", absolute(cluster.Kubeconfig)}, args...)...)
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

// runShell runs a block of shell commands as a reader of the docs would, in the
// repository's root with kubectl and the plugin on the PATH. It ends at the first command
// that fails.
func runShell(ctx context.Context, block string) (stdout, stderr string, code int) {
	GinkgoHelper()
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", block)
	return run(cmd, "")
}

func runBinary(ctx context.Context, stdin, name string, args ...string) (stdout, stderr string, code int) {
	GinkgoHelper()
	return run(exec.CommandContext(ctx, filepath.Join(root(), "bin", name), args...), stdin)
}

func run(cmd *exec.Cmd, stdin string) (stdout, stderr string, code int) {
	GinkgoHelper()
	var out, errOut bytes.Buffer
	cmd.Dir = root()
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+absolute(cluster.Kubeconfig),
		"PATH="+filepath.Join(root(), "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		Expect(err).NotTo(HaveOccurred(), "`make build` and `make local-up` build what is in bin/")
	}
	GinkgoWriter.Printf("$ %s\n%s%s", strings.Join(cmd.Args, " "), out.String(), errOut.String())
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
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

// absolute makes paths independent of where go test runs.
func absolute(path string) string {
	GinkgoHelper()
	path, err := filepath.Abs(path)
	Expect(err).NotTo(HaveOccurred())
	return path
}
