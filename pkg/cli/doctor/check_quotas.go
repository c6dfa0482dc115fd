// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// grant is a quota and whose it is.
type grant struct {
	inventory.Grant
	// kind and name are of the ClusterQueue or Cohort.
	kind, name string
}

// grants returns the quotas of ClusterQueues and Cohorts for what runs in this cluster.
func (f *Facts) grants() []grant {
	var all []grant
	add := func(kind, name string, groups []kueue.ResourceGroup) {
		for g := range inventory.Grants(groups) {
			all = append(all, grant{Grant: g, kind: kind, name: name})
		}
	}
	for i := range f.ClusterQueues {
		cq := &f.ClusterQueues[i]
		add("clusterqueue", cq.Name, cq.Spec.ResourceGroups)
		all = slices.DeleteFunc(all, func(g grant) bool { return g.kind == "clusterqueue" && g.name == cq.Name && f.LeadsAway(cq, g.Flavor) })
	}
	for i := range f.Cohorts {
		add("cohort", f.Cohorts[i].Name, f.Cohorts[i].Spec.ResourceGroups)
	}
	return all
}

// grantsOf returns the quotas above zero of a flavor.
func (f *Facts) grantsOf(flavor string) []grant {
	return slices.DeleteFunc(f.grants(), func(g grant) bool { return string(g.Flavor) != flavor || g.Quota.NominalQuota.Sign() <= 0 })
}

// grantsFor returns those for one resource, of several flavors.
func (f *Facts) grantsFor(name corev1.ResourceName, flavors ...*kueue.ResourceFlavor) []grant {
	var all []grant
	for _, flavor := range flavors {
		all = append(all, f.grantsOf(flavor.Name)...)
	}
	return slices.DeleteFunc(all, func(g grant) bool { return g.Quota.Name != name })
}

// quotasAboveNodes finds flavors of which more is promised than their nodes have: one by
// itself or, where each by itself is right, those that share nodes together. Where no node
// at all has a resource, it is none of nodes, such as a budget.
func quotasAboveNodes(f *Facts, found func(hit)) {
	names := sets.New[corev1.ResourceName]()
	for _, g := range f.grants() {
		if f.anyNodeHas(g.Quota.Name) {
			names.Insert(g.Quota.Name)
		}
	}
	for _, name := range sets.List(names) {
		for _, group := range f.sharing(name) {
			each := false
			for _, flavor := range group {
				each = f.aboveNodes(found, name, flavor) || each
			}
			if !each {
				f.aboveNodes(found, name, group...)
			}
		}
	}
}

// sharing groups the flavors with quota for a resource: together are those that share
// nodes, or each share some with a third.
func (f *Facts) sharing(name corev1.ResourceName) [][]*kueue.ResourceFlavor {
	var groups [][]*kueue.ResourceFlavor
	for i := range f.Flavors {
		flavor := &f.Flavors[i]
		if len(f.grantsFor(name, flavor)) == 0 {
			continue
		}
		joined := []*kueue.ResourceFlavor{flavor}
		groups = slices.DeleteFunc(groups, func(group []*kueue.ResourceFlavor) bool {
			shares := slices.ContainsFunc(group, func(other *kueue.ResourceFlavor) bool { return f.Share(other, flavor) })
			if shares {
				joined = slices.Concat(group, joined)
			}
			return shares
		})
		groups = append(groups, joined)
	}
	return groups
}

// aboveNodes finds whether more is promised of a resource than all nodes of the flavors have.
func (f *Facts) aboveNodes(found func(hit), name corev1.ResourceName, flavors ...*kueue.ResourceFlavor) bool {
	var nodes []*corev1.Node
	for i := range f.Nodes {
		if slices.ContainsFunc(flavors, func(flavor *kueue.ResourceFlavor) bool { return inventory.Picks(flavor, &f.Nodes[i]) }) {
			nodes = append(nodes, &f.Nodes[i])
		}
	}
	grants := f.grantsFor(name, flavors...)
	promised, have := sum(grants), inventory.Allocatable(nodes, name)
	if len(nodes) == 0 || promised.Cmp(have) <= 0 {
		return false
	}
	lowered, enough := f.lowered(name, grants, kueuelib.ResourceValue(name, have))
	h := about("ResourceFlavor", "", flavors[0].Name, "promised", promised.String(), "resource", name, "nodes", theNodes(len(nodes), flavors), "have", have.String())
	h.Commands = lowerCommands(name, grants, lowered)
	if !enough {
		h.Advice = "What is reserved, or the number of queues, is more than the nodes have: add nodes, or take quota from queues that nobody uses. As far as it goes:"
	}
	found(h)
	return true
}

func theNodes(n int, flavors []*kueue.ResourceFlavor) string {
	count := show.Count(n, "node")
	if len(flavors) == 1 {
		return "the flavor's " + count
	}
	var names []string
	for _, flavor := range flavors {
		names = append(names, flavor.Name)
	}
	return fmt.Sprintf("the %s of flavors %s, which overlap,", count, strings.Join(names, ", "))
}

func sum(grants []grant) resource.Quantity {
	var total resource.Quantity
	for _, g := range grants {
		total.Add(g.Quota.NominalQuota)
	}
	return total
}

func (f *Facts) anyNodeHas(name corev1.ResourceName) bool {
	return slices.ContainsFunc(f.Nodes, func(node corev1.Node) bool {
		amount := node.Status.Allocatable[name]
		return amount.Sign() > 0
	})
}

// lowered returns what quotas would be that are together no more than there is, and whether
// that can be: each gets its share, no less than is reserved of it, and none gets nothing.
func (f *Facts) lowered(name corev1.ResourceName, grants []grant, have int64) (amounts []int64, enough bool) {
	unit := unitOf(name)
	var promised, rest int64
	for _, g := range grants {
		promised += kueuelib.ResourceValue(name, g.Quota.NominalQuota)
	}
	least := make([]int64, len(grants))
	rest = have
	for i, g := range grants {
		nominal := kueuelib.ResourceValue(name, g.Quota.NominalQuota)
		least[i] = min(nominal, max(unit, f.reserved(g)))
		share := int64(float64(nominal)*float64(have)/float64(promised)) / unit * unit
		amounts = append(amounts, max(share, least[i]))
		rest -= amounts[i]
	}
	for i, g := range grants { // what rounding left
		if rest >= unit && amounts[i]+unit <= kueuelib.ResourceValue(name, g.Quota.NominalQuota) {
			amounts[i], rest = amounts[i]+unit, rest-unit
		}
	}
	for rest < 0 {
		at := roomiest(amounts, least)
		if at < 0 {
			return amounts, false
		}
		less := min(-rest, amounts[at]-least[at])
		amounts[at], rest = amounts[at]-less, rest+less
	}
	return amounts, true
}

// roomiest returns the one that is furthest above its least, or -1.
func roomiest(amounts, least []int64) int {
	at := -1
	for i := range amounts {
		if room := amounts[i] - least[i]; room > 0 && (at < 0 || room > amounts[at]-least[at]) {
			at = i
		}
	}
	return at
}

// unitOf is the least amount that is of use: a GPU, a CPU, a mebibyte.
func unitOf(name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU:
		return 1000
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return 1 << 20
	}
	return 1
}

// reserved is what Workloads hold of a quota of a ClusterQueue.
func (f *Facts) reserved(g grant) int64 {
	if g.kind != "clusterqueue" {
		return 0
	}
	cq := f.ClusterQueue(kueue.ClusterQueueReference(g.name))
	for _, flavor := range cq.Status.FlavorsReservation {
		at := slices.IndexFunc(flavor.Resources, func(r kueue.ResourceUsage) bool { return r.Name == g.Quota.Name })
		if flavor.Name == g.Flavor && at >= 0 {
			return kueuelib.ResourceValue(g.Quota.Name, flavor.Resources[at].Total)
		}
	}
	return 0
}

// lowerCommands set quotas to amounts, where they differ.
func lowerCommands(name corev1.ResourceName, grants []grant, amounts []int64) []string {
	format := kueuelib.NewResourceFormatter()
	var commands []string
	for i, g := range grants {
		if amount := format.ResourceQuantity(name, amounts[i]); amount.Cmp(g.Quota.NominalQuota) != 0 {
			commands = append(commands, patchCommand(g.kind, g.name, "replace", g.Path+"/nominalQuota", amount.String()))
		}
	}
	return commands
}
