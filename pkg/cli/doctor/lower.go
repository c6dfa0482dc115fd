// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// lowered returns what quotas would be that are together no more than there is, and whether
// that can be: each keeps what is reserved of it, none gets nothing, and the rest is shared out in proportion.
func (f *Facts) lowered(name corev1.ResourceName, grants []grant, have int64) (amounts []int64, enough bool) {
	unit := unitOf(name)
	rest, room := have, int64(0)
	for _, g := range grants {
		nominal := kueuelib.ResourceValue(name, g.Quota.NominalQuota)
		least := min(nominal, max(unit, f.reserved(g)))
		amounts = append(amounts, least)
		rest, room = rest-least, room+nominal-least
	}
	if rest < 0 {
		return amounts, false
	}
	units := float64(rest / unit)
	var roomSoFar, shared int64
	for i, g := range grants {
		nominal := kueuelib.ResourceValue(name, g.Quota.NominalQuota)
		roomSoFar += nominal - amounts[i]
		// What all so far have is rounded, so that nothing is left over.
		soFar := int64(math.Round(units*float64(roomSoFar)/float64(room))) * unit
		amounts[i], shared = min(nominal, amounts[i]+soFar-shared), soFar
	}
	return amounts, true
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
