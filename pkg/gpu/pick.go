// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
)

// capacityLabels tell spot machines from others.
var capacityLabels = []string{
	"karpenter.sh/capacity-type",
	"eks.amazonaws.com/capacityType",
	"cloud.google.com/gke-provisioning",
	"cloud.google.com/gke-spot",
	"kubernetes.azure.com/scalesetpriority",
}

// pickable splits a group until labels can pick each part: not at all, or along the
// provider's node pools.
func pickable(group, all []*corev1.Node) [][]*corev1.Node {
	if pick(group, all) != nil {
		return [][]*corev1.Node{group}
	}
	for _, label := range nodePoolLabels {
		parts := partition(group, Label(label))
		if len(parts) == 1 {
			continue
		}
		var split [][]*corev1.Node
		for _, part := range parts {
			split = append(split, pickable(part, all)...)
		}
		return split
	}
	return [][]*corev1.Node{group}
}

// pick returns labels that pick exactly these of all nodes, or nil. What the nodes are comes
// first and is always there; the rest only where it is needed to keep others out.
func pick(nodes, all []*corev1.Node) map[string]string {
	picked := identity(nodes)
	own := sets.New(nodes...)
	others := slices.DeleteFunc(slices.Clone(all), own.Has)
	for _, label := range tellingLabels(nodes[0]) {
		left := matching(others, picked)
		if len(left) == 0 && len(picked) > 0 {
			break
		}
		value := Common(nodes, Label(label))
		if value == "" {
			continue
		}
		with := maps.Clone(picked)
		with[label] = value
		if len(matching(left, with)) < len(left) || len(left) == 0 {
			picked = with
		}
	}
	if len(picked) == 0 || len(matching(others, picked)) > 0 {
		return nil
	}
	return picked
}

// identity returns the labels that say which GPUs the nodes have and how they are divided.
func identity(nodes []*corev1.Node) map[string]string {
	picked := map[string]string{}
	if !hasGPUs(nodes[0]) {
		return picked
	}
	for _, label := range productLabels {
		if value := Common(nodes, Label(label)); value != "" {
			picked[label] = value
			break
		}
	}
	for _, label := range layoutLabels {
		if value := Common(nodes, Label(label)); value != "" {
			picked[label] = value
		}
	}
	return picked
}

// tellingLabels are those that may tell nodes with the same GPUs, or without any, apart.
func tellingLabels(node *corev1.Node) []string {
	machines := append(slices.Clone(nodePoolLabels), corev1.LabelInstanceTypeStable)
	if !hasGPUs(node) {
		return machines
	}
	telling := []string{countLabel}
	for _, label := range slices.Sorted(maps.Keys(node.Labels)) {
		if strings.HasPrefix(label, migPrefix) && strings.HasSuffix(label, ".count") {
			telling = append(telling, label)
		}
	}
	return slices.Concat(telling, capacityLabels, machines)
}

// Common is what all nodes say, or empty.
func Common(nodes []*corev1.Node, of func(*corev1.Node) string) string {
	if len(nodes) == 0 || slices.ContainsFunc(nodes, func(node *corev1.Node) bool { return of(node) != of(nodes[0]) }) {
		return ""
	}
	return of(nodes[0])
}

// Label returns what nodes say by a label.
func Label(name string) func(*corev1.Node) string {
	return func(node *corev1.Node) string { return node.Labels[name] }
}

func matching(nodes []*corev1.Node, picked map[string]string) []*corev1.Node {
	selector := labels.SelectorFromSet(picked)
	return slices.DeleteFunc(slices.Clone(nodes), func(node *corev1.Node) bool { return !selector.Matches(labels.Set(node.Labels)) })
}

// name sets a name of its own for every pool. It follows from the pool's labels, product and
// layout first, so that a pool that other labels pick is another pool: Kueue allows no
// change of a flavor's labels below a topology.
func name(pools []Pool) {
	used := map[string]bool{}
	for i := range pools {
		base := dnsLabel(strings.Join(append([]string{baseName(&pools[i])}, extraValues(&pools[i])...), "-"))
		pools[i].Name = base
		for n := 2; used[pools[i].Name]; n++ {
			pools[i].Name = numbered(base, n)
		}
		used[pools[i].Name] = true
	}
}

// numbered puts a number behind a DNS label, and cuts the label, not the number, where both
// are too long.
func numbered(label string, n int) string {
	number := fmt.Sprintf("-%d", n)
	label = label[:min(len(label), validation.DNS1123LabelMaxLength-len(number))]
	return strings.TrimRight(label, "-") + number
}

// baseName says which GPUs a pool has and how they are divided: nodes that come or go give no pool the name that another had.
func baseName(pool *Pool) string {
	if len(pool.Resources) == 0 {
		return "cpu"
	}
	name := cmp.Or(vendor.ReplaceAllString(Product(pool.Nodes[0]), ""), "gpu")
	labels := pool.NodeLabels
	config := cmp.Or(labels[migConfigLabel], labels[gkePartition])
	switch {
	case pool.Slicing == WholeGPUs && (config == "" || config == "all-disabled") && len(pool.Resources) == 1:
	case config != "" && !strings.Contains(name, "-MIG-"):
		name += "-" + config
	case slices.ContainsFunc(pool.Resources, func(name corev1.ResourceName) bool { return strings.HasPrefix(string(name), migPrefix) }):
		name += "-mig"
	case pool.Slicing == Shared && !strings.HasSuffix(name, "-SHARED"):
		name += "-shared"
	}
	if pool.Slicing == Shared {
		name = strings.Join([]string{name, labels[sharingLabel], labels[gkeSharing], labels[replicasLabel]}, "-")
	}
	return dnsLabel(name)
}

// extraValues are the values of the labels that do not say what the GPUs are.
func extraValues(pool *Pool) []string {
	known := identity(pool.Nodes)
	var values []string
	for _, label := range slices.Sorted(maps.Keys(pool.NodeLabels)) {
		if value := pool.NodeLabels[label]; known[label] == "" && value != "cpu" {
			values = append(values, value)
		}
	}
	return values
}

var (
	vendor = regexp.MustCompile("(?i)^nvidia-")
	notDNS = regexp.MustCompile("[^a-z0-9]+")
)

func dnsLabel(text string) string {
	text = notDNS.ReplaceAllString(strings.ToLower(text), "-")
	text = text[:min(len(text), validation.DNS1123LabelMaxLength)]
	return strings.Trim(text, "-")
}
