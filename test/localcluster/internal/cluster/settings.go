// SPDX-License-Identifier: Apache-2.0

// Package cluster is one local cluster: its components and their settings, how it
// comes up, and how it goes down.
package cluster

import (
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
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

// manager reports whether kueue-trainer runs.
func (i Integration) manager() bool { return i != InTree }

// inTree reports whether Kueue's own integration is on.
func (i Integration) inTree() bool { return i != External }

// Settings are what a user chooses. They hold from up to down.
type Settings struct {
	// Nodes is the number of GPU nodes, half H100 and half A100. There are always two
	// CPU nodes besides.
	Nodes       int         `json:"nodes"`
	Integration Integration `json:"integration"`
	// Trainer and the JobSet that goes with it. Unset means the one that runs already, and
	// the newest where none does.
	Trainer build.Trainer `json:"trainer"`
	// Kubernetes is the version of the control plane. Unset means the one that runs already, and
	// the one that Kueue is built with where none does.
	Kubernetes build.Kubernetes `json:"kubernetes"`
	// InTreeWorkers is how many TrainJobs Kueue's own integration reconciles at a time. 0 is
	// as Kueue is shipped, which is one.
	InTreeWorkers int `json:"inTreeWorkers,omitempty"`
	// Dispatches makes it the manager of a fleet: Kueue is set up to hand TrainJobs to other
	// clusters, and there are no nodes.
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
	if s.InTreeWorkers < 0 {
		return fmt.Errorf("IN_TREE_WORKERS=%d: must be 0, for Kueue's default, or more", s.InTreeWorkers)
	}
	return nil
}

func (s Settings) String() string {
	return fmt.Sprintf("NODES=%d INTEGRATION=%s TRAINER=%s KUBERNETES=%s IN_TREE_WORKERS=%d", s.Nodes, s.Integration, s.Trainer.Name, s.Kubernetes.Name, s.InTreeWorkers)
}

// Cluster is a local cluster, running or not.
type Cluster struct {
	// Dir is LOCAL_DIR, absolute.
	Dir string
	// Builder makes the binaries and knows where the manifests lie.
	Builder build.Builder
	// Built is set where up has nothing to build: clusters that come up at the same time have their
	// binaries in one place.
	Built bool
	// Out receives the progress, for people.
	Out io.Writer

	state State
	mu    sync.Mutex // guards state and Out: components start in parallel
}

// New returns the cluster in dir, with what an earlier up left there.
func New(repo, dir string, out io.Writer) (*Cluster, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Dir: dir, Out: out}
	c.Builder = build.Builder{Repo: repo, LogDir: c.path("logs"), Out: out}
	if c.state, err = readState(c.path(stateFile)); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Cluster) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

// Kubeconfig is the file with the contexts admin and user.
func (c *Cluster) Kubeconfig() string { return c.path("kubeconfig") }

func (c *Cluster) logFile(name string) string { return c.path("logs", name+".log") }

func (c *Cluster) configFile(name string) string { return c.path("config", name+".yaml") }

func (c *Cluster) componentKubeconfig(name string) string { return c.path("kubeconfigs", name) }

func (c *Cluster) certDir(name string) string { return c.path("certs", name) }

func (c *Cluster) certFile(name string) string { return filepath.Join(c.certDir(name), "tls.crt") }

func (c *Cluster) keyFile(name string) string { return filepath.Join(c.certDir(name), "tls.key") }

// say prints one line of progress.
func (c *Cluster) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.Out, format+"\n", args...)
}
