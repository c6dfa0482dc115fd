// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// MultiKueueCheck returns an AdmissionCheck of MultiKueue, or nil.
func (i *Inventory) MultiKueueCheck(name kueue.AdmissionCheckReference) *kueue.AdmissionCheck {
	at := slices.IndexFunc(i.AdmissionChecks, func(c kueue.AdmissionCheck) bool {
		return c.Name == string(name) && c.Spec.ControllerName == kueue.MultiKueueControllerName
	})
	if at < 0 {
		return nil
	}
	return &i.AdmissionChecks[at]
}

// LeadsAway reports whether what is admitted to a flavor of a ClusterQueue runs in other clusters:
// its quota promises nothing of the nodes of this one.
func (i *Inventory) LeadsAway(cq *kueue.ClusterQueue, flavor kueue.ResourceFlavorReference) bool {
	return cq.Spec.AdmissionChecksStrategy != nil && slices.ContainsFunc(cq.Spec.AdmissionChecksStrategy.AdmissionChecks, func(rule kueue.AdmissionCheckStrategyRule) bool {
		return i.MultiKueueCheck(rule.Name) != nil && (len(rule.OnFlavors) == 0 || slices.Contains(rule.OnFlavors, flavor))
	})
}
