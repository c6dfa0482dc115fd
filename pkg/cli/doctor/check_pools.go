// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
)

// generatePools is the command that makes pools of the nodes that are there.
const generatePools = "kubectl trainjob pools generate"

// flavorsWithoutNodes finds flavors with quota whose labels no node has.
func flavorsWithoutNodes(f *Facts) []Finding {
	var findings []Finding
	for i := range f.Flavors {
		flavor := &f.Flavors[i]
		if len(f.grantsOf(flavor.Name)) == 0 || len(f.NodesOf(flavor)) > 0 {
			continue
		}
		finding := Finding{
			Severity: Warning, Reason: "FlavorWithoutNodes", Object: object("ResourceFlavor", "", flavor.Name),
			Problem:  fmt.Sprintf("No node has the labels of the flavor: %s.", labels.Set(flavor.Spec.NodeLabels)),
			Effect:   "TrainJobs that are admitted to it hold quota, and their pods stay Pending until such nodes come.",
			Advice:   "If nothing scales such nodes up, compare with the flavors that the nodes would give:",
			Commands: []string{generatePools},
		}
		if meant := f.meant(flavor); meant != nil {
			finding.Advice = "The nodes of one pool are in no flavor, and differ from it in one value. If these are meant:"
			finding.Commands = []string{patchCommand("resourceflavor", flavor.Name, "replace", "/spec/nodeLabels", meant)}
		}
		findings = append(findings, finding)
	}
	return findings
}

// meant returns the labels that a flavor would have with the one value corrected that the
// GPU nodes outside of all flavors agree on, or nil.
func (f *Facts) meant(flavor *kueue.ResourceFlavor) map[string]string {
	if flavor.Spec.TopologyName != nil {
		return nil // its labels are immutable
	}
	var found map[string]string
	for _, node := range f.NodesOfNoFlavor() {
		candidate := map[string]string{}
		differ := 0
		for key, value := range flavor.Spec.NodeLabels {
			candidate[key] = node.Labels[key]
			if candidate[key] != value {
				differ++
			}
		}
		if differ != 1 || slices.Contains(slices.Collect(maps.Values(candidate)), "") || len(gpu.Allocatable(node)) == 0 {
			continue
		}
		if found != nil && !maps.Equal(found, candidate) {
			return nil
		}
		found = candidate
	}
	return found
}

// nodesWithoutFlavor finds GPU nodes that no quota leads to, one finding per product.
func nodesWithoutFlavor(f *Facts) []Finding {
	if len(f.Flavors) == 0 {
		return []Finding{{
			Severity: Info, Reason: "NoPools", Object: "ResourceFlavors",
			Problem: "There are no flavors yet; `" + generatePools + "` makes some of the nodes.",
		}}
	}
	groups := map[string][]string{}
	for i := range f.Nodes {
		node := &f.Nodes[i]
		if names := gpu.Allocatable(node); len(names) > 0 && !f.reached(node, names) {
			group := cmp.Or(node.Labels[gpu.ProductLabel], string(names[0]))
			groups[group] = append(groups[group], node.Name)
		}
	}
	var findings []Finding
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		findings = append(findings, Finding{
			Severity: Warning, Reason: "NodesWithoutFlavor", Object: object("Node", "", groups[group][0]),
			Problem: fmt.Sprintf("%s with %s in no flavor that a ClusterQueue has GPUs of: %s.",
				are(len(groups[group])), group, few(groups[group])),
			Effect:   "No TrainJob in a queue gets these GPUs.",
			Advice:   "See what flavors and quotas the nodes would give:",
			Commands: []string{generatePools},
		})
	}
	return findings
}

// reached reports whether a quota for any of the resources is in a flavor of the node.
func (f *Facts) reached(node *corev1.Node, names []corev1.ResourceName) bool {
	return slices.ContainsFunc(f.grants(), func(g grant) bool {
		flavor := f.Flavor(g.Flavor)
		return flavor != nil && slices.Contains(names, g.Quota.Name) && inventory.Picks(flavor, node)
	})
}

// are is "1 node is" or "3 nodes are".
func are(n int) string {
	if n == 1 {
		return "1 node is"
	}
	return fmt.Sprintf("%d nodes are", n)
}

// few names the first of many.
func few(names []string) string {
	const most = 4
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}
