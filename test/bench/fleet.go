// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
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
	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

const (
	fleetDir = ".fleet-bench"
	// fleetLimit ends a measurement that hangs.
	fleetLimit = 15 * time.Minute
	// fleetEvery is seldom enough that looking is not what is measured.
	fleetEvery = 200 * time.Millisecond
)

// fleetColumn is one way to run the manager cluster.
type fleetColumn struct {
	title, integration string
	// clientConnection of Kueue in all clusters; nil is as shipped.
	clientConnection map[string]any
}

var fleetColumns = []fleetColumn{
	{"in-tree adapter", world.InTree, nil},
	{"generic adapter", world.External, nil},
	{"generic adapter, Kueue's limits raised", world.External, map[string]any{"qps": 2000, "burst": 4000}},
}

// measureFleet measures how fast TrainJobs go from a manager cluster of MultiKueue to its two workers, with Kueue's
// generic adapter, which kueue-trainer uses, and with the adapter of the in-tree integration. It prints a table.
func measureFleet(ctx context.Context, jobs int) {
	rows := [][]string{{"manager cluster", "given to a worker, TrainJobs a second", "pods run, TrainJobs a second", "requests of Kueue to both workers per TrainJob"}}
	for _, c := range fleetColumns {
		row := []string{c.title}
		for _, value := range c.measure(ctx, jobs) {
			row = append(row, fmt.Sprintf("%.1f", value))
		}
		rows = append(rows, row)
	}
	fmt.Print("\n", pages.Table(rows...))
}

func (c fleetColumn) measure(ctx context.Context, jobs int) (values []float64) {
	for name, value := range map[string]string{"NODES": "16", "FLEET_MANAGER": c.integration, "FLEET_WORKERS": "external,external"} {
		attempt.Succeed(os.Setenv(name, value))
	}
	undisturbed := context.WithoutCancel(ctx)
	fleet := attempt.Must(world.StartFleet(undisturbed, filepath.Join(attempt.Must(world.Root()), fleetDir), os.Stdout))
	ctx, cancel := context.WithTimeout(ctx, fleetLimit)
	defer cancel()
	err := attempt.To(func() {
		c.configure(ctx, fleet)
		values = dispatch(ctx, fleet, jobs)
	})
	attempt.Succeed(errors.Join(err, fleet.Stop(undisturbed, os.Stdout)), "%s", c.title)
	return values
}

func (c fleetColumn) configure(ctx context.Context, fleet *world.Fleet) {
	if c.clientConnection == nil {
		return
	}
	for _, cluster := range append(fleet.Workers, fleet.Manager) {
		attempt.Must(cluster.RestartKueueWith(ctx, os.Stdout, map[string]any{"clientConnection": c.clientConnection}, "kueue"))
	}
}

// dispatch has TrainJobs wait in the manager cluster, releases them, and waits until all run. It returns what a row has.
func dispatch(ctx context.Context, fleet *world.Fleet, jobs int) []float64 {
	workers := []*room{newRoom(ctx, fleet.Workers[0], "fleet"), newRoom(ctx, fleet.Workers[1], "fleet")}
	manager := newRoom(ctx, fleet.Manager, "fleet", "workers")
	manager.stopQueue(ctx, kueue.Hold)
	for i := range jobs {
		attempt.Succeed(manager.Create(ctx, manager.onePod(i, "10m")))
	}
	until(ctx, fleetEvery, "Workloads", func() bool { return len(workloads(ctx, manager)) == jobs })
	start := time.Now()
	manager.stopQueue(ctx, kueue.None)
	until(ctx, fleetEvery, "Workloads in workers", func() bool {
		return !slices.ContainsFunc(workloads(ctx, manager), func(wl kueue.Workload) bool { return wl.Status.ClusterName == nil })
	})
	dispatched := time.Since(start)
	until(ctx, fleetEvery, "running pods", func() bool { return running(ctx, workers[0])+running(ctx, workers[1]) == jobs })
	run, n := time.Since(start), float64(jobs)
	requests := requestsOfManager(workers[0]) + requestsOfManager(workers[1])
	return []float64{n / dispatched.Seconds(), n / run.Seconds(), float64(requests) / n}
}

func workloads(ctx context.Context, s *room) []kueue.Workload {
	return world.All(ctx, attempt.Gomega(), s, &kueue.WorkloadList{}, client.InNamespace(s.Namespace)).Items
}

func running(ctx context.Context, s *room) (n int) {
	pods := world.All(ctx, attempt.Gomega(), s, &corev1.PodList{}, client.InNamespace(s.Namespace), client.HasLabels{jobsetapi.JobSetNameKey})
	for i := range pods.Items {
		if pods.Items[i].Status.Phase == corev1.PodRunning {
			n++
		}
	}
	return n
}

// requestsOfManager counts what Kueue's manager cluster has asked of a worker.
func requestsOfManager(worker *room) (n int) {
	for request, times := range attempt.Must(worker.log.Count(worker.Namespace)) {
		if strings.HasSuffix(request.User, ":multikueue") {
			n += times
		}
	}
	return n
}
