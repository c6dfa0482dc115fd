// SPDX-License-Identifier: Apache-2.0

// Command fleet measures how fast TrainJobs go from a manager cluster of MultiKueue to its two
// workers, with Kueue's generic adapter, which kueue-trainer uses, and with the adapter of the
// in-tree integration. It prints a table.
//
// site.go sets a cluster up and asks it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/bench/internal/work"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

const (
	fleetDir = ".fleet-bench"
	// limit ends a measurement that hangs.
	limit     = 15 * time.Minute
	lookEvery = 200 * time.Millisecond
)

// column is one way to run the manager cluster.
type column struct {
	title, integration string
	// clientConnection of Kueue in all clusters; nil is as shipped.
	clientConnection map[string]any
}

var columns = []column{
	{"in-tree adapter", world.InTree, nil},
	{"generic adapter", world.External, nil},
	{"generic adapter, Kueue's limits raised", world.External, map[string]any{"qps": 2000, "burst": 4000}},
}

func main() {
	jobs := flag.Int("jobs", 100, "number of TrainJobs")
	flag.Parse()
	attempt.Main("error: ", func(ctx context.Context) error { return run(ctx, *jobs) })
}

func run(ctx context.Context, jobs int) error {
	var table strings.Builder
	table.WriteString("| manager cluster | given to a worker, TrainJobs a second | pods run, TrainJobs a second | requests of Kueue to both workers per TrainJob |\n|---|---|---|---|\n")
	for _, c := range columns {
		r, err := c.measure(ctx, jobs)
		if err != nil {
			return fmt.Errorf("%s: %w", c.title, err)
		}
		fmt.Fprintf(&table, "| %s | %.1f | %.1f | %.1f |\n", c.title, r.rate(r.dispatched), r.rate(r.run), float64(r.requests)/float64(jobs))
	}
	fmt.Print("\n", table.String())
	return nil
}

// result is what one column took, from the release of the queue.
type result struct {
	jobs            int
	dispatched, run time.Duration
	requests        int
}

func (r result) rate(d time.Duration) float64 { return float64(r.jobs) / d.Seconds() }

// measure brings a fleet up, and takes it down again.
func (c column) measure(ctx context.Context, jobs int) (r result, err error) {
	root, err := world.Root()
	if err != nil {
		return r, err
	}
	for name, value := range map[string]string{"NODES": "16", "FLEET_MANAGER": c.integration, "FLEET_WORKERS": "external,external"} {
		if err := os.Setenv(name, value); err != nil {
			return r, err
		}
	}
	undisturbed := context.WithoutCancel(ctx)
	fleet, err := world.StartFleet(undisturbed, filepath.Join(root, fleetDir), os.Stdout)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, fleet.Stop(undisturbed, os.Stdout)) }()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = attempt.To(func() {
		c.configure(ctx, fleet)
		r = dispatch(ctx, fleet, jobs)
	})
	return r, err
}

func (c column) configure(ctx context.Context, fleet *world.Fleet) {
	if c.clientConnection == nil {
		return
	}
	for _, cluster := range append(fleet.Workers, fleet.Manager) {
		attempt.Must(cluster.RestartKueueWith(ctx, os.Stdout, map[string]any{"clientConnection": c.clientConnection}, "kueue"))
	}
}

// dispatch has TrainJobs wait in the manager cluster, releases them, and waits until all run.
func dispatch(ctx context.Context, fleet *world.Fleet, jobs int) result {
	r := result{jobs: jobs}
	workers := []*site{open(ctx, fleet.Workers[0]), open(ctx, fleet.Workers[1])}
	manager := open(ctx, fleet.Manager, "workers")
	work.StopQueue(ctx, manager.Client, kueue.Hold)
	for i := range jobs {
		attempt.Succeed(manager.Client.Create(ctx, work.Job(name, i, "10m")))
	}
	work.Until(ctx, lookEvery, "Workloads", func() (bool, error) { n, _, err := manager.workloads(ctx); return n == jobs, err })
	start := time.Now()
	work.StopQueue(ctx, manager.Client, kueue.None)
	work.Until(ctx, lookEvery, "running pods", func() (bool, error) {
		_, given, err := manager.workloads(ctx)
		if given == jobs && r.dispatched == 0 {
			r.dispatched = time.Since(start)
		}
		running := 0
		for _, worker := range workers {
			n, errPods := worker.running(ctx)
			running, err = running+n, errors.Join(err, errPods)
		}
		r.run = time.Since(start)
		return r.dispatched > 0 && running == jobs, err
	})
	for _, worker := range workers {
		r.requests += worker.requestsOfManager()
	}
	return r
}
