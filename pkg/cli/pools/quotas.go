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

// quotas are what the pools have to give.
type quotas struct {
	pools []gpu.Pool
	// amounts of each pool, in the order of pools.
	amounts []corev1.ResourceList
	// covered is every resource that some pool has, sorted. A PodSet that asks for one that
	// is not covered would never be admitted, and pods with GPUs ask for CPU and memory, too.
	covered []corev1.ResourceName
}

func newQuotas(i *inventory.Inventory, pools []gpu.Pool) *quotas {
	q := &quotas{pools: pools}
	covered := map[corev1.ResourceName]bool{}
	held := heldByNode(i.Pods)
	for _, pool := range pools {
		amounts := corev1.ResourceList{}
		for _, node := range pool.Nodes {
			for name, amount := range node.Status.Allocatable {
				if countable(name) {
					amount.Sub(held[node.Name][name])
					add(amounts, name, amount)
				}
			}
		}
		for name, amount := range amounts {
			covered[name] = covered[name] || amount.Sign() > 0
		}
		q.amounts = append(q.amounts, amounts)
	}
	for _, name := range slices.Sorted(maps.Keys(covered)) {
		if covered[name] {
			q.covered = append(q.covered, name)
		}
	}
	return q
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
func (q *quotas) of(index int, teams []team) kueue.ResourceGroup {
	group := kueue.ResourceGroup{CoveredResources: q.covered}
	for n := range q.pools {
		flavor := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(q.pools[n].Name)}
		for _, name := range q.covered {
			total := q.amounts[n][name]
			flavor.Resources = append(flavor.Resources, kueue.ResourceQuota{Name: name, NominalQuota: portion(name, total, index, teams)})
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
