// SPDX-License-Identifier: Apache-2.0

// Package specs runs suites of Ginkgo's specs, and says of each failure which line of a spec it is.
package specs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// Run runs the specs of a package. A condition that a healthy control plane meets in milliseconds may
// take as long as patience on a machine that builds something beside it.
func Run(t *testing.T, suite string, patience time.Duration) {
	gomega.RegisterFailHandler(func(message string, _ ...int) { ginkgo.Fail(message, callersBelowSpec()) })
	gomega.EnforceDefaultTimeoutsWhenUsingContexts()
	gomega.SetDefaultEventuallyTimeout(patience)
	gomega.SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	gomega.SetDefaultConsistentlyDuration(2 * time.Second)
	gomega.SetDefaultConsistentlyPollingInterval(100 * time.Millisecond)
	ginkgo.RunSpecs(t, suite)
}

// callersBelowSpec counts the callers between here and the spec, or the hook around it: the outermost that is
// in a file of tests. So no helper has to say that it is one.
func callersBelowSpec() (depth int) {
	callers := make([]uintptr, 100)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for i, more := 0, true; more; i++ {
		var frame runtime.Frame
		if frame, more = frames.Next(); strings.HasSuffix(frame.File, "_test.go") {
			depth = i
		}
	}
	return depth
}

// Must returns a value, and fails the spec where there is an error.
func Must[T any](value T, err error) T {
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return value
}

// Terminal is where people type: in a directory with all that the repository's root has, with
// kubectl and the plugin on the PATH. What cannot be started fails the spec.
type Terminal struct{ Kubeconfig string }

// Command is a program of bin/.
func (t Terminal) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return t.at(exec.CommandContext(ctx, filepath.Join(Root(), "bin", name), args...))
}

// Shell is a block of shell commands as a reader of the docs runs it. It ends at the first command that fails.
func (t Terminal) Shell(ctx context.Context, block string) *exec.Cmd {
	return t.at(exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", block))
}

func (t Terminal) at(cmd *exec.Cmd) *exec.Cmd {
	// Paths are independent of where go test runs.
	kubeconfig, err := filepath.Abs(t.Kubeconfig)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	cmd.Dir, err = workDir()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "PATH="+filepath.Join(Root(), "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	return cmd
}

// Root is the repository's root directory.
func Root() string {
	root, err := world.Root()
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return root
}

// workDir has a link to everything in the repository's root. What commands write lies there: the
// checkout stays as it is, and specs of other processes write beside it. There is one for each process,
// since the commands of a page read what those before have written.
var workDir = sync.OnceValues(func() (string, error) {
	root := Root()
	entries, err := os.ReadDir(root)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root, ".tests", "terminals", strconv.Itoa(os.Getpid()))
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o755)); err != nil {
		return "", err
	}
	for _, entry := range entries {
		err = errors.Join(err, os.Symlink(filepath.Join(root, entry.Name()), filepath.Join(dir, entry.Name())))
	}
	return dir, err
})

// Run runs a command with a standard input, and returns what it printed and its exit code.
func (t Terminal) Run(cmd *exec.Cmd, stdin string) (stdout, stderr string, code int) {
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	if err := cmd.Run(); !errors.As(err, new(*exec.ExitError)) {
		gomega.Expect(err).NotTo(gomega.HaveOccurred(), "`make build` and `make local-up` build what is in bin/")
	}
	fmt.Fprintf(ginkgo.GinkgoWriter, "$ %s\n%s%s", strings.Join(cmd.Args, " "), out.String(), errOut.String())
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// Start starts a command, which goes on until the spec is over.
func (t Terminal) Start(cmd *exec.Cmd) *gexec.Session {
	session, err := gexec.Start(cmd, ginkgo.GinkgoWriter, ginkgo.GinkgoWriter)
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	ginkgo.DeferCleanup(func() { session.Kill().Wait() })
	return session
}
