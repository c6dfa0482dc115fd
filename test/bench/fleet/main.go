// SPDX-License-Identifier: Apache-2.0

// Command fleet measures how fast TrainJobs go from a manager cluster of MultiKueue to its two workers, with Kueue's
// generic adapter, which kueue-trainer uses, and with the adapter of the in-tree integration. It prints a table.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/bench/internal/work"
	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
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
	attempt.Main("error: ", func(ctx context.Context) { run(ctx, *jobs) })
}

func run(ctx context.Context, jobs int) {
	rows := [][]string{{"manager cluster", "given to a worker, TrainJobs a second", "pods run, TrainJobs a second", "requests of Kueue to both workers per TrainJob"}}
	for _, c := range columns {
		row, r := []string{c.title}, c.measure(ctx, jobs)
		for _, value := range []float64{float64(jobs) / r.dispatched.Seconds(), float64(jobs) / r.run.Seconds(), float64(r.requests) / float64(jobs)} {
			row = append(row, fmt.Sprintf("%.1f", value))
		}
		rows = append(rows, row)
	}
	fmt.Print("\n", pages.Table(rows...))
}

// result is what one column took, from the release of the queue.
type result struct {
	dispatched, run time.Duration
	requests        int
}

func (c column) measure(ctx context.Context, jobs int) (r result) {
	for name, value := range map[string]string{"NODES": "16", "FLEET_MANAGER": c.integration, "FLEET_WORKERS": "external,external"} {
		attempt.Succeed(os.Setenv(name, value))
	}
	undisturbed := context.WithoutCancel(ctx)
	fleet := attempt.Must(world.StartFleet(undisturbed, filepath.Join(attempt.Must(world.Root()), fleetDir), os.Stdout))
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := attempt.To(func() {
		c.configure(ctx, fleet)
		r = dispatch(ctx, fleet, jobs)
	})
	attempt.Succeed(errors.Join(err, fleet.Stop(undisturbed, os.Stdout)), "%s", c.title)
	return r
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
func dispatch(ctx context.Context, fleet *world.Fleet, jobs int) (r result) {
	workers := []*work.Site{work.Open(ctx, fleet.Workers[0], "fleet"), work.Open(ctx, fleet.Workers[1], "fleet")}
	manager := work.Open(ctx, fleet.Manager, "fleet", "workers")
	manager.StopQueue(ctx, kueue.Hold)
	for i := range jobs {
		attempt.Succeed(manager.Create(ctx, manager.OnePod(i, "10m")))
	}
	work.Until(ctx, lookEvery, "Workloads", func() bool { return len(workloads(ctx, manager)) == jobs })
	start := time.Now()
	manager.StopQueue(ctx, kueue.None)
	work.Until(ctx, lookEvery, "Workloads in workers", func() bool {
		return !slices.ContainsFunc(workloads(ctx, manager), func(wl kueue.Workload) bool { return wl.Status.ClusterName == nil })
	})
	r.dispatched = time.Since(start)
	work.Until(ctx, lookEvery, "running pods", func() bool { return running(ctx, workers[0])+running(ctx, workers[1]) == jobs })
	r.run = time.Since(start)
	for _, worker := range workers {
		r.requests += requestsOfManager(worker)
	}
	return r
}

func workloads(ctx context.Context, s *work.Site) []kueue.Workload {
	return world.All(ctx, attempt.Gomega(), s, &kueue.WorkloadList{}, client.InNamespace(s.Namespace)).Items
}

func running(ctx context.Context, s *work.Site) (n int) {
	pods := world.All(ctx, attempt.Gomega(), s, &corev1.PodList{}, client.InNamespace(s.Namespace), client.HasLabels{jobsetapi.JobSetNameKey})
	for i := range pods.Items {
		if pods.Items[i].Status.Phase == corev1.PodRunning {
			n++
		}
	}
	return n
}

// requestsOfManager counts what Kueue's manager cluster has asked of a worker.
func requestsOfManager(worker *work.Site) (n int) {
	for request, times := range attempt.Must(worker.Log.Count(worker.Namespace)) {
		if strings.HasSuffix(request.User, ":multikueue") {
			n += times
		}
	}
	return n
}
