// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	resourcehelpers "k8s.io/component-helpers/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	resourceutil "sigs.k8s.io/kueue/pkg/util/resource"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/quantity"
)

type quotas struct {
	teams []team
	pools []gpu.Pool
	// parts of each pool, in the order of pools and of teams.
	parts [][]part
	// covered is every resource that some pool has, sorted. A PodSet that asks for one that
	// is not covered would never be admitted, and pods with GPUs ask for CPU and memory, too.
	covered []corev1.ResourceName
}

type part struct {
	amounts corev1.ResourceList
	// nodes and their gpus are 0 in a pool that is not divided by nodes.
	nodes, gpus int64
}

// newQuotas divides the pools. Slices of GPUs are shared by number: jobs for whole nodes are
// not for them, nor for pools without GPUs.
func newQuotas(i *inventory.Inventory, pools []gpu.Pool, teams []team, unit string) *quotas {
	q := &quotas{teams: teams, pools: pools}
	held, have := heldByNode(i.Pods), make([]int64, len(teams))
	covered := sets.New[corev1.ResourceName]()
	for _, pool := range pools {
		divide := byAmount
		if unit == wholeNodes && pool.Slicing == gpu.WholeGPUs {
			divide = byNode
		}
		parts := divide(pool, held, teams, have)
		for _, part := range parts {
			for name, amount := range part.amounts {
				if amount.Sign() > 0 {
					covered.Insert(name)
				}
			}
		}
		q.parts = append(q.parts, parts)
	}
	q.covered = sets.List(covered)
	return q
}

// byNode assigns the nodes of a pool one by one, the largest first, each to the team that has the fewest GPUs for its share,
// of those that do not have their share of the pool yet. GPUs of earlier pools count, so that rounding evens out over all pools.
func byNode(pool gpu.Pool, held map[string]corev1.ResourceList, teams []team, have []int64) []part {
	parts := make([]part, len(teams))
	nodes := slices.DeleteFunc(slices.Clone(pool.Nodes), gpu.Broken)
	slices.SortStableFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(size(b, pool), size(a, pool)) })
	var all int64
	for _, node := range nodes {
		all += size(node, pool)
	}
	for _, node := range nodes {
		gpus, next := size(node, pool), -1
		for n, t := range teams {
			if parts[n].gpus*sum(teams) >= t.share*all {
				continue
			}
			// share / (2*have + gpus), the rule of Sainte-Laguë.
			if next < 0 || t.share*(2*have[next]+gpus) > teams[next].share*(2*have[n]+gpus) {
				next = n
			}
		}
		have[next] += gpus
		parts[next].nodes++
		parts[next].gpus += gpus
		whole := divided(freeOf(node, held), []team{{share: 1}})[0]
		parts[next].amounts = resourceutil.MergeResourceListKeepSum(parts[next].amounts, whole)
	}
	return parts
}

func size(node *corev1.Node, pool gpu.Pool) int64 {
	amount := node.Status.Allocatable[pool.Resources[0]]
	return max(amount.Value(), 1)
}

func byAmount(pool gpu.Pool, held map[string]corev1.ResourceList, teams []team, _ []int64) []part {
	var total corev1.ResourceList
	for _, node := range pool.Nodes {
		total = resourceutil.MergeResourceListKeepSum(total, freeOf(node, held))
	}
	parts := make([]part, len(teams))
	for n, amounts := range divided(total, teams) {
		parts[n].amounts = amounts
	}
	return parts
}

// freeOf returns what a node has for jobs, of what pods ask for as a container's resource.
func freeOf(node *corev1.Node, held map[string]corev1.ResourceList) corev1.ResourceList {
	amounts := corev1.ResourceList{}
	for name, amount := range node.Status.Allocatable {
		if name != corev1.ResourcePods && !strings.HasPrefix(string(name), corev1.ResourceAttachableVolumesPrefix) {
			amount.Sub(held[node.Name][name])
			amounts[name] = amount
		}
	}
	return amounts
}

// heldByNode sums what stays taken on nodes whatever jobs come and go: the requests of
// DaemonSets' pods and of static pods.
func heldByNode(pods []corev1.Pod) map[string]corev1.ResourceList {
	held := map[string]corev1.ResourceList{}
	for n := range pods {
		pod := &pods[n]
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner == nil || owner.Kind != "DaemonSet" && owner.Kind != "Node" {
			continue
		}
		requests := resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{})
		held[pod.Spec.NodeName] = resourceutil.MergeResourceListKeepSum(held[pod.Spec.NodeName], requests)
	}
	return held
}

// of returns the quotas of a team: one group, since the resources of a pod have to come from
// the same pool, with all pools in their order of preference.
func (q *quotas) of(team int) kueue.ResourceGroup {
	group := kueue.ResourceGroup{CoveredResources: q.covered}
	for n := range q.pools {
		flavor := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(q.pools[n].Name)}
		for _, name := range q.covered {
			flavor.Resources = append(flavor.Resources, kueue.ResourceQuota{Name: name, NominalQuota: q.parts[n][team].amounts[name]})
		}
		group.Flavors = append(group.Flavors, flavor)
	}
	return group
}

// divided splits amounts by the teams' shares. The parts of each are round figures and add up to all of the amount that they are
// made of.
func divided(amounts corev1.ResourceList, teams []team) []corev1.ResourceList {
	parts := make([]corev1.ResourceList, len(teams))
	for n := range parts {
		parts[n] = corev1.ResourceList{}
	}
	for name, total := range amounts {
		units, amount := roundUnits(name, total)
		for n, part := range split(units, teams) {
			parts[n][name] = amount(part)
		}
	}
	return parts
}

// roundUnits are how many units of a round figure an amount has, and what so many of them are as a quantity.
func roundUnits(name corev1.ResourceName, total resource.Quantity) (units int64, amount func(int64) resource.Quantity) {
	of := func(unit int64, format resource.Format) func(int64) resource.Quantity {
		return func(units int64) resource.Quantity { return *resource.NewQuantity(units*unit, format) }
	}
	const mib, gib = 1 << 20, 1 << 30
	switch {
	case name == corev1.ResourceCPU && total.Value() < 10:
		return total.MilliValue(), func(units int64) resource.Quantity { return *resource.NewMilliQuantity(units, resource.DecimalSI) }
	case name == corev1.ResourceCPU:
		// Value would round up.
		return total.MilliValue() / 1000, of(1, resource.DecimalSI)
	case !quantity.InBytes(name):
		return total.Value(), of(1, resource.DecimalSI)
	case total.Value() < 10*gib:
		return total.Value() / mib, of(mib, resource.BinarySI)
	}
	return total.Value() / gib, of(gib, resource.BinarySI)
}

// split divides a number of units by the teams' shares; what is left over goes to those
// with the largest remainders, the first of equal ones.
func split(units int64, teams []team) []int64 {
	units = max(units, 0)
	all := sum(teams)
	parts := make([]int64, len(teams))
	order := make([]int, len(teams))
	rest := units
	for n, t := range teams {
		// Divided first: units times share may be too large for an int64.
		parts[n] = units/all*t.share + units%all*t.share/all
		rest -= parts[n]
		order[n] = n
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(units%all*teams[b].share%all, units%all*teams[a].share%all)
	})
	for n := range rest {
		parts[order[n]]++
	}
	return parts
}
