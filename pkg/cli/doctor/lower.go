// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

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
