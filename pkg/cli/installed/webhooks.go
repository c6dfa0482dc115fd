// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Asked reports whether rules name a resource. Those for all there are, as policy engines have them, are
// not counted: this tells whose webhooks they are, whatever the name of their configuration.
func Asked(rules []admissionregistrationv1.RuleWithOperations, about schema.GroupResource) bool {
	return slices.ContainsFunc(rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(rule.APIGroups, about.Group) && slices.Contains(rule.Resources, about.Resource)
	})
}
