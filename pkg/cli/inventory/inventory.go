// SPDX-License-Identifier: Apache-2.0

// Package inventory joins what a cluster has with what Kueue promised of it: nodes and the
// flavors that pick them, quotas and who holds them, what waits. Load reads, all else are pure
// functions of what it read.
//
// inventory.go is what there is, load.go reads it.
// nodes.go, grant.go, quota.go, pending.go and workers.go answer questions; snapshot.go makes of it
// what Kueue's scheduler works on.
package inventory

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
	return !slices.ContainsFunc(i.Unseen, func(u Unseen) bool { return u.Kind == kind })
}

// Find returns the object of a name, or nil.
func Find[T any, P interface {
	*T
	metav1.Object
}](items []T, namespace, name string) *T {
	for i := range items {
		if obj := P(&items[i]); obj.GetNamespace() == namespace && obj.GetName() == name {
			return &items[i]
		}
	}
	return nil
}

// Objects returns the objects of a list.
func Objects[T any, P interface {
	*T
	client.Object
}](items []T) []client.Object {
	objects := make([]client.Object, 0, len(items))
	for i := range items {
		objects = append(objects, P(&items[i]))
	}
	return objects
}

// Flavor returns a flavor by its name, or nil.
func (i *Inventory) Flavor(name kueue.ResourceFlavorReference) *kueue.ResourceFlavor {
	return Find(i.Flavors, "", string(name))
}

// ClusterQueue returns a ClusterQueue by its name, or nil.
func (i *Inventory) ClusterQueue(name kueue.ClusterQueueReference) *kueue.ClusterQueue {
	return Find(i.ClusterQueues, "", string(name))
}

// LocalQueue returns a LocalQueue, or nil.
func (i *Inventory) LocalQueue(namespace string, name kueue.LocalQueueName) *kueue.LocalQueue {
	return Find(i.LocalQueues, namespace, string(name))
}
