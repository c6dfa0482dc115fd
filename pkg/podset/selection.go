// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"k8s.io/apimachinery/pkg/api/equality"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// SameSelection reports whether two lists of PodSets ask for the same nodes, and for the same of
// them beside their containers: node selector, affinity, topology, priority, runtime class, overhead,
// resources of the pod and claims. Kueue's own comparison of a job with its Workload leaves these out,
// so a job that changed its mind while it waited would be admitted for what it said first.
func SameSelection(a, b []kueue.PodSet) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !sameSelection(&a[i], &b[i]) {
			return false
		}
	}
	return true
}

func sameSelection(a, b *kueue.PodSet) bool {
	x, y := &a.Template.Spec, &b.Template.Spec
	return a.Name == b.Name &&
		equality.Semantic.DeepEqual(x.NodeSelector, y.NodeSelector) &&
		equality.Semantic.DeepEqual(x.Affinity, y.Affinity) &&
		differsBesideContainers(x, y) == "" &&
		x.PriorityClassName == y.PriorityClassName &&
		equality.Semantic.DeepEqual(a.TopologyRequest, b.TopologyRequest)
}
