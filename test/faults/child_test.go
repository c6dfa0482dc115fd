// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/apiproxy"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// child is the manager under test: the shipped binary in a process of its own, which
// talks to the API server through a proxy. One that ends is started again, as a
// Deployment would.
type child struct {
	argv, env   []string
	log, health string

	// exits counts the times that the process ended by itself.
	exits atomic.Int32
	// kill ends the process, as a power cut would, and returns when it is gone; nil before start.
	kill func()
}

// newChild prepares the manager of a cluster to run behind a proxy, without leader election,
// which would make every restart wait for the lease of the process before. A second one beside it
// gets ports of its own.
func newChild(cluster *world.Cluster, as world.Process, proxy *apiproxy.Proxy, second bool) (*child, error) {
	dir, component := cluster.LocalDir(), cluster.Manager()
	health, err := cluster.Address(component, "health")
	if err != nil {
		return nil, err
	}
	name, changes := "faults-"+component, map[string]any{"leaderElection": map[string]any{"leaderElect": false}}
	if second {
		name, health = name+"-2", fmt.Sprintf("127.0.0.1:%d", world.FreePort())
		changes["health"] = map[string]any{"healthProbeBindAddress": health}
		changes["metrics"] = map[string]any{"bindAddress": fmt.Sprintf("127.0.0.1:%d", world.FreePort())}
		changes["webhook"] = map[string]any{"port": world.FreePort()}
	}
	kubeconfig, config := filepath.Join(dir, "kubeconfigs", name), filepath.Join(dir, "config", name+".yaml")
	if err := writeKubeconfig(filepath.Join(dir, "kubeconfigs", component), kubeconfig, proxy); err != nil {
		return nil, err
	}
	if err := cluster.WriteConfig(component, config, changes); err != nil {
		return nil, err
	}
	return &child{
		// Of two settings the last one counts.
		argv: slices.Concat(as.Argv, []string{"--config=" + config}), env: slices.Concat(as.Env, []string{"KUBECONFIG=" + kubeconfig}),
		log: filepath.Join(dir, "logs", name+".log"), health: "http://" + health + "/readyz",
	}, nil
}

// writeKubeconfig writes the credentials of another kubeconfig for the proxy's address.
func writeKubeconfig(from, to string, proxy *apiproxy.Proxy) error {
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return err
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthorityData = proxy.URL(), proxy.CA()
	}
	return clientcmd.WriteToFile(*config, to)
}

// start runs the process until kill; it does not wait until that is ready.
func (c *child) start() {
	ctx, cancel := context.WithCancel(context.Background())
	gone := make(chan struct{})
	c.kill = func() {
		cancel()
		<-gone
	}
	go func() {
		defer close(gone)
		// With a pause: one that cannot start would keep a processor busy.
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			if c.run(ctx); ctx.Err() == nil {
				c.exits.Add(1)
			}
		}, 100*time.Millisecond)
	}()
}

// crash kills the process and starts it again.
func (c *child) crash() {
	c.kill()
	c.start()
}

// run starts the process and returns when it has ended. Why, its log says.
func (c *child) run(ctx context.Context) {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		panic(err)
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, c.argv[0], c.argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.env, log, log
	// It does not outlive the tests, however they end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		fmt.Fprintln(log, err)
	}
}

// ready reports whether the process says that it serves.
func (c *child) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	status, body, err := world.Ask(ctx, c.health, "")
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("%s: %s", c.health, body)
	}
	return err
}

// serves waits until it does.
func (c *child) serves(ctx context.Context) error {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, settleTimeout, true, func(ctx context.Context) (bool, error) {
		return c.ready(ctx) == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the manager is not ready: %w\n%s", err, c.lastLines(20))
	}
	return nil
}

// lastLines returns the end of the log.
func (c *child) lastLines(n int) string {
	data, err := os.ReadFile(c.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(data), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-n):], []byte("\n")))
}
