// SPDX-License-Identifier: Apache-2.0

// Package inventory joins what a cluster has with what Kueue promised of it: nodes and the
// flavors that pick them, quotas and who holds them, what waits. Load reads, all else are pure
// functions of what it read.
//
// inventory.go is what there is, load.go reads it, follow.go reads it again after changes.
// nodes.go, grant.go, quota.go, pending.go and workers.go answer questions; snapshot.go makes of it
// what Kueue's scheduler works on.
package inventory

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Inventory is what a cluster had when it was read, every list sorted by namespace and
// name.
type Inventory struct {
	Nodes           []corev1.Node
	Pods            []corev1.Pod
	Flavors         []kueue.ResourceFlavor
	Topologies      []kueue.Topology
	ClusterQueues   []kueue.ClusterQueue
	Cohorts         []kueue.Cohort
	LocalQueues     []kueue.LocalQueue
	AdmissionChecks []kueue.AdmissionCheck
	Workloads       []kueue.Workload

	// Unseen is what the user may not list. Figures that need it are too low.
	Unseen []Unseen
}

// Unseen is a kind that could not be listed.
type Unseen struct {
	// Kind is the resource as RBAC names it: "nodes", "clusterqueues.kueue.x-k8s.io".
	Kind string
	Err  error
}

// String tells a user what is missing.
func (u Unseen) String() string {
	return fmt.Sprintf("%s: you may not list them in the whole cluster", u.Kind)
}

// Saw reports whether a kind could be listed, as Unseen names it.
func (i *Inventory) Saw(kind string) bool {
	for _, unseen := range i.Unseen {
		if unseen.Kind == kind {
			return false
		}
	}
	return true
}

// Flavor returns a flavor by its name, or nil.
func (i *Inventory) Flavor(name kueue.ResourceFlavorReference) *kueue.ResourceFlavor {
	for n := range i.Flavors {
		if i.Flavors[n].Name == string(name) {
			return &i.Flavors[n]
		}
	}
	return nil
}

// ClusterQueue returns a ClusterQueue by its name, or nil.
func (i *Inventory) ClusterQueue(name kueue.ClusterQueueReference) *kueue.ClusterQueue {
	for n := range i.ClusterQueues {
		if i.ClusterQueues[n].Name == string(name) {
			return &i.ClusterQueues[n]
		}
	}
	return nil
}

// LocalQueue returns a LocalQueue, or nil.
func (i *Inventory) LocalQueue(namespace string, name kueue.LocalQueueName) *kueue.LocalQueue {
	for n := range i.LocalQueues {
		if q := &i.LocalQueues[n]; q.Namespace == namespace && q.Name == string(name) {
			return q
		}
	}
	return nil
}
