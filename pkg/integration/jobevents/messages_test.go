// SPDX-License-Identifier: Apache-2.0

package jobevents

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPlacedMessage(t *testing.T) {
	wl := &kueue.Workload{Spec: kueue.WorkloadSpec{QueueName: "team"}}
	wl.Status.Admission = &kueue.Admission{ClusterQueue: "gpus", PodSetAssignments: []kueue.PodSetAssignment{
		{Name: "dataset-initializer", Count: new(int32(1))},
		{Name: "node", Count: new(int32(2)), ResourceUsage: kit.Amounts("cpu", "8", "memory", "64Gi", "nvidia.com/gpu", "16"),
			Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "cpus", "memory": "cpus", "nvidia.com/gpu": "h100"}},
	}}
	want := "Admitted from queue team by ClusterQueue gpus: dataset-initializer 1 pod on no flavor, it requests nothing; " +
		"node 2 pods on flavor cpus (64Gi memory, 8 cpu), flavor h100 (16 nvidia.com/gpu)"
	expect.Same(t, "Unexpected message", want, Placed(wl))
}

func TestDispatchIsTold(t *testing.T) {
	for where, cluster := range map[string]*string{"cluster west": new("west"), "another cluster": nil} {
		wl := &kueue.Workload{Spec: kueue.WorkloadSpec{QueueName: "team"},
			Status: kueue.WorkloadStatus{ClusterName: cluster, Admission: &kueue.Admission{ClusterQueue: "gpus"}}}
		expect.Same(t, "Unexpected message", "Admitted from queue team by ClusterQueue gpus, and runs in "+where, Dispatched(wl))
	}
}
