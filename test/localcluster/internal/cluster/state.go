// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/process"
)

const (
	stateFile = "state.json"
	lockFile  = ".lock"
)

// State is what outlives the launcher: enough to find every process again.
type State struct {
	Settings Settings `json:"settings"`
	// Ports by "component/purpose". They stay the same over restarts, since other
	// components were told.
	Ports map[string]int `json:"ports"`
	// Processes by component, as last started.
	Processes map[string]Process `json:"processes"`
}

// Process is a component's process.
type Process struct {
	process.Process
	// Binary is the hash of the program where we want to notice a new one.
	Binary string `json:"binary,omitempty"`
}

// exists tells whether an up has been here.
func (s State) exists() bool { return s.Ports != nil }

// readState starts with the newest Trainer and the default version: the choice where there is no
// cluster, or one that says nothing of it.
func readState(path string) (State, error) {
	state := State{Settings: Settings{Trainer: build.DefaultTrainer(), Kubernetes: build.DefaultKubernetes()}}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil
	}
	if err != nil {
		return state, err
	}
	if err := json.Unmarshal(content, &state); err != nil {
		return state, fmt.Errorf("state file %s is damaged, look for the processes by hand: %w", path, err)
	}
	return state, nil
}

// writeState replaces the file in one step: a launcher killed while writing must
// not lose the pids.
func (c *Cluster) writeState() error {
	content, err := json.MarshalIndent(c.state, "", "  ")
	if err != nil {
		return err
	}
	temporary := c.path(stateFile + ".new")
	if err := os.WriteFile(temporary, append(content, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, c.path(stateFile))
}

// record writes down a started process before anything else happens to it.
func (c *Cluster) record(name string, p Process) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.state.Processes[name] = p
	return c.writeState()
}

func (c *Cluster) process(name string) Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.Processes[name]
}

// lockExisting is Lock for what needs a cluster.
func (c *Cluster) lockExisting() (release func(), err error) {
	if !c.state.exists() {
		return nil, fmt.Errorf("there is no cluster in %s: run `localcluster up` first", c.Dir)
	}
	return c.Lock()
}

// Lock keeps other launchers away from this cluster until it is released.
func (c *Cluster) Lock() (release func(), err error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(c.path(lockFile), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	release = func() { _ = f.Close() } // It only holds the lock.
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		err = fmt.Errorf("another localcluster command is working on %s: wait for it to end (%w)", c.Dir, err)
	} else {
		// Read again: it may have changed until we got the lock.
		c.state, err = readState(c.path(stateFile))
	}
	if err != nil {
		release()
	}
	return release, err
}
