// SPDX-License-Identifier: Apache-2.0

// Package inventory joins what a cluster has with what Kueue promised of it: nodes and the
// flavors that pick them, quotas and who holds them, what waits. Load reads, all else are pure
// functions of what it read.
//
// inventory.go is what there is, and what Kueue's scheduler makes of it; load.go reads it.
// nodes.go, quota.go and pending.go answer questions.
package inventory

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
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
	// Workloads have the overhead of their RuntimeClasses.
	Workloads []kueue.Workload
	// RuntimeClasses are none where the user may not list them.
	RuntimeClasses []nodev1.RuntimeClass

	// Unseen is what the user may not list. Figures that need it are too low.
	Unseen []Unseen
}

// Unseen is a kind that could not be listed.
type Unseen struct {
	// Kind is the resource as RBAC names it: "nodes", "clusterqueues.kueue.x-k8s.io".
	Kind string
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

// Snapshot returns what Kueue's scheduler would see.
func (i *Inventory) Snapshot(ctx context.Context) (*scheduler.Snapshot, error) {
	return i.World().Snapshot(ctx, i.Workloads)
}

// World returns what Workloads compete for.
func (i *Inventory) World() *scheduler.World {
	return &scheduler.World{
		Flavors: i.Flavors, Topologies: i.Topologies, AdmissionChecks: i.AdmissionChecks, Cohorts: i.Cohorts,
		ClusterQueues: i.ClusterQueues, LocalQueues: i.LocalQueues, Nodes: i.Nodes, Pods: i.Pods,
	}
}

// Stopped tells why a ClusterQueue admits nothing now, in Kueue's own words, or is empty.
func Stopped(cq *kueue.ClusterQueue) string {
	if policy := ptr.Deref(cq.Spec.StopPolicy, kueue.None); policy != kueue.None {
		return fmt.Sprintf("stopPolicy is %s", policy)
	}
	if condition := Inactive(cq); condition != nil {
		return condition.Message
	}
	return ""
}

// Inactive returns the condition by which Kueue says that a ClusterQueue is not active, be it
// stopped or missing something; nil for an active one, and before Kueue has looked at it.
func Inactive(cq *kueue.ClusterQueue) *metav1.Condition {
	active := apimeta.FindStatusCondition(cq.Status.Conditions, kueue.ClusterQueueActive)
	if active == nil || active.Status == metav1.ConditionTrue {
		return nil
	}
	return active
}

// MultiKueueCheck returns an AdmissionCheck of MultiKueue, or nil.
func (i *Inventory) MultiKueueCheck(name kueue.AdmissionCheckReference) *kueue.AdmissionCheck {
	if check := Find(i.AdmissionChecks, "", string(name)); check != nil && check.Spec.ControllerName == kueue.MultiKueueControllerName {
		return check
	}
	return nil
}

// LeadsAway reports whether what is admitted to a flavor of a ClusterQueue runs in other clusters:
// its quota promises nothing of the nodes of this one.
func (i *Inventory) LeadsAway(cq *kueue.ClusterQueue, flavor kueue.ResourceFlavorReference) bool {
	return cq.Spec.AdmissionChecksStrategy != nil && slices.ContainsFunc(cq.Spec.AdmissionChecksStrategy.AdmissionChecks, func(rule kueue.AdmissionCheckStrategyRule) bool {
		return i.MultiKueueCheck(rule.Name) != nil && (len(rule.OnFlavors) == 0 || slices.Contains(rule.OnFlavors, flavor))
	})
}
