// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Pool is a set of nodes that are alike for a job: the same GPUs, divided the same way,
// behind the same taints.
type Pool struct {
	// Name is a DNS label made of what NodeLabels say; no two pools share one.
	Name string
	// Nodes, sorted by name.
	Nodes []*corev1.Node
	// NodeLabels pick exactly Nodes of all nodes of the cluster. Nil when no labels that
	// we know do: then somebody has to set PoolLabel.
	NodeLabels map[string]string
	// Taints that every node of the pool has for good, sorted.
	Taints []corev1.Taint
	// Resources are the GPU resources that its nodes have, sorted; none in a pool without
	// GPUs.
	Resources []corev1.ResourceName
	// Slicing tells what the first of Resources is a unit of.
	Slicing Slicing
}

// Pools groups nodes: those with GPUs by product and layout, and by resources and taints
// where labels can tell these apart; those without, unless they are tainted or of the
// control plane, together. Nodes of another system than Linux are in none. Where labels cannot pick such a group as a whole, it is split
// along the provider's node pools. Pools without GPUs come first, those with divided GPUs
// last, each kind sorted by name. The order of nodes does not matter.
func Pools(nodes []corev1.Node) []Pool {
	all := make([]*corev1.Node, 0, len(nodes))
	for i := range nodes {
		all = append(all, &nodes[i])
	}
	slices.SortFunc(all, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	var pools []Pool
	for _, group := range partition(slices.DeleteFunc(slices.Clone(all), leftOut), likeness) {
		for _, part := range refined(group, all) {
			if slices.ContainsFunc(part, func(node *corev1.Node) bool { return !Broken(node) }) {
				pools = append(pools, newPool(part, all))
			}
		}
	}
	name(pools)
	kinds := []Slicing{"", WholeGPUs, MIG, Shared}
	slices.SortFunc(pools, func(a, b Pool) int {
		return cmp.Or(slices.Index(kinds, a.Slicing)-slices.Index(kinds, b.Slicing), cmp.Compare(a.Name, b.Name))
	})
	return pools
}

func newPool(nodes, all []*corev1.Node) Pool {
	pool := Pool{Nodes: nodes, NodeLabels: pick(nodes, all), Taints: Lasting(nodes[0]), Resources: Allocatable(nodes...)}
	for _, node := range nodes {
		taints := Lasting(node)
		pool.Taints = slices.DeleteFunc(pool.Taints, func(taint corev1.Taint) bool { return !slices.Contains(taints, taint) })
	}
	if len(pool.Resources) > 0 {
		pool.Slicing = slicingOf(nodes[0], pool.Resources[0])
	}
	return pool
}

// Broken reports whether a node's labels tell of GPUs that it does not have: its device
// plugin does not run, or not yet.
func Broken(node *corev1.Node) bool { return hasGPUs(node) && len(Allocatable(node)) == 0 }

// leftOut reports whether a node is for something else than jobs: of another system than their
// images, or without GPUs and kept for others.
func leftOut(node *corev1.Node) bool {
	if os := node.Labels[corev1.LabelOSStable]; os != "" && os != string(corev1.Linux) {
		return true
	}
	if hasGPUs(node) {
		return false
	}
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master", "node-role.kubernetes.io/infra"} {
		if _, ok := node.Labels[label]; ok {
			return true
		}
	}
	return len(Lasting(node)) > 0
}

// likeness is equal for nodes with the same GPUs, divided the same way.
func likeness(node *corev1.Node) string {
	if !hasGPUs(node) {
		return ""
	}
	key := []string{Product(node)}
	for _, label := range layoutLabels {
		key = append(key, node.Labels[label])
	}
	return fmt.Sprintf("%q", key)
}

// refined divides a group by what its nodes have and by their taints, as far as labels can
// tell the parts apart: one node under maintenance makes no pool of its own.
func refined(group, all []*corev1.Node) [][]*corev1.Node {
	taints := func(node *corev1.Node) string { return fmt.Sprint(Lasting(node)) }
	// A node without a device plugin is counted with the first that has one.
	resources := func(node *corev1.Node) string {
		if Broken(node) {
			node = group[max(0, slices.IndexFunc(group, func(n *corev1.Node) bool { return !Broken(n) }))]
		}
		return fmt.Sprint(Allocatable(node))
	}
	for _, by := range []func(*corev1.Node) string{
		func(node *corev1.Node) string { return resources(node) + taints(node) }, taints, resources,
	} {
		var parts [][]*corev1.Node
		for _, part := range partition(group, by) {
			parts = append(parts, pickable(part, all)...)
		}
		if !slices.ContainsFunc(parts, func(part []*corev1.Node) bool { return pick(part, all) == nil }) {
			return parts
		}
	}
	return pickable(group, all)
}

// partition puts nodes with the same key together, in the order of keys.
func partition(nodes []*corev1.Node, key func(*corev1.Node) string) [][]*corev1.Node {
	parts := map[string][]*corev1.Node{}
	for _, node := range nodes {
		k := key(node)
		parts[k] = append(parts[k], node)
	}
	var ordered [][]*corev1.Node
	for _, k := range slices.Sorted(maps.Keys(parts)) {
		ordered = append(ordered, parts[k])
	}
	return ordered
}

func hasGPUs(node *corev1.Node) bool {
	return node.Labels[ProductLabel] != "" || len(Allocatable(node)) > 0
}

// Allocatable returns the GPU resources that nodes have now, sorted, each once.
func Allocatable(nodes ...*corev1.Node) []corev1.ResourceName {
	var names []corev1.ResourceName
	for _, node := range nodes {
		for name, amount := range node.Status.Allocatable {
			if IsResource(name) && amount.Sign() > 0 {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
