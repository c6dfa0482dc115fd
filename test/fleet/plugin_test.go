// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"maps"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gexec"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kueue-trainer/kueue-trainer/test/kit/specs"
)

// contexts is a kubeconfig of the fleet, of which the plugin gets to see some contexts.
type contexts struct{ specs.Terminal }

// allContexts has one for each cluster, named like it.
func allContexts() contexts { return of(fleet.Kubeconfig()) }

func of(file string) contexts { return contexts{specs.Terminal{Kubeconfig: file}} }

// renamed has the context of the manager cluster and those given, by other names.
func renamed(names map[string]string) contexts {
	config := must(clientcmd.LoadFromFile(fleet.Kubeconfig()))
	there := maps.Clone(config.Contexts)
	for _, worker := range []string{"worker1", "worker2"} {
		delete(config.Contexts, worker)
	}
	for worker, name := range names {
		config.Contexts[name] = there[worker]
	}
	file := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(clientcmd.WriteToFile(*config, file)).To(Succeed())
	return of(file)
}

// command runs bin/kubectl-trainjob on the manager cluster.
func (c contexts) command(ctx context.Context, args ...string) *exec.Cmd {
	return c.Command(ctx, "kubectl-trainjob", append([]string{"--context", "manager"}, args...)...)
}

// start starts the plugin, which goes on until the spec is over.
func (c contexts) start(ctx context.Context, args ...string) *gexec.Session {
	return c.Start(c.command(ctx, args...))
}

// plugin returns what the plugin printed on the manager cluster, and its exit code.
func (c contexts) plugin(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	return c.Run(c.command(ctx, args...), "")
}

// says runs the plugin where it has nothing to complain of.
func (c contexts) says(ctx context.Context, args ...string) string {
	stdout, stderr, code := c.plugin(ctx, args...)
	Expect(code).To(BeZero(), stderr)
	return stdout
}
