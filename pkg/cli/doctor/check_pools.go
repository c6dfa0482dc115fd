// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/labels"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// generatePools is the command that makes pools of the nodes that are there.
const generatePools = "kubectl trainjob pools generate"

// pools is what checks of pools need.
var pools = []Kind{flavors, nodes, clusterQueues, cohorts}

var poolChecks = []check{{
	inOrder: "Kueue manages the namespaces that have queues", looksAt: []Kind{configMaps, namespaceKind, localQueues}, given: []condition{kueueConfigured}, wrong: unmanagedQueues,
	ID: "NamespaceNotManaged", Severity: Warning, When: "it has a LocalQueue, and Kueue's `managedJobsNamespaceSelector` leaves it out, see [namespaces that opt in](operate.md#namespaces-that-opt-in)",
	problem: "It has LocalQueue {queue}, and managedJobsNamespaceSelector ({selector}) leaves it out.",
	effect:  "Its TrainJobs run at once, outside of all quotas, whatever queue they name.",
	advice:  "Label the namespace so that the selector takes it in, see docs/operate.md#namespaces-that-opt-in, or delete the queue:", commands: []string{"{label}"},
}, {
	inOrder: "every flavor has nodes", looksAt: pools, wrong: flavorsWithoutNodes,
	ID: "FlavorWithoutNodes", Severity: Warning, When: "no node has the labels of a flavor with quota",
	problem: "No node has the labels of the flavor: {labels}.",
	effect:  "TrainJobs that are admitted to it hold quota, and their pods stay Pending until such nodes come.",
	advice:  "If nothing scales such nodes up, compare with the flavors that the nodes would give:", commands: []string{generatePools},
}, {
	inOrder: "every GPU node is in a flavor", looksAt: slices.Concat(pools, []Kind{configMaps}), wrong: nodesWithoutFlavor,
	ID: "NodesWithoutFlavor", Severity: Warning, When: "no ClusterQueue has GPUs in any flavor of a GPU node",
	problem: "In no flavor that a ClusterQueue has GPUs of: {count} with {product} ({nodes}).",
	effect:  "No TrainJob in a queue gets these GPUs.",
	advice:  "See what flavors and quotas the nodes would give:", commands: []string{generatePools},
}, {
	ID: "NoPools", Severity: Info, When: "there are no flavors", object: "ResourceFlavors",
	problem: "There are no flavors yet; `" + generatePools + "` makes some of the nodes.",
}, {
	inOrder: "quotas are there as nodes", looksAt: pools, wrong: quotasAboveNodes,
	ID: "QuotaAboveNodes", Severity: Warning, When: "ClusterQueues and Cohorts promise more of a flavor than its nodes have, or of flavors that share nodes more than all their nodes; the commands lower all in proportion, none below what is reserved of it, and none to 0",
	problem: "Quotas promise {promised} of {resource}, and {nodes} have {have}.",
	effect:  "TrainJobs are admitted for which there is no room: they hold quota, and their pods stay Pending.",
	advice:  "If nothing scales nodes up, lower them in proportion, to what is reserved at the least:",
}, {
	inOrder: "the taints of GPU nodes are tolerated", looksAt: slices.Concat(pools, []Kind{configMaps}), wrong: taints,
	ID: "TaintNotTolerated", Severity: Error, When: "GPU nodes of a flavor have a taint that neither kueue-trainer's rules nor the flavor tolerates, and the flavor's `nodeTaints` do not tell Kueue of; where only some nodes have it, ask who set it before you take it off",
	problem: "Taint {taint} of {nodes} is neither tolerated by the flavor nor known to Kueue.",
	effect:  "TrainJobs that are admitted to it hold quota, and their pods stay Pending.",
	advice:  "To let only those TrainJobs in that tolerate the taint themselves, put it into the flavor's nodeTaints instead.", commands: []string{"{tolerate}"},
}}

// flavorsWithoutNodes finds flavors with quota whose labels no node has.
func flavorsWithoutNodes(f *Facts, found func(hit)) {
	for _, flavor := range f.Flavors {
		if len(onNodes(f.grantsOf(flavor.Name))) == 0 || len(f.NodesOf(&flavor)) > 0 {
			continue
		}
		h := about("ResourceFlavor", "", flavor.Name, "labels", labels.Set(flavor.Spec.NodeLabels))
		if meant := f.meant(&flavor); meant != nil {
			h.Advice = "The nodes of one pool are in no flavor, and differ from it in one value. If these are meant:"
			h.Commands = []string{patchCommand("resourceflavor", flavor.Name, "replace", "/spec/nodeLabels", meant)}
		}
		found(h)
	}
}

// meant returns a flavor's labels with the one value corrected that all GPU nodes of no flavor agree on, or nil.
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

// nodesWithoutFlavor finds GPU nodes that no quota leads to, one case per product.
func nodesWithoutFlavor(f *Facts, found func(hit)) {
	if len(f.Flavors) == 0 {
		found(hit{}.as("NoPools", Info))
		return
	}
	kueues, _ := f.kueueSettings() // Another check tells of the error.
	counts := ptr.Deref(kueues, configapi.Configuration{}).Resources
	groups := map[string][]string{}
	for _, node := range f.Nodes {
		if names := gpu.Allocatable(&node); len(names) > 0 && !f.reached(&node, kueuelib.CountedOf(asking(names), counts)) {
			group := cmp.Or(node.Labels[gpu.ProductLabel], string(names[0]))
			groups[group] = append(groups[group], node.Name)
		}
	}
	for product, names := range groups {
		found(about("Node", "", names[0], "count", show.Count(len(names), "node"), "product", product, "nodes", few(names)))
	}
}

// reached reports whether a quota for any of the resources is in a flavor of the node.
func (f *Facts) reached(node *corev1.Node, requests kueuelib.Requests) bool {
	return slices.ContainsFunc(f.grants(), func(g grant) bool {
		flavor := f.Flavor(g.Flavor)
		return flavor != nil && requests.ResourceValue(g.Quota.Name) > 0 && inventory.Picks(flavor, node)
	})
}

// asking returns a pod that asks for one of each.
func asking(names []corev1.ResourceName) *corev1.PodSpec {
	requests := corev1.ResourceList{}
	for _, name := range names {
		requests[name] = *resource.NewQuantity(1, resource.DecimalSI)
	}
	return &corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: requests}}}}
}

// few names the first of many.
func few(names []string) string { return show.Few(names, 4) }

// taints finds taints on a flavor's GPU nodes that Kueue does not know of, and nothing tolerates: neither it nor kueue-trainer.
func taints(f *Facts, found func(hit)) {
	for _, flavor := range f.Flavors {
		if len(f.grantsOf(flavor.Name)) == 0 {
			continue
		}
		nodes, all := map[corev1.Taint][]string{}, 0
		for _, node := range f.NodesOf(&flavor) {
			if len(gpu.Allocatable(node)) > 0 {
				all++
			}
			for _, taint := range f.untolerated(&flavor, node) {
				nodes[taint] = append(nodes[taint], node.Name)
			}
		}
		inOrder := slices.SortedFunc(maps.Keys(nodes), func(a, b corev1.Taint) int { return cmp.Compare(a.ToString(), b.ToString()) })
		tolerations := slices.Clone(flavor.Spec.Tolerations)
		for _, taint := range inOrder {
			// Each command sets the whole list, so that a later one has those of the earlier ones.
			with := append(slices.Clone(tolerations), corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpExists, Effect: taint.Effect})
			if len(nodes[taint]) == all {
				tolerations = with
			}
			found(taintHit(&flavor, taint, nodes[taint], all, with))
		}
	}
}

// untolerated returns the taints of a GPU node that keep pods of a flavor out.
func (f *Facts) untolerated(flavor *kueue.ResourceFlavor, node *corev1.Node) []corev1.Taint {
	names := gpu.Allocatable(node)
	if len(names) == 0 {
		return nil
	}
	tolerations := slices.Concat(flavor.Spec.Tolerations, f.added(names))
	return slices.DeleteFunc(gpu.Lasting(node), func(taint corev1.Taint) bool {
		// Kueue knows of it, and admits only who tolerates it.
		declared := slices.ContainsFunc(flavor.Spec.NodeTaints, func(t corev1.Taint) bool { return t.MatchTaint(&taint) && t.Value == taint.Value })
		return declared || corev1helpers.TolerationsTolerateTaint(klog.Background(), tolerations, &taint, true)
	})
}

// added returns the tolerations that kueue-trainer adds to pods for the resources; the in-tree integration adds none.
func (f *Facts) added(names []corev1.ResourceName) []corev1.Toleration {
	if !f.managerInstalled() && f.integrates() == inTree {
		return nil
	}
	pod := asking(names)
	pod.Tolerations = gpu.Tolerations(pod)
	podSets := []kueue.PodSet{{Template: corev1.PodTemplateSpec{Spec: *pod}}}
	podset.AddTolerations(podSets, f.managerConfiguration().TolerationRules)
	return podSets[0].Template.Spec.Tolerations
}

// taintHit is about a taint of some of a flavor's GPU nodes. One that others do not have was set for these nodes, such as to
// drain them, and a toleration in the flavor would keep jobs there.
func taintHit(flavor *kueue.ResourceFlavor, taint corev1.Taint, nodes []string, all int, tolerations []corev1.Toleration) hit {
	h := about("ResourceFlavor", "", flavor.Name, "nodes", show.Count(len(nodes), "GPU node"), "taint", taint.ToString(),
		"tolerate", patchCommand("resourceflavor", flavor.Name, "add", "/spec/tolerations", tolerations))
	racked := flavor.Spec.TopologyName != nil
	switch off := fmt.Sprintf("%s:%s-", taint.Key, taint.Effect); {
	case len(nodes) < all:
		h.Problem = fmt.Sprintf("%d of the flavor's %d GPU nodes have taint %s, which is neither tolerated by the flavor nor known to Kueue: %s.", len(nodes), all, taint.ToString(), few(nodes))
		h.Effect = "The quota counts them all the same: a TrainJob for which the others have no room holds quota, and its pods stay Pending."
		if racked {
			h.Effect = "Kueue finds no place on them: a TrainJob for which the others have no room waits, whatever quota is free."
		}
		h.Advice = "Ask who set it: a node that is drained must get no jobs. Take it off when the node is back:"
		h.Commands = []string{fmt.Sprintf("kubectl taint nodes %s %s", strings.Join(nodes, " "), off)}
	case racked:
		h.Effect = "Kueue finds no place in the flavor's topology, so no TrainJob is admitted to it."
		h.Advice = "A flavor with a topology cannot change its tolerations: make a new one, or take the taint off the nodes:"
		h.Commands = []string{fmt.Sprintf("kubectl taint nodes -l '%s' %s", labels.Set(flavor.Spec.NodeLabels), off)}
	}
	return h
}
