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

// StartFleet brings a fleet up in dir until Stop. What somebody left there who was killed is taken down first.
func StartFleet(ctx context.Context, dir string, progress io.Writer) (f *Fleet, err error) {
	if err := DownFleet(ctx, dir, progress); err != nil {
		return nil, err
	}
	if err = launchUp(ctx, progress, "fleet", "up", "--dir", dir); err == nil {
		f, err = UseFleet(dir)
	}
	if err != nil {
		return nil, errors.Join(err, DownFleet(context.WithoutCancel(ctx), dir, progress))
	}
	f.started = true
	return f, nil
}

// UseFleet connects to the fleet in dir.
func UseFleet(dir string) (*Fleet, error) {
	f := &Fleet{dir: dir}
	for _, name := range []string{"manager", "worker1", "worker2"} {
		c, err := Use(filepath.Join(dir, name, "kubeconfig"))
		if err != nil {
			return nil, fmt.Errorf("cluster %s of the fleet: %w", name, err)
		}
		c.Name = name
		f.Workers = append(f.Workers, c)
	}
	f.Manager, f.Workers = f.Workers[0], f.Workers[1:]
	return f, nil
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
