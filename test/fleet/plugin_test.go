// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// contexts is a kubeconfig of the fleet, of which the plugin gets to see some contexts.
type contexts struct{ file string }

// allContexts has one for each cluster, named like it.
func allContexts() contexts { return contexts{fleet.Kubeconfig()} }

// renamed has the context of the manager cluster and those given, by other names.
func renamed(names map[string]string) contexts {
	GinkgoHelper()
	config, err := clientcmd.LoadFromFile(fleet.Kubeconfig())
	Expect(err).NotTo(HaveOccurred())
	there := maps.Clone(config.Contexts)
	for _, worker := range []string{"worker1", "worker2"} {
		delete(config.Contexts, worker)
	}
	for worker, name := range names {
		config.Contexts[name] = there[worker]
	}
	file := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*config, file)).To(Succeed())
	return contexts{file}
}

// command runs bin/kubectl-trainjob on the manager cluster.
func (c contexts) command(ctx context.Context, args ...string) *exec.Cmd {
	GinkgoHelper()
	root, err := world.Root()
	Expect(err).NotTo(HaveOccurred())
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "kubectl-trainjob"), append([]string{"--context", "manager"}, args...)...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "KUBECONFIG="+c.file)
	return cmd
}

// plugin returns what the plugin printed on the manager cluster, and its exit code.
func (c contexts) plugin(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	GinkgoHelper()
	var out, errOut bytes.Buffer
	cmd := c.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		Expect(err).NotTo(HaveOccurred(), "`make build` builds what is in bin/")
	}
	GinkgoWriter.Printf("$ %s\n%s%s", strings.Join(cmd.Args, " "), out.String(), errOut.String())
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// says runs the plugin where it has nothing to complain of.
func (c contexts) says(ctx context.Context, args ...string) string {
	GinkgoHelper()
	stdout, stderr, code := c.plugin(ctx, args...)
	Expect(code).To(BeZero(), stderr)
	return stdout
}
