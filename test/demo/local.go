// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

const localDir = ".local-demo"

var errInterrupted = errors.New("interrupted")

// local is the demo's own cluster, apart from those of `make local-up` and the specs.
type local struct {
	root string
	lock *os.File
}

// openLocal makes sure that no other demo of this working copy is at work: each takes
// its cluster down.
func openLocal() (*local, error) {
	root, err := world.Root()
	if err != nil {
		return nil, err
	}
	l := &local{root: root}
	l.lock, err = world.Lock(l.dir())
	return l, err
}

// close lets the next demo in.
func (l *local) close() {
	l.lock.Close()
}

func (l *local) dir() string { return filepath.Join(l.root, localDir) }

func (l *local) logs() string { return filepath.Join(localDir, "logs") }

// up starts from nothing, so that the story finds no objects of a demo that was killed.
func (l *local) up(ctx context.Context) (*world.Cluster, error) {
	if _, err := os.Stat(filepath.Join(l.dir(), "state.json")); err == nil {
		fmt.Println("A demo that was killed left its cluster behind:")
		if err := l.down(); err != nil {
			return nil, err
		}
	}
	if err := l.settings(); err != nil {
		return nil, err
	}
	// Not our context: it would kill the launcher, perhaps between starting a process and
	// noting it down. Ctrl-C reaches the launcher itself, and it ends in order.
	cluster, err := world.Start(context.WithoutCancel(ctx), l.dir(), os.Stdout)
	if err != nil && ctx.Err() != nil {
		return nil, errInterrupted
	}
	return cluster, err
}

// settings fixes what the story's numbers were made for, whatever the caller exported.
func (l *local) settings() error {
	return errors.Join(os.Setenv("NODES", "8"), os.Setenv("INTEGRATION", "external"))
}

// down also takes away what a failed up left, which kit's Stop knows nothing of. In a
// process group of its own, a second Ctrl-C does not reach it.
func (l *local) down() error {
	cmd := exec.Command(filepath.Join(l.root, "bin", "localcluster"), "down", "--local-dir", l.dir())
	cmd.Dir, cmd.Stdout, cmd.Stderr = l.root, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("taking the cluster in %s down, try `%v`: %w", l.dir(), cmd.Args, err)
	}
	return nil
}
