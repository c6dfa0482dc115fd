// SPDX-License-Identifier: Apache-2.0

package installed

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Asked reports whether a webhook of the configuration is asked about a resource. One that is asked
// about all there are, as policy engines are, is not counted: this tells whose it is, whatever
// its name.
func Asked(configuration *admissionregistrationv1.MutatingWebhookConfiguration, about schema.GroupResource) bool {
	return slices.ContainsFunc(configuration.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
		return slices.ContainsFunc(w.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
			return slices.Contains(rule.APIGroups, about.Group) && slices.Contains(rule.Resources, about.Resource)
		})
	})
}
