// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"fmt"
	"iter"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// Quota is what one ClusterQueue has of one resource in one flavor.
type Quota struct {
	ClusterQueue kueue.ClusterQueueReference `json:"name"`
	// Cohort is the ClusterQueue's, empty without one.
	Cohort   kueue.CohortReference         `json:"cohort,omitempty"`
	Flavor   kueue.ResourceFlavorReference `json:"-"`
	Resource corev1.ResourceName           `json:"-"`

	Nominal resource.Quantity `json:"nominal"`
	// BorrowingLimit and LendingLimit; nil is without a limit.
	BorrowingLimit *resource.Quantity `json:"borrowingLimit,omitempty"`
	LendingLimit   *resource.Quantity `json:"lendingLimit,omitempty"`

	// Reserved is held by Workloads with quota, Used by those of them that are admitted; Borrowed is the part of Reserved
	// above Nominal. All as the ClusterQueue's status has them.
	Reserved resource.Quantity `json:"reserved"`
	Used     resource.Quantity `json:"admitted"`
	Borrowed resource.Quantity `json:"borrowed"`
	// Lent is what others in the cohort hold of Nominal now, and thus missing for this one.
	Lent resource.Quantity `json:"lent"`
	// Free is what Kueue would still admit, borrowing included: for one ClusterQueue at a
	// time, since those of a cohort share what can be borrowed. Zero where Active is false.
	Free resource.Quantity `json:"free"`
	// Active is false when the ClusterQueue admits nothing.
	Active bool `json:"-"`
}

// Quotas returns the quotas of every ClusterQueue, in the order of ClusterQueues and of
// flavors and resources in their specs.
func (i *Inventory) Quotas(ctx context.Context) ([]Quota, error) {
	snapshot, err := i.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	var quotas []Quota
	for n := range i.ClusterQueues {
		cq := &i.ClusterQueues[n]
		for grant := range Grants(cq.Spec.ResourceGroups) {
			quotas = append(quotas, quotaOf(cq, grant, snapshot))
		}
	}
	return quotas, nil
}

func quotaOf(cq *kueue.ClusterQueue, grant Grant, snapshot *scheduler.Snapshot) Quota {
	flavor, spec := grant.Flavor, grant.Quota
	reserved := Usage(cq.Status.FlavorsReservation, flavor, spec.Name)
	quota := Quota{
		ClusterQueue: kueue.ClusterQueueReference(cq.Name), Cohort: cq.Spec.CohortName, Flavor: flavor, Resource: spec.Name,
		Nominal: spec.NominalQuota, BorrowingLimit: spec.BorrowingLimit, LendingLimit: spec.LendingLimit,
		Reserved: reserved.Total, Borrowed: reserved.Borrowed,
		Used: Usage(cq.Status.FlavorsUsage, flavor, spec.Name).Total,
	}
	if seen := snapshot.ClusterQueue(quota.ClusterQueue); seen != nil {
		quota.Active = true
		// It may be below zero after quota was taken away.
		free := seen.Available(kueuelib.FlavorResource{Flavor: flavor, Resource: spec.Name}).Int64()
		quota.Free = kueuelib.NewResourceFormatter().ResourceQuantity(spec.Name, max(0, free))
		quota.Lent = lent(quota)
	}
	return quota
}

// lent is the part of the nominal quota that is neither reserved nor free.
func lent(quota Quota) resource.Quantity {
	rest := quota.Nominal.DeepCopy()
	rest.Sub(quota.Reserved)
	rest.Sub(quota.Free)
	if rest.Sign() < 0 {
		return resource.Quantity{Format: rest.Format}
	}
	return rest
}

// Usage is what a ClusterQueue's status says of a resource in a flavor.
func Usage(of []kueue.FlavorUsage, flavor kueue.ResourceFlavorReference, name corev1.ResourceName) kueue.ResourceUsage {
	for _, f := range of {
		for _, r := range f.Resources {
			if f.Name == flavor && r.Name == name {
				return r
			}
		}
	}
	return kueue.ResourceUsage{}
}

// QuotaOf returns the quota of a resource in a flavor, as it stands in resource groups; nil where they have none.
func QuotaOf(groups []kueue.ResourceGroup, flavor kueue.ResourceFlavorReference, name corev1.ResourceName) *kueue.ResourceQuota {
	for grant := range Grants(groups) {
		if grant.Flavor == flavor && grant.Quota.Name == name {
			return grant.Quota
		}
	}
	return nil
}

// Grant is the quota of one resource in one flavor, as a ClusterQueue or Cohort has it.
type Grant struct {
	Flavor kueue.ResourceFlavorReference
	// Quota stands in the object itself.
	Quota *kueue.ResourceQuota
	// Path of Quota in the object, as JSON patches have it.
	Path string
}

// Grants returns the quotas of the resource groups of a ClusterQueue or Cohort, in their order.
func Grants(groups []kueue.ResourceGroup) iter.Seq[Grant] {
	return func(yield func(Grant) bool) {
		for g, group := range groups {
			for n, flavor := range group.Flavors {
				for r := range flavor.Resources {
					path := fmt.Sprintf("/spec/resourceGroups/%d/flavors/%d/resources/%d", g, n, r)
					if !yield(Grant{Flavor: flavor.Name, Quota: &flavor.Resources[r], Path: path}) {
						return
					}
				}
			}
		}
	}
}
