// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	namespace   = "trace"
	flavor      = "gpu"
	gpusPerNode = 8
)

// readJobs reads the jobs of a trace: submit and duration in minutes, virtual cluster, GPUs.
func readJobs(path string) (jobs []forecast.Job) {
	for n, row := range read(path) {
		submit, gpus, minutes := number(row[0]), number(row[2]), number(row[3])
		if gpus == 0 || minutes == 0 {
			continue
		}
		// Times are unique, or else the order in a queue would not be that of the trace.
		at := begin.Add(time.Duration(submit)*time.Minute + time.Duration(n)*time.Microsecond)
		pods, each := (gpus+gpusPerNode-1)/gpusPerNode, min(gpus, gpusPerNode)
		wl := kit.Workload(namespace, fmt.Sprintf("job-%05d", n), row[1], at, kit.PodSet("node", int32(pods), string(kit.GPU), strconv.Itoa(each)))
		jobs = append(jobs, forecast.Job{Workload: wl, Arrives: at, Runs: time.Duration(minutes) * time.Minute})
	}
	return jobs
}

// readWorld reads the virtual clusters: name and nodes.
func readWorld(path string) *scheduler.World {
	world := &scheduler.World{Flavors: []kueue.ResourceFlavor{{ObjectMeta: metav1.ObjectMeta{Name: flavor}}}}
	for _, row := range read(path) {
		queue := kit.ClusterQueue(row[0], kit.Quota{Flavor: flavor, GPUs: strconv.Itoa(number(row[1]) * gpusPerNode)})
		// Nobody is preempted in the trace.
		queue.Spec.QueueingStrategy, queue.Spec.Preemption, queue.Spec.FlavorFungibility = kueue.BestEffortFIFO, nil, nil
		world.ClusterQueues = append(world.ClusterQueues, *queue)
		world.LocalQueues = append(world.LocalQueues, *kit.LocalQueue(namespace, row[0], row[0]))
	}
	return world
}

func read(path string) [][]string {
	file := attempt.Must(os.Open(path))
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	attempt.Succeed(err, "%s", path)
	return rows[1:]
}

func number(field string) int {
	n, _ := strconv.ParseFloat(field, 64) // The trace has been cut to numbers.
	return int(n)
}
