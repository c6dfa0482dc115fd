// SPDX-License-Identifier: Apache-2.0

// Package cluster is one local cluster: its components and their settings, how it comes up, and how it goes down.
package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/process"
)

// Integration says who looks after queued TrainJobs.
type Integration string

const (
	// External is this project's manager, with TrainJob as an external framework of Kueue.
	External Integration = "external"
	// InTree is Kueue's own integration, for comparison; our manager does not run.
	InTree Integration = "in-tree"
	// Both runs the two at once, which nobody should: it shows what happens then.
	Both Integration = "both"
)

func (i Integration) manager() bool { return i != InTree }
func (i Integration) inTree() bool  { return i != External }

// Settings are what a user chooses. They hold from up to down.
type Settings struct {
	// Nodes is the number of GPU nodes, half H100 and half A100. There are always two CPU nodes besides.
	Nodes       int         `json:"nodes"`
	Integration Integration `json:"integration"`
	// Trainer and the JobSet that goes with it. Unset means the one that runs already, and the newest where none does.
	Trainer string `json:"trainer"`
	// Kubernetes is the version of the control plane. Unset is as of Trainer: Kueue's own where none runs.
	Kubernetes string `json:"kubernetes"`
	// InTreeWorkers is how many TrainJobs Kueue's own integration reconciles at a time. 0 is as shipped, one.
	InTreeWorkers int `json:"inTreeWorkers,omitempty"`
	// Dispatches makes it the manager of a fleet: Kueue hands TrainJobs to other clusters, and there are no nodes.
	Dispatches bool `json:"dispatches,omitempty"`
}

// lease is kueue-trainer's: about the time until the next leader after a kill. One that cannot renew
// it in time ends, and nothing starts it again, so it is for machines on which several clusters run.
const lease = 30 * time.Second

// Validate says which setting is wrong and what it may be.
func (s Settings) Validate() error {
	if s.Nodes < 2 {
		return fmt.Errorf("NODES=%d: there must be at least 2, one H100 and one A100 node", s.Nodes)
	}
	if !slices.Contains([]Integration{External, InTree, Both}, s.Integration) {
		return fmt.Errorf("INTEGRATION=%s: must be %s, %s or %s", s.Integration, External, InTree, Both)
	}
	if s.Trainer != "" && !slices.Contains(build.Trainers, s.Trainer) {
		return fmt.Errorf("TRAINER=%s: must be one of %s", s.Trainer, strings.Join(build.Trainers, ", "))
	}
	if s.Kubernetes != "" && !slices.Contains(build.KubernetesVersions, s.Kubernetes) {
		return fmt.Errorf("KUBERNETES=%s: must be one of %s", s.Kubernetes, strings.Join(build.KubernetesVersions, ", "))
	}
	if s.InTreeWorkers < 0 {
		return fmt.Errorf("IN_TREE_WORKERS=%d: must be 0, for Kueue's default, or more", s.InTreeWorkers)
	}
	return nil
}

func (s Settings) String() string {
	return fmt.Sprintf("NODES=%d INTEGRATION=%s TRAINER=%s KUBERNETES=%s IN_TREE_WORKERS=%d", s.Nodes, s.Integration, s.Trainer, s.Kubernetes, s.InTreeWorkers)
}

// Cluster is a local cluster, running or not.
type Cluster struct {
	Dir string
	// Builder makes the binaries and knows where the manifests lie.
	build.Builder
	// Built is set where up has nothing to build: clusters of one fleet share their binaries.
	Built bool

	state state
	mu    sync.Mutex // guards state: components start in parallel
}

// New returns the cluster in dir, with what an earlier up left there.
func New(repo, dir string, out io.Writer) *Cluster {
	c := &Cluster{Dir: attempt.Must(filepath.Abs(dir))}
	c.Builder = build.Builder{Repo: repo, LogDir: c.path("logs"), Out: out}
	c.state = readState(c.path(stateFile))
	return c
}

// Exists reports whether up has made a cluster that down has not removed.
func (c *Cluster) Exists() bool { return c.state.exists() }

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// Kubeconfig is the file with the contexts admin and user.
func (c *Cluster) Kubeconfig() string                     { return c.path("kubeconfig") }
func (c *Cluster) logFile(name string) string             { return c.path("logs", name+".log") }
func (c *Cluster) configFile(name string) string          { return c.path("config", name+".yaml") }
func (c *Cluster) componentKubeconfig(name string) string { return c.path("kubeconfigs", name) }
func (c *Cluster) certDir(name string) string             { return c.path("certs", name) }
func (c *Cluster) certFile(name string) string            { return filepath.Join(c.certDir(name), "tls.crt") }
func (c *Cluster) keyFile(name string) string             { return filepath.Join(c.certDir(name), "tls.key") }

const (
	stateFile    = "state.json"
	newStateFile = stateFile + ".new"
	lockFile     = ".lock"
)

// state is what outlives the launcher: enough to find every process again.
type state struct {
	Settings Settings `json:"settings"`
	// Ports by "component/purpose". They stay the same over restarts, since other components were told.
	Ports     map[string]int             `json:"ports"`
	Processes map[string]process.Process `json:"processes"`
}

func (s state) exists() bool { return s.Ports != nil }

// readState starts with the newest Trainer and the default version, the choice where no cluster says another.
func readState(path string) state {
	known := state{Settings: Settings{Trainer: build.DefaultTrainer, Kubernetes: build.DefaultKubernetes}}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return known
	}
	attempt.Succeed(err)
	attempt.Succeed(json.Unmarshal(content, &known), "state file %s is damaged, look for the processes by hand", path)
	return known
}

// writeState replaces the file in one step: a launcher killed while writing must not lose the pids.
func (c *Cluster) writeState() {
	content := attempt.Must(json.MarshalIndent(c.state, "", "  "))
	attempt.Succeed(os.WriteFile(c.path(newStateFile), append(content, '\n'), 0o600))
	attempt.Succeed(os.Rename(c.path(newStateFile), c.path(stateFile)))
}

// record writes down a started process before anything else happens to it.
func (c *Cluster) record(name string, p process.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Processes[name] = p
	c.writeState()
}

func (c *Cluster) process(name string) process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Processes[name]
}

// lockExisting is lock for what needs a cluster.
func (c *Cluster) lockExisting() (release func()) {
	if !c.state.exists() {
		attempt.Fail("there is no cluster in %s: run `localcluster up` first", c.Dir)
	}
	return c.lock()
}

// lock keeps other launchers away from this cluster until it is released, or we end.
func (c *Cluster) lock() (release func()) {
	attempt.Succeed(os.MkdirAll(c.Dir, 0o755))
	f := attempt.Must(os.OpenFile(c.path(lockFile), os.O_CREATE|os.O_RDWR, 0o644))
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		attempt.Fail("another localcluster command is working on %s: wait for it to end (%w)", c.Dir, err)
	}
	// Read again: it may have changed until we got the lock.
	c.state = readState(c.path(stateFile))
	return func() { _ = f.Close() } // It only holds the lock.
}
