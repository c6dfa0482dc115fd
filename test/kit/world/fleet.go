// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
)

// Fleet is a manager cluster and the workers that MultiKueue connects it with.
type Fleet struct {
	Manager *Cluster
	// Workers are named worker1 and worker2, in this order.
	Workers []*Cluster

	dir string
	// started is set when StartFleet brought the fleet up.
	started bool
}

// StartFleet brings a fleet up in dir, which progress is told of. Stop takes it down again. What
// somebody left in dir who was killed is taken down first.
func StartFleet(ctx context.Context, dir string, progress io.Writer) (*Fleet, error) {
	f := &Fleet{dir: dir, started: true}
	if err := f.Stop(ctx, progress); err != nil {
		return nil, err
	}
	err := launchUp(ctx, progress, "fleet", "up", "--dir", dir)
	if err == nil {
		err = f.connect()
	}
	if err != nil {
		return nil, errors.Join(err, f.Stop(context.WithoutCancel(ctx), progress))
	}
	return f, nil
}

// UseFleet connects to the fleet in dir.
func UseFleet(dir string) (*Fleet, error) {
	f := &Fleet{dir: dir}
	return f, f.connect()
}

func (f *Fleet) connect() error {
	for _, name := range []string{"manager", "worker1", "worker2"} {
		c, err := Use(filepath.Join(f.dir, name, "kubeconfig"))
		if err != nil {
			return fmt.Errorf("cluster %s of the fleet: %w", name, err)
		}
		c.Name = name
		if f.Manager == nil {
			f.Manager = c
		} else {
			f.Workers = append(f.Workers, c)
		}
	}
	return nil
}

// Kubeconfig has a context for each cluster, named like it.
func (f *Fleet) Kubeconfig() string { return filepath.Join(f.dir, "kubeconfig") }

// Stop takes down what StartFleet brought up; other fleets are left alone.
func (f *Fleet) Stop(ctx context.Context, progress io.Writer) error {
	if !f.started {
		return nil
	}
	return DownFleet(ctx, f.dir, progress)
}

// DownFleet takes down what StartFleet left in dir, also where it failed.
func DownFleet(ctx context.Context, dir string, progress io.Writer) error {
	return launch(ctx, progress, "fleet", "down", "--dir", dir)
}
