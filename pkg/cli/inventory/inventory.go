// SPDX-License-Identifier: Apache-2.0

// Package inventory joins what a cluster has with what Kueue promised of it: nodes and the flavors that pick them, quotas
// and who holds them, what waits. Load reads, all else are pure functions of what it read.
package inventory

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelpers "k8s.io/component-helpers/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// Inventory is what a cluster had when it was read, every list sorted by namespace and name.
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
	// DeviceClasses are none where the user may not list them, or the API server has none.
	DeviceClasses []resourcev1.DeviceClass

	// Unseen are the kinds that the user may not list. Figures that need them are too low.
	Unseen []string
}

// The kinds of an inventory as Unseen has them, which is how RBAC names them.
const (
	Nodes           = "nodes"
	Pods            = "pods"
	Flavors         = "resourceflavors.kueue.x-k8s.io"
	Topologies      = "topologies.kueue.x-k8s.io"
	ClusterQueues   = "clusterqueues.kueue.x-k8s.io"
	Cohorts         = "cohorts.kueue.x-k8s.io"
	LocalQueues     = "localqueues.kueue.x-k8s.io"
	AdmissionChecks = "admissionchecks.kueue.x-k8s.io"
	Workloads       = "workloads.kueue.x-k8s.io"
)

// Saw reports whether a kind could be listed.
func (i *Inventory) Saw(kind string) bool { return !slices.Contains(i.Unseen, kind) }

// Object is what a pointer to an object of a list is.
type Object[T any] interface {
	*T
	client.Object
}

// Find returns the object of a name, or nil.
func Find[T any, P Object[T]](items []T, namespace, name string) *T {
	for i := range items {
		if obj := P(&items[i]); obj.GetNamespace() == namespace && obj.GetName() == name {
			return &items[i]
		}
	}
	return nil
}

// Objects returns the objects of a list.
func Objects[T any, P Object[T]](items []T) []client.Object {
	return kueuelib.Map(items, func(item *T) client.Object { return P(item) })
}

// Names returns the names of objects.
func Names[P metav1.Object](objects []P) []string {
	names := make([]string, 0, len(objects))
	for _, obj := range objects {
		names = append(names, obj.GetName())
	}
	return names
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

// Checks returns the admission checks that a ClusterQueue names.
func Checks(cq *kueue.ClusterQueue) []kueue.AdmissionCheckStrategyRule {
	return ptr.Deref(cq.Spec.AdmissionChecksStrategy, kueue.AdmissionChecksStrategy{}).AdmissionChecks
}

// LeadsAway reports whether what is admitted to a flavor of a ClusterQueue runs in other clusters:
// its quota promises nothing of the nodes of this one.
func (i *Inventory) LeadsAway(cq *kueue.ClusterQueue, flavor kueue.ResourceFlavorReference) bool {
	return i.checkedBy(kueue.MultiKueueControllerName, cq, flavor)
}

// MakesNodes reports whether nodes are made for what gets quota of a flavor of a ClusterQueue, before it is admitted: those
// that are there say nothing of where it runs.
func (i *Inventory) MakesNodes(cq *kueue.ClusterQueue, flavor kueue.ResourceFlavorReference) bool {
	return i.checkedBy(kueue.ProvisioningRequestControllerName, cq, flavor)
}

func (i *Inventory) checkedBy(controller string, cq *kueue.ClusterQueue, flavor kueue.ResourceFlavorReference) bool {
	return slices.ContainsFunc(Checks(cq), func(rule kueue.AdmissionCheckStrategyRule) bool {
		check := Find(i.AdmissionChecks, "", string(rule.Name))
		return check != nil && check.Spec.ControllerName == controller && (len(rule.OnFlavors) == 0 || slices.Contains(rule.OnFlavors, flavor))
	})
}

// NodesOf returns the nodes that the nodeLabels of a flavor, or of one of several, pick. A flavor
// without nodeLabels picks every one.
func (i *Inventory) NodesOf(flavors ...*kueue.ResourceFlavor) []*corev1.Node {
	return i.nodes(func(node *corev1.Node) bool {
		return slices.ContainsFunc(flavors, func(flavor *kueue.ResourceFlavor) bool { return Picks(flavor, node) })
	})
}

// Untold reports whether nodes may have more of a resource than they tell, by the devices of a DeviceClass: where a device
// plugin serves it, or did, a node tells how much.
func (i *Inventory) Untold(nodes []*corev1.Node, name corev1.ResourceName) bool {
	return slices.ContainsFunc(i.DeviceClasses, func(class resourcev1.DeviceClass) bool {
		return ptr.Deref(class.Spec.ExtendedResourceName, resourcev1.ResourceDeviceClassPrefix+class.Name) == string(name)
	}) && slices.ContainsFunc(nodes, func(node *corev1.Node) bool {
		_, told := node.Status.Allocatable[name]
		return !told
	})
}

// NodesOfNoFlavor returns the nodes that no flavor picks.
func (i *Inventory) NodesOfNoFlavor() []*corev1.Node {
	return i.nodes(func(node *corev1.Node) bool {
		return !slices.ContainsFunc(i.Flavors, func(f kueue.ResourceFlavor) bool { return Picks(&f, node) })
	})
}

// Share reports whether two flavors pick a node in common.
func (i *Inventory) Share(a, b *kueue.ResourceFlavor) bool {
	return slices.ContainsFunc(i.NodesOf(a), func(node *corev1.Node) bool { return Picks(b, node) })
}

func (i *Inventory) nodes(want func(*corev1.Node) bool) []*corev1.Node {
	var nodes []*corev1.Node
	for n := range i.Nodes {
		if want(&i.Nodes[n]) {
			nodes = append(nodes, &i.Nodes[n])
		}
	}
	return nodes
}

// Picks reports whether a flavor's nodeLabels pick a node.
func Picks(flavor *kueue.ResourceFlavor, node *corev1.Node) bool {
	return labels.SelectorFromSet(flavor.Spec.NodeLabels).Matches(labels.Set(node.Labels))
}

// Ready reports whether pods can come to a node: it is ready and not cordoned.
func Ready(node *corev1.Node) bool {
	return !node.Spec.Unschedulable && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Allocatable sums what nodes have of a resource.
func Allocatable(nodes []*corev1.Node, name corev1.ResourceName) resource.Quantity {
	var sum resource.Quantity
	for _, node := range nodes {
		sum.Add(node.Status.Allocatable[name])
	}
	return sum
}

// UsedOn sums what pods hold of a resource on some nodes: those that are bound, have not ended and count.
func (i *Inventory) UsedOn(nodes []*corev1.Node, name corev1.ResourceName, counts func(*corev1.Pod) bool) resource.Quantity {
	on := sets.New(Names(nodes)...)
	var sum resource.Quantity
	for n := range i.Pods {
		if pod := &i.Pods[n]; on.Has(pod.Spec.NodeName) && !podset.PodEnded(pod) && counts(pod) {
			sum.Add(resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{})[name])
		}
	}
	return sum
}
