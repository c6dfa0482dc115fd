// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelpers "k8s.io/component-helpers/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// NodesOf returns the nodes that the nodeLabels of a flavor, or of one of several, pick. A flavor
// without nodeLabels picks every one.
func (i *Inventory) NodesOf(flavors ...*kueue.ResourceFlavor) []*corev1.Node {
	return i.nodes(func(node *corev1.Node) bool {
		return slices.ContainsFunc(flavors, func(flavor *kueue.ResourceFlavor) bool { return Picks(flavor, node) })
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
	on := make(map[string]bool, len(nodes))
	for _, node := range nodes {
		on[node.Name] = true
	}
	var sum resource.Quantity
	for n := range i.Pods {
		if pod := &i.Pods[n]; on[pod.Spec.NodeName] && !podset.PodEnded(pod) && counts(pod) {
			sum.Add(resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{})[name])
		}
	}
	return sum
}
