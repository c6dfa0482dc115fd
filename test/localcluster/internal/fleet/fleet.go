// SPDX-License-Identifier: Apache-2.0

// Package fleet is several local clusters whose manager hands TrainJobs to its workers by
// MultiKueue: how they come up and go down (this file), and what connects them (connect.go).
package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/cluster"
)

// Manager names the manager cluster, Workers the others: their directories, their contexts in
// the fleet's kubeconfig and, of the workers, their MultiKueueClusters and Secrets.
const Manager = "manager"

// Workers are as many as config/samples/multikueue has.
var Workers = []string{"worker1", "worker2"}

// member is one cluster of a fleet.
type member struct {
	*cluster.Cluster
	name     string
	settings cluster.Settings
}

// Fleet is a manager cluster and its workers.
type Fleet struct {
	repo, dir string
	out       io.Writer
	members   []member
}

// New returns the fleet in dir, with a choice for each cluster, the manager first. Without choices, as down needs
// it, its clusters are what they are.
func New(repo, dir string, out io.Writer, nodes int, choices ...string) (*Fleet, error) {
	names := append([]string{Manager}, Workers...)
	if len(choices) > 0 && len(choices) != len(names) {
		return nil, fmt.Errorf("FLEET_WORKERS=%s: must name %d, separated by a comma", strings.Join(choices[1:], ","), len(Workers))
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	f := &Fleet{repo: repo, dir: dir, out: out}
	var writing sync.Mutex
	for i, name := range names {
		c, err := cluster.New(repo, filepath.Join(dir, name), &prefixed{&writing, out, name})
		if err != nil {
			return nil, err
		}
		m := member{Cluster: c, name: name, settings: cluster.Settings{Nodes: nodes, Dispatches: name == Manager}}
		if len(choices) > 0 {
			if err := choose(&m.settings, choices[i]); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		f.members = append(f.members, m)
	}
	return f, nil
}

// choose reads INTEGRATION or INTEGRATION:TRAINER.
func choose(settings *cluster.Settings, text string) error {
	integration, generation, chosen := strings.Cut(text, ":")
	settings.Integration = cluster.Integration(integration)
	if chosen {
		if err := settings.Trainer.UnmarshalText([]byte(generation)); err != nil {
			return err
		}
	}
	return settings.Validate()
}

// Up builds what is out of date, starts what is not running and connects the clusters.
func (f *Fleet) Up(ctx context.Context) error {
	start := time.Now()
	if err := f.build(ctx); err != nil {
		return err
	}
	if err := f.each(ctx, func(ctx context.Context, m member) error { return m.Up(ctx, m.settings) }); err != nil {
		return err
	}
	if err := f.connect(ctx); err != nil {
		return err
	}
	fmt.Fprintf(f.out, "fleet up in %s; the contexts %s, %s are in %s\n",
		time.Since(start).Round(100*time.Millisecond), Manager, strings.Join(Workers, ", "), f.kubeconfig())
	return nil
}

// build builds for one cluster after the other: their binaries lie in one place.
func (f *Fleet) build(ctx context.Context) error {
	built := map[cluster.Settings]bool{}
	for _, m := range f.members {
		alike := m.settings
		alike.Dispatches = false
		if !built[alike] {
			if err := m.Build(ctx, m.settings); err != nil {
				return err
			}
		}
		built[alike], m.Built = true, true
	}
	return nil
}

// Down stops all clusters. One that cannot be stopped does not keep the others from it.
func (f *Fleet) Down(ctx context.Context) error {
	var failures error
	for _, m := range f.members {
		if err := m.Down(ctx); err != nil {
			failures = errors.Join(failures, fmt.Errorf("%s: %w", m.name, err))
		}
	}
	return failures
}

// each does something to all clusters at the same time.
func (f *Fleet) each(ctx context.Context, do func(context.Context, member) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, m := range f.members {
		group.Go(func() error {
			if err := do(ctx, m); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// kubeconfig has a context for each cluster, named like it, as its admin.
func (f *Fleet) kubeconfig() string { return filepath.Join(f.dir, "kubeconfig") }

// prefixed says of each line which cluster it is about. A cluster writes whole lines, and those of
// several go to one writer.
type prefixed struct {
	mu     *sync.Mutex
	to     io.Writer
	prefix string
}

// Write implements io.Writer.
func (w *prefixed) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for line := range bytes.Lines(p) {
		if _, err := fmt.Fprintf(w.to, "%-8s %s", w.prefix, line); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
