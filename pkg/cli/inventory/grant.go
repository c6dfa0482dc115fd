// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"iter"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Grant is the quota of one resource in one flavor, as a ClusterQueue or Cohort has it.
type Grant struct {
	Flavor kueue.ResourceFlavorReference
	// Quota stands in the object itself.
	Quota *kueue.ResourceQuota
	// Path of Quota in the object, as JSON patches have it.
	Path string
}

// Grants returns the quotas of the resource groups of a ClusterQueue or Cohort, in their
// order.
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
