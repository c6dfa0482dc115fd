// SPDX-License-Identifier: Apache-2.0

// Package world is what specs, demo and benchmarks share of clusters that run: the cluster itself,
// and a namespace of one's own in it, in the words of the field.
package world

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// Cluster is a control plane with Kueue, Trainer, JobSet and the manager.
type Cluster struct {
	// Name is the cluster's in its fleet: "manager", "worker1" or "worker2".
	Name string
	// Client acts as the admin, with the types of the newest Trainer on every cluster.
	Client client.WithWatch
	// Config is the admin's.
	Config *rest.Config
	// Kubeconfig is the file that Config came from.
	Kubeconfig string

	// Integration is who looked after queued TrainJobs when we connected: "external" or "in-tree".
	Integration string

	// overrides is set where Trainer is 2.1.
	overrides atomic.Bool
	// localDir is the LOCAL_DIR of a local control plane; empty for other clusters.
	localDir string
	// started is set when Start brought the cluster up.
	started bool
}

// Use connects to the cluster of a kubeconfig file.
func Use(kubeconfig string) (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading kubeconfig %s: %w", kubeconfig, err)
	}
	// The specs poll a lot; they must not wait for themselves.
	config.QPS, config.Burst = 200, 400
	c, err := client.NewWithWatch(config, client.Options{Scheme: kit.Scheme(trainer.AddToScheme)})
	if err != nil {
		return nil, fmt.Errorf("connecting to the cluster of %s: %w", kubeconfig, err)
	}
	cluster := &Cluster{Config: config, Kubeconfig: kubeconfig, Integration: External, localDir: beside(kubeconfig, "state.json")}
	cluster.Client = translating(c, &cluster.overrides)
	// A cluster may be without Trainer yet; whoever needs it asks again.
	_, _ = cluster.Trainer(context.Background())
	if !cluster.Local() {
		return cluster, nil
	}
	state, err := cluster.state()
	cluster.Integration = state.Settings.Integration
	return cluster, err
}

// The integrations: this project's, Kueue's own, and the two at once.
const (
	External = "external"
	InTree   = "in-tree"
	Both     = "both"
)

// state is what localcluster writes down of a cluster.
type state struct {
	Settings struct {
		Integration string `json:"integration"`
		Nodes       int    `json:"nodes"`
	} `json:"settings"`
	Ports     map[string]int     `json:"ports"`
	Processes map[string]Process `json:"processes"`
}

// Process is how localcluster runs a component.
type Process struct {
	PID  int      `json:"pid"`
	Argv []string `json:"argv"`
	Env  []string `json:"env"`
}

func (c *Cluster) state() (state, error) {
	var s state
	content, err := os.ReadFile(filepath.Join(c.localDir, "state.json"))
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(content, &s)
}

// Address is where a component of a local control plane serves something: "health", "metrics" or "webhook".
func (c *Cluster) Address(component, purpose string) (string, error) {
	s, err := c.state()
	if err != nil {
		return "", err
	}
	port, ok := s.Ports[component+"/"+purpose]
	if !ok {
		return "", fmt.Errorf("component %s has no port for %s", component, purpose)
	}
	return fmt.Sprintf("127.0.0.1:%d", port), nil
}

// PIDs returns the process of each component of a local control plane, by its name.
func (c *Cluster) PIDs() (map[string]int, error) {
	s, err := c.state()
	pids := map[string]int{}
	for name, p := range s.Processes {
		pids[name] = p.PID
	}
	return pids, err
}

// Process returns how a component of a local control plane runs.
func (c *Cluster) Process(component string) (Process, error) {
	s, err := c.state()
	p, ok := s.Processes[component]
	if err == nil && !ok {
		err = fmt.Errorf("component %s has no process", component)
	}
	return p, err
}

// beside returns the directory of a kubeconfig if what wrote that has left a file beside it.
func beside(kubeconfig, file string) string {
	dir := filepath.Dir(kubeconfig)
	if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
		return ""
	}
	return dir
}

// Impersonating connects to the same cluster as somebody else.
func (c *Cluster) Impersonating(user string, groups ...string) (client.Client, error) {
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	return client.New(config, client.Options{Scheme: c.Client.Scheme()})
}

// Open connects to the cluster of KUBECONFIG, or starts one in dir, below the repository's root, with Start's flags.
func Open(ctx context.Context, dir string, progress io.Writer, flags ...string) (*Cluster, error) {
	if kubeconfig := os.Getenv("KUBECONFIG"); kubeconfig != "" {
		return Use(kubeconfig)
	}
	root, err := Root()
	if err != nil {
		return nil, err
	}
	return Start(ctx, filepath.Join(root, dir), progress, flags...)
}

// Start brings a local control plane up in dir, which progress is told of, and connects to it. The flags are those of
// `localcluster up`. Stop takes it down again. What somebody left in dir who was killed is taken down first.
func Start(ctx context.Context, dir string, progress io.Writer, flags ...string) (*Cluster, error) {
	if err := localcluster(ctx, dir, progress, "down"); err != nil {
		return nil, err
	}
	if err := launchUp(ctx, progress, append([]string{"up", "--local-dir", dir}, flags...)...); err != nil {
		return nil, err
	}
	cluster, err := Use(filepath.Join(dir, "kubeconfig"))
	if err != nil {
		return nil, err
	}
	cluster.started = true
	return cluster, nil
}

// Local reports whether this is a local control plane, whose components Control reaches.
func (c *Cluster) Local() bool { return c.localDir != "" }

// LocalDir is the LOCAL_DIR of a local control plane; empty for other clusters.
func (c *Cluster) LocalDir() string { return c.localDir }

// KindDir is where make kind-up keeps what it made a cluster with, the chart's values too; empty for other clusters.
func (c *Cluster) KindDir() string { return beside(c.Kubeconfig, "values.yaml") }

// Manager names the component that integrates TrainJobs with Kueue.
func (c *Cluster) Manager() string {
	if c.Integration == InTree {
		return "kueue"
	}
	return "kueue-trainer"
}

// Repair starts what is missing on a local control plane and installs its manifests again.
func (c *Cluster) Repair(ctx context.Context, progress io.Writer) error {
	return c.HandOver(ctx, c.Integration, progress)
}

// Control does something to one component of a local cluster: start, stop, kill, restart.
func (c *Cluster) Control(ctx context.Context, action, component string, progress io.Writer) error {
	return localcluster(ctx, c.localDir, progress, action, component)
}

// HandOver hands TrainJobs over to another integration, "external", "in-tree" or "both",
// while they run. The release of Trainer stays: TRAINER of the environment may be what the cluster was upgraded from.
func (c *Cluster) HandOver(ctx context.Context, integration string, progress io.Writer) error {
	trainer, err := c.Trainer(ctx)
	if err != nil {
		return err
	}
	return c.change(ctx, progress, "up", "--trainer", trainer, "--integration", integration)
}

// Errors returns the error lines in the log of one component.
func (c *Cluster) Errors(component string) ([]string, error) {
	data, err := os.ReadFile(filepath.Join(c.localDir, "logs", component+".log"))
	isNot := func(line string) bool { return !strings.Contains(line, `"level":"error"`) }
	return slices.DeleteFunc(strings.Split(string(data), "\n"), isNot), err
}

// Stop takes down what Start brought up; other clusters are left alone.
func (c *Cluster) Stop(ctx context.Context, progress io.Writer) error {
	if !c.started {
		return nil
	}
	return localcluster(ctx, c.localDir, progress, "down")
}

// Down takes down what Start left in dir, also where it failed.
func Down(ctx context.Context, dir string, progress io.Writer) error {
	return localcluster(ctx, dir, progress, "down")
}

// localcluster runs the tool that `make` builds, on the cluster in dir.
func localcluster(ctx context.Context, dir string, progress io.Writer, args ...string) error {
	return launch(ctx, progress, append(args, "--local-dir", dir)...)
}

// launchUp tries twice, since up goes on where it was stopped: with several control planes that come up
// beside each other on two cores, one program or request in some hundreds gives up. Why is in progress.
func launchUp(ctx context.Context, progress io.Writer, args ...string) error {
	err := launch(ctx, progress, args...)
	if err == nil || ctx.Err() != nil {
		return err
	}
	fmt.Fprintln(progress, "Going on after:", err)
	return launch(ctx, progress, args...)
}

func launch(ctx context.Context, progress io.Writer, args ...string) error {
	root, err := Root()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "localcluster"), args...)
	var said strings.Builder
	cmd.Dir, cmd.Stdout = root, io.MultiWriter(progress, &said)
	cmd.Stderr = cmd.Stdout
	// In a process group of its own a second Ctrl-C does not reach it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: slices.Contains(args, "down")}
	// Interrupted, it still writes down what it started, so that down finds it.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	err = cmd.Run()
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		_, why, _ := strings.Cut(said.String(), "error: ")
		return fmt.Errorf("bin/localcluster %s: %s(%w)", args[0], why, err)
	}
	if err != nil {
		return fmt.Errorf("%w; `make e2e` and `make demo` build it", err)
	}
	return nil
}

// Root is the repository's root directory, found upwards from the working directory.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "test", "localcluster", "go.mod")); err == nil {
			return dir, nil
		}
		dir = filepath.Dir(dir)
	}
	return "", errors.New("no repository root above the working directory")
}
