// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
)

func TestMakeSplitsThePools(t *testing.T) {
	cases := map[string]struct {
		gpuNodes int
		want     map[string]int
	}{
		"an even number is split in half":   {8, map[string]int{"hopper": 4, "ampere": 4, "": 2}},
		"of an odd number H100 gets more":   {3, map[string]int{"hopper": 2, "ampere": 1, "": 2}},
		"without GPUs there are CPU nodes":  {0, map[string]int{"": 2}},
		"a large cluster has them all, too": {200, map[string]int{"hopper": 100, "ampere": 100, "": 2}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := map[string]int{}
			names := map[string]bool{}
			for _, node := range Make(tc.gpuNodes) {
				got[node.Labels["nvidia.com/gpu.family"]]++
				names[node.Name] = true
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
			if len(names) != tc.gpuNodes+2 {
				t.Errorf("%d names for %d nodes", len(names), tc.gpuNodes+2)
			}
		})
	}
}

func TestOnlyGPUNodesHaveGPUsAndTheTaint(t *testing.T) {
	for _, node := range Make(4) {
		hasGPU := node.Labels["nvidia.com/gpu.product"] != ""
		gpus := node.Status.Allocatable[gpuResource]
		if hasGPU != (gpus.Value() == 8) || hasGPU != (len(node.Spec.Taints) == 1) {
			t.Errorf("%s: product %q, %s GPUs, taints %v", node.Name,
				node.Labels["nvidia.com/gpu.product"], gpus.String(), node.Spec.Taints)
		}
	}
}

func TestUsable(t *testing.T) {
	ready := []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	cases := map[string]struct {
		node corev1.Node
		want bool
	}{
		"ready, with a taint of its own": {corev1.Node{
			Spec: corev1.NodeSpec{Taints: h100.taints}, Status: corev1.NodeStatus{Conditions: ready}}, true},
		"ready, but not seen by the node controller yet": {corev1.Node{
			Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: corev1.TaintNodeNotReady}}}, Status: corev1.NodeStatus{Conditions: ready}}, false},
		"just created": {corev1.Node{}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Usable(&tc.node); got != tc.want {
				t.Errorf("Usable is %v, want %v", got, tc.want)
			}
		})
	}
}
