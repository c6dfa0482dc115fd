// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/apiproxy"
)

// child is the manager under test: the shipped binary in a process of its own, which
// talks to the API server through a proxy. One that ends is started again, as a
// Deployment would.
type child struct {
	argv   []string
	env    []string
	log    string
	health string

	mu      sync.Mutex
	cmd     *exec.Cmd
	exited  chan struct{}
	stopped bool
	// exits counts the times that the process ended by itself.
	exits int
}

// launch is what localcluster wrote down of a component: how it starts it.
type launch struct {
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
}

// readLaunch returns how the local cluster in dir starts a component.
func readLaunch(dir, component string) (launch, error) {
	var state struct {
		Processes map[string]launch `json:"processes"`
	}
	data, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err != nil {
		return launch{}, err
	}
	if err := json.Unmarshal(data, &state); err != nil {
		return launch{}, err
	}
	l, ok := state.Processes[component]
	if !ok {
		return launch{}, fmt.Errorf("%s does not know %s", dir, component)
	}
	return l, nil
}

// newChild prepares a component to run behind a proxy, without leader election. A
// second one beside it gets ports of its own.
func newChild(localDir, component string, l launch, proxy *apiproxy.Proxy, second bool) (*child, error) {
	name := "faults-" + component
	if second {
		name += "-2"
	}
	kubeconfig, err := writeKubeconfig(localDir, component, name, proxy)
	if err != nil {
		return nil, err
	}
	config, health, err := writeConfig(localDir, component, name, second)
	if err != nil {
		return nil, err
	}
	c := &child{log: filepath.Join(localDir, "logs", name+".log"), health: "http://" + health + "/readyz"}
	for _, arg := range l.Argv {
		if strings.HasPrefix(arg, "--config=") {
			arg = "--config=" + config
		}
		c.argv = append(c.argv, arg)
	}
	for _, variable := range l.Env {
		if strings.HasPrefix(variable, "KUBECONFIG=") {
			variable = "KUBECONFIG=" + kubeconfig
		}
		c.env = append(c.env, variable)
	}
	return c, nil
}

// writeKubeconfig returns the component's credentials for the proxy's address.
func writeKubeconfig(localDir, component, name string, proxy *apiproxy.Proxy) (string, error) {
	config, err := clientcmd.LoadFromFile(filepath.Join(localDir, "kubeconfigs", component))
	if err != nil {
		return "", err
	}
	for _, cluster := range config.Clusters {
		cluster.Server, cluster.CertificateAuthorityData = proxy.URL(), proxy.CA()
	}
	path := filepath.Join(localDir, "kubeconfigs", name)
	return path, clientcmd.WriteToFile(*config, path)
}

// writeConfig returns the component's configuration without leader election, which would
// make every restart wait for the lease of the process before.
func writeConfig(localDir, component, name string, second bool) (path, health string, err error) {
	data, err := os.ReadFile(filepath.Join(localDir, "config", component+".yaml"))
	if err != nil {
		return "", "", err
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return "", "", err
	}
	set := func(value any, fields ...string) {
		err = errors.Join(err, unstructured.SetNestedField(config, value, fields...))
	}
	set(false, "leaderElection", "leaderElect")
	if second {
		ports, portErr := freePorts(3)
		if portErr != nil {
			return "", "", portErr
		}
		set(fmt.Sprintf("127.0.0.1:%d", ports[0]), "health", "healthProbeBindAddress")
		set(fmt.Sprintf("127.0.0.1:%d", ports[1]), "metrics", "bindAddress")
		set(int64(ports[2]), "webhook", "port")
	}
	if err != nil {
		return "", "", err
	}
	health, _, err = unstructured.NestedString(config, "health", "healthProbeBindAddress")
	if err != nil {
		return "", "", err
	}
	if data, err = yaml.Marshal(config); err != nil {
		return "", "", err
	}
	path = filepath.Join(localDir, "config", name+".yaml")
	return path, health, os.WriteFile(path, data, 0o600)
}

func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer listener.Close()
		ports = append(ports, listener.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// start runs the process; it does not wait until that is ready.
func (c *child) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = false
	return c.run()
}

// run starts the process. The caller holds the lock.
func (c *child) run() error {
	log, err := os.OpenFile(c.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.argv[0], c.argv[1:]...)
	cmd.Env, cmd.Stdout, cmd.Stderr = c.env, log, log
	// It does not outlive the tests, however they end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	c.cmd, c.exited = cmd, exited
	go c.supervise(cmd, exited)
	return nil
}

// supervise starts the process again when it ends by itself.
func (c *child) supervise(cmd *exec.Cmd, exited chan struct{}) {
	_ = cmd.Wait()
	close(exited)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped || c.cmd != cmd {
		return
	}
	c.exits++
	_ = c.run()
}

// crash kills the process, as a power cut would, and starts it again.
func (c *child) crash() error {
	if err := c.kill(); err != nil {
		return err
	}
	return c.start()
}

// kill ends the process and returns when it is gone.
func (c *child) kill() error {
	c.mu.Lock()
	cmd, exited := c.cmd, c.exited
	c.stopped = true
	c.mu.Unlock()
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-exited
	return nil
}

// ownExits returns how often the process ended without being killed.
func (c *child) ownExits() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.exits
}

// ready reports whether the process says that it serves.
func (c *child) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.health, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", c.health, resp.Status)
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
