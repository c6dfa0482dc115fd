// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPlacedMessage(t *testing.T) {
	wl := &kueue.Workload{
		Spec: kueue.WorkloadSpec{QueueName: "team"},
		Status: kueue.WorkloadStatus{Admission: &kueue.Admission{
			ClusterQueue: "gpus",
			PodSetAssignments: []kueue.PodSetAssignment{
				{Name: "dataset-initializer", Count: ptr.To[int32](1)},
				{
					Name: "node", Count: ptr.To[int32](2),
					Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{"cpu": "cpus", "memory": "cpus", "nvidia.com/gpu": "h100"},
					ResourceUsage: corev1.ResourceList{
						"cpu": resource.MustParse("8"), "memory": resource.MustParse("64Gi"), "nvidia.com/gpu": resource.MustParse("16"),
					},
				},
			},
		}},
	}
	want := "Admitted from queue team by ClusterQueue gpus: dataset-initializer 1 pod on no flavor, it requests nothing; " +
		"node 2 pods on flavor cpus (64Gi memory, 8 cpu), flavor h100 (16 nvidia.com/gpu)"
	expect.Same(t, "Unexpected message", want, placedMessage(wl))
}
