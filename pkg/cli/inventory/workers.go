// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// MultiKueueCheck returns an AdmissionCheck of MultiKueue, or nil.
func (i *Inventory) MultiKueueCheck(name kueue.AdmissionCheckReference) *kueue.AdmissionCheck {
	if check := Find(i.AdmissionChecks, "", string(name)); check != nil && check.Spec.ControllerName == kueue.MultiKueueControllerName {
		return check
	}
	return nil
}

// LeadsAway reports whether what is admitted to a flavor of a ClusterQueue runs in other clusters:
// its quota promises nothing of the nodes of this one.
func (i *Inventory) LeadsAway(cq *kueue.ClusterQueue, flavor kueue.ResourceFlavorReference) bool {
	return cq.Spec.AdmissionChecksStrategy != nil && slices.ContainsFunc(cq.Spec.AdmissionChecksStrategy.AdmissionChecks, func(rule kueue.AdmissionCheckStrategyRule) bool {
		return i.MultiKueueCheck(rule.Name) != nil && (len(rule.OnFlavors) == 0 || slices.Contains(rule.OnFlavors, flavor))
	})
}
