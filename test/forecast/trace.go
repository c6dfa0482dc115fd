// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/csv"
	"fmt"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// begin is when the trace begins.
var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

const (
	namespace   = "trace"
	flavor      = "gpu"
	gpusPerNode = 8
)

// readJobs reads the jobs of a trace: submit and duration in minutes, virtual cluster, GPUs.
func readJobs(path string) ([]forecast.Job, error) {
	rows, err := read(path)
	if err != nil {
		return nil, err
	}
	var jobs []forecast.Job
	for n, row := range rows {
		submit, gpus, minutes := number(row[0]), number(row[2]), number(row[3])
		if gpus == 0 || minutes == 0 {
			continue
		}
		// Times are unique, or else the order in a queue would not be that of the trace.
		at := begin.Add(time.Duration(submit)*time.Minute + time.Duration(n)*time.Microsecond)
		jobs = append(jobs, forecast.Job{Workload: workloadOf(fmt.Sprintf("job-%05d", n), row[1], gpus, at), Arrives: at, Runs: time.Duration(minutes) * time.Minute})
	}
	return jobs, nil
}

func workloadOf(name, queue string, gpus int, at time.Time) *kueue.Workload {
	pods, each := 1, gpus
	if gpus > gpusPerNode {
		pods, each = (gpus+gpusPerNode-1)/gpusPerNode, gpusPerNode
	}
	requests := corev1.ResourceList{gpu.Whole: *resource.NewQuantity(int64(each), resource.DecimalSI)}
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(at)},
		Spec: kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(queue), Priority: ptr.To[int32](0), PodSets: []kueue.PodSet{{
			Name: "node", Count: int32(pods),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "node", Resources: corev1.ResourceRequirements{Requests: requests}}}}},
		}}},
	}
}

// readWorld reads the virtual clusters: name and nodes.
func readWorld(path string) (*scheduler.World, error) {
	rows, err := read(path)
	if err != nil {
		return nil, err
	}
	world := &scheduler.World{Flavors: []kueue.ResourceFlavor{{ObjectMeta: metav1.ObjectMeta{Name: flavor}}}}
	for _, row := range rows {
		quota := resource.NewQuantity(int64(number(row[1])*gpusPerNode), resource.DecimalSI)
		world.ClusterQueues = append(world.ClusterQueues, kueue.ClusterQueue{
			ObjectMeta: metav1.ObjectMeta{Name: row[0]},
			Spec: kueue.ClusterQueueSpec{QueueingStrategy: kueue.BestEffortFIFO, ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{gpu.Whole},
				Flavors:          []kueue.FlavorQuotas{{Name: flavor, Resources: []kueue.ResourceQuota{{Name: gpu.Whole, NominalQuota: *quota}}}},
			}}},
		})
		world.LocalQueues = append(world.LocalQueues, kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: row[0]}, Spec: kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(row[0])},
		})
	}
	return world, nil
}

// read returns the rows of a CSV file below its head.
func read(path string) ([][]string, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rows[1:], nil
}

func number(field string) int {
	n, _ := strconv.ParseFloat(field, 64) // The trace has been cut to numbers.
	return int(n)
}

func gpusOf(wl *kueue.Workload) int64 {
	requests := wl.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests
	return int64(wl.Spec.PodSets[0].Count) * requests.Name(gpu.Whole, resource.DecimalSI).Value()
}
