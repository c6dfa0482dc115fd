// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	resourcehelpers "k8s.io/component-helpers/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
)

// quotas are what the teams have of the pools.
type quotas struct {
	teams []team
	pools []gpu.Pool
	// parts of each pool, in the order of pools and of teams.
	parts [][]part
	// covered is every resource that some pool has, sorted. A PodSet that asks for one that
	// is not covered would never be admitted, and pods with GPUs ask for CPU and memory, too.
	covered []corev1.ResourceName
}

// part is what a team has of a pool.
type part struct {
	amounts corev1.ResourceList
	// nodes is 0 in a pool that is not divided by nodes.
	nodes int64
}

// newQuotas divides the pools. Slices of GPUs are shared by number: jobs for whole nodes are
// not for them, nor for pools without GPUs.
func newQuotas(i *inventory.Inventory, pools []gpu.Pool, teams []team, unit string) *quotas {
	q := &quotas{teams: teams, pools: pools}
	held, have := heldByNode(i.Pods), make([]int64, len(teams))
	covered := map[corev1.ResourceName]bool{}
	for _, pool := range pools {
		divide := byAmount
		if unit == wholeNodes && pool.Slicing == gpu.WholeGPUs {
			divide = byNode
		}
		parts := divide(pool, held, teams, have)
		for _, part := range parts {
			for name, amount := range part.amounts {
				covered[name] = covered[name] || amount.Sign() > 0
			}
		}
		q.parts = append(q.parts, parts)
	}
	for _, name := range slices.Sorted(maps.Keys(covered)) {
		if covered[name] {
			q.covered = append(q.covered, name)
		}
	}
	return q
}

// byNode assigns the nodes of a pool one by one, the largest first, each to the team that has the fewest GPUs for its share,
// of those that do not have their share of the pool yet. GPUs of earlier pools count, so that rounding evens out over all pools.
func byNode(pool gpu.Pool, held map[string]corev1.ResourceList, teams []team, have []int64) []part {
	parts, inPool := newParts(teams), make([]int64, len(teams))
	nodes := slices.DeleteFunc(slices.Clone(pool.Nodes), gpu.Broken)
	slices.SortStableFunc(nodes, func(a, b *corev1.Node) int { return cmp.Compare(size(b, pool), size(a, pool)) })
	var all int64
	for _, node := range nodes {
		all += size(node, pool)
	}
	for _, node := range nodes {
		gpus, next := size(node, pool), -1
		for n, t := range teams {
			if inPool[n]*sum(teams) >= t.share*all {
				continue
			}
			// share / (2*have + gpus), the rule of Sainte-Laguë.
			if next < 0 || t.share*(2*have[next]+gpus) > teams[next].share*(2*have[n]+gpus) {
				next = n
			}
		}
		have[next] += gpus
		inPool[next] += gpus
		parts[next].nodes++
		for name, amount := range freeOf(node, held) {
			add(parts[next].amounts, name, portion(name, amount, 0, []team{{share: 1}}))
		}
	}
	return parts
}

// size is how many GPUs a node of a pool has.
func size(node *corev1.Node, pool gpu.Pool) int64 {
	amount := node.Status.Allocatable[pool.Resources[0]]
	return max(amount.Value(), 1)
}

func byAmount(pool gpu.Pool, held map[string]corev1.ResourceList, teams []team, _ []int64) []part {
	total := corev1.ResourceList{}
	for _, node := range pool.Nodes {
		for name, amount := range freeOf(node, held) {
			add(total, name, amount)
		}
	}
	parts := newParts(teams)
	for n := range teams {
		for name, amount := range total {
			parts[n].amounts[name] = portion(name, amount, n, teams)
		}
	}
	return parts
}

func newParts(teams []team) []part {
	parts := make([]part, len(teams))
	for n := range parts {
		parts[n].amounts = corev1.ResourceList{}
	}
	return parts
}

// freeOf returns what a node has for jobs.
func freeOf(node *corev1.Node, held map[string]corev1.ResourceList) corev1.ResourceList {
	amounts := corev1.ResourceList{}
	for name, amount := range node.Status.Allocatable {
		if countable(name) {
			amount.Sub(held[node.Name][name])
			amounts[name] = amount
		}
	}
	return amounts
}

// countable leaves out what pods do not ask for as a container's resource.
func countable(name corev1.ResourceName) bool {
	return name != corev1.ResourcePods && !strings.HasPrefix(string(name), corev1.ResourceAttachableVolumesPrefix)
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
		if held[pod.Spec.NodeName] == nil {
			held[pod.Spec.NodeName] = corev1.ResourceList{}
		}
		for name, amount := range resourcehelpers.PodRequests(pod, resourcehelpers.PodResourcesOptions{}) {
			add(held[pod.Spec.NodeName], name, amount)
		}
	}
	return held
}

func add(to corev1.ResourceList, name corev1.ResourceName, amount resource.Quantity) {
	sum := to[name]
	sum.Add(amount)
	to[name] = sum
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

// portion is a team's part of an amount. Parts are round figures and add up to all of the
// amount that they are made of.
func portion(name corev1.ResourceName, total resource.Quantity, index int, teams []team) resource.Quantity {
	const mib, gib = 1 << 20, 1 << 30
	parts := func(units int64) int64 { return split(units, teams)[index] }
	switch {
	case name == corev1.ResourceCPU && total.Value() < 10:
		return *resource.NewMilliQuantity(parts(total.MilliValue()), resource.DecimalSI)
	case name == corev1.ResourceCPU:
		// Value would round up.
		return *resource.NewQuantity(parts(total.MilliValue()/1000), resource.DecimalSI)
	case !inBytes(name):
		return *resource.NewQuantity(parts(total.Value()), resource.DecimalSI)
	case total.Value() < 10*gib:
		return *resource.NewQuantity(parts(total.Value()/mib)*mib, resource.BinarySI)
	}
	return *resource.NewQuantity(parts(total.Value()/gib)*gib, resource.BinarySI)
}

func inBytes(name corev1.ResourceName) bool {
	return name == corev1.ResourceMemory || name == corev1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
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
