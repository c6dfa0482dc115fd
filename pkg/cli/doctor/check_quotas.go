// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/quantity"
)

// grant is a quota and whose it is.
type grant struct {
	inventory.Grant
	kind, name string            // those of the ClusterQueue or Cohort
	reserved   resource.Quantity // what Workloads hold of it; of a Cohort's own quota, nothing
	nodesMade  bool              // set where an admission check makes the nodes: those that are there say nothing
}

// grants returns the quotas of ClusterQueues and Cohorts for what runs in this cluster.
func (f *Facts) grants() []grant {
	var all []grant
	for _, cq := range f.ClusterQueues {
		for g := range inventory.Grants(cq.Spec.ResourceGroups) {
			if !f.LeadsAway(&cq, g.Flavor) {
				all = append(all, grant{g, "clusterqueue", cq.Name, inventory.Usage(cq.Status.FlavorsReservation, g.Flavor, g.Quota.Name).Total, f.MakesNodes(&cq, g.Flavor)})
			}
		}
	}
	for i := range f.Cohorts {
		for g := range inventory.Grants(f.Cohorts[i].Spec.ResourceGroups) {
			all = append(all, grant{Grant: g, kind: "cohort", name: f.Cohorts[i].Name})
		}
	}
	return all
}

// grantsOf returns the quotas above zero of a flavor.
func (f *Facts) grantsOf(flavor string) []grant {
	return slices.DeleteFunc(f.grants(), func(g grant) bool { return string(g.Flavor) != flavor || g.Quota.NominalQuota.Sign() <= 0 })
}

// onNodes returns those that promise what nodes of today have.
func onNodes(grants []grant) []grant {
	return slices.DeleteFunc(grants, func(g grant) bool { return g.nodesMade })
}

// grantsFor returns those for one resource, of several flavors, on the nodes of today.
func (f *Facts) grantsFor(name corev1.ResourceName, flavors ...*kueue.ResourceFlavor) []grant {
	var all []grant
	for _, flavor := range flavors {
		all = append(all, f.grantsOf(flavor.Name)...)
	}
	return slices.DeleteFunc(onNodes(all), func(g grant) bool { return g.Quota.Name != name })
}

// quotasAboveNodes finds flavors of which more is promised than their nodes have: one by itself or, where each by itself is
// right, those that share nodes together. Where no node at all has a resource, it is none of nodes, such as a budget.
func quotasAboveNodes(f *Facts, found func(hit)) {
	everywhere := f.NodesOf(&kueue.ResourceFlavor{})
	names := sets.New[corev1.ResourceName]()
	for _, g := range f.grants() {
		if have := inventory.Allocatable(everywhere, g.Quota.Name); have.Sign() > 0 {
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

// sharing groups the flavors with quota for a resource that share nodes, or each share some with a third.
func (f *Facts) sharing(name corev1.ResourceName) [][]*kueue.ResourceFlavor {
	var groups [][]*kueue.ResourceFlavor
	for _, flavor := range f.Flavors {
		if len(f.grantsFor(name, &flavor)) == 0 {
			continue
		}
		joined := []*kueue.ResourceFlavor{&flavor}
		groups = slices.DeleteFunc(groups, func(group []*kueue.ResourceFlavor) bool {
			shares := slices.ContainsFunc(group, func(other *kueue.ResourceFlavor) bool { return f.Share(other, &flavor) })
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
	nodes := f.NodesOf(flavors...)
	have := inventory.Allocatable(nodes, name)
	grants := f.grantsFor(name, flavors...)
	var promised resource.Quantity
	for _, g := range grants {
		promised.Add(g.Quota.NominalQuota)
	}
	if len(nodes) == 0 || promised.Cmp(have) <= 0 || f.Untold(nodes, name) {
		return false
	}
	count := show.Count(len(nodes), "node")
	theNodes := "the flavor's " + count
	if len(flavors) > 1 {
		theNodes = fmt.Sprintf("the %s of flavors %s, which overlap,", count, strings.Join(inventory.Names(flavors), ", "))
	}
	h := about("ResourceFlavor", "", flavors[0].Name, "promised", promised.String(), "resource", name, "nodes", theNodes, "have", have.String()+cordoned(nodes, name))
	amounts, enough := lowered(name, grants, kueuelib.ResourceValue(name, have))
	for i, g := range grants {
		if amount := kueuelib.NewResourceFormatter().ResourceQuantity(name, amounts[i]); amount.Cmp(g.Quota.NominalQuota) != 0 {
			if lent := g.Quota.LendingLimit; lent != nil && lent.Cmp(amount) > 0 && g.kind == "clusterqueue" { // Kueue refuses that.
				h.Commands = append(h.Commands, patchCommand(g.kind, g.name, "replace", g.Path+"/lendingLimit", amount.String()))
			}
			h.Commands = append(h.Commands, patchCommand(g.kind, g.name, "replace", g.Path+"/nominalQuota", amount.String()))
		}
	}
	if !enough {
		h.Advice = "What is reserved, or the number of queues, is more than the nodes have: add nodes, or take quota from queues that nobody uses. "
		if len(h.Commands) > 0 {
			h.Advice += "As far as it goes:"
		} else {
			h.Advice += "Who holds it:"
			h.Commands = []string{"kubectl get workloads -A -o wide"}
		}
	}
	found(h)
	return true
}

// cordoned tells how much of a resource is on nodes that take no pods now.
func cordoned(nodes []*corev1.Node, name corev1.ResourceName) string {
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(node *corev1.Node) bool { return !node.Spec.Unschedulable })
	if len(nodes) == 0 {
		return ""
	}
	amount := inventory.Allocatable(nodes, name)
	return fmt.Sprintf(", %s of them on cordoned nodes (%s)", amount.String(), few(inventory.Names(nodes)))
}

// lowered returns what quotas would be that keep the same share, and at least what is reserved; and whether that is enough.
func lowered(name corev1.ResourceName, grants []grant, have int64) (amounts []int64, enough bool) {
	const whole = 1 << 30
	unit := unitOf(name)
	amounts = make([]int64, len(grants))
	keep := func(share int) (total int64) {
		for i, g := range grants {
			nominal := kueuelib.ResourceValue(name, g.Quota.NominalQuota)
			least := min(nominal, max(unit, kueuelib.ResourceValue(name, g.reserved)))
			amounts[i] = max(least, int64(float64(nominal)*float64(share)/whole)/unit*unit)
			total += amounts[i]
		}
		return total
	}
	tooMuch := sort.Search(whole, func(share int) bool { return keep(share) > have })
	rest := have - keep(max(tooMuch-1, 0))
	for i, g := range grants { // what rounding left
		if rest >= unit && amounts[i]+unit <= kueuelib.ResourceValue(name, g.Quota.NominalQuota) {
			amounts[i], rest = amounts[i]+unit, rest-unit
		}
	}
	return amounts, tooMuch > 0
}

// unitOf is the least amount that is of use: a GPU, a CPU, a mebibyte.
func unitOf(name corev1.ResourceName) int64 {
	switch {
	case name == corev1.ResourceCPU:
		return 1000
	case quantity.InBytes(name):
		return 1 << 20
	}
	return 1
}
