// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"
)

// ownCondition leaves out what is being deleted, see config/webhook.
const ownCondition = "not-deleting"

// webhook is what mutating and validating webhooks have in common, and whose it is.
type webhook struct {
	// kind and configuration name the object, index is the place in it.
	kind, configuration string
	index               int
	part                *part

	name         string
	client       admissionregistrationv1.WebhookClientConfig
	rules        []admissionregistrationv1.RuleWithOperations
	failure      admissionregistrationv1.FailurePolicyType
	reinvocation admissionregistrationv1.ReinvocationPolicyType
	// narrowed is set when the webhook is not asked about every object of its rules, those
	// that are being deleted aside.
	narrowed bool
}

func (w webhook) object() string { return object(w.kind, "", w.configuration) }

// webhooks gives those of the parts, mutating first.
func (f *Facts) webhooks() []webhook {
	var all []webhook
	for i := range f.Mutating {
		all = append(all, mutatingWebhooks(&f.Mutating[i])...)
	}
	for i := range f.Validating {
		all = append(all, validatingWebhooks(&f.Validating[i])...)
	}
	return all
}

func mutatingWebhooks(configuration *admissionregistrationv1.MutatingWebhookConfiguration) []webhook {
	p := partOf(configuration.Name)
	if p == nil {
		return nil
	}
	var all []webhook
	for i, w := range configuration.Webhooks {
		all = append(all, webhook{
			kind: "MutatingWebhookConfiguration", configuration: configuration.Name, index: i, part: p,
			name: w.Name, client: w.ClientConfig, rules: w.Rules,
			failure:      ptr.Deref(w.FailurePolicy, admissionregistrationv1.Fail),
			reinvocation: ptr.Deref(w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy),
			narrowed:     conditional(w.MatchConditions) || narrows(w.NamespaceSelector) || narrows(w.ObjectSelector),
		})
	}
	return all
}

func validatingWebhooks(configuration *admissionregistrationv1.ValidatingWebhookConfiguration) []webhook {
	p := partOf(configuration.Name)
	if p == nil {
		return nil
	}
	var all []webhook
	for i, w := range configuration.Webhooks {
		all = append(all, webhook{
			kind: "ValidatingWebhookConfiguration", configuration: configuration.Name, index: i, part: p,
			name: w.Name, client: w.ClientConfig, rules: w.Rules,
			failure:  ptr.Deref(w.FailurePolicy, admissionregistrationv1.Fail),
			narrowed: conditional(w.MatchConditions) || narrows(w.NamespaceSelector) || narrows(w.ObjectSelector),
		})
	}
	return all
}

// conditional reports whether there is a condition beside the one of our manifests.
func conditional(conditions []admissionregistrationv1.MatchCondition) bool {
	return slices.ContainsFunc(conditions, func(c admissionregistrationv1.MatchCondition) bool { return c.Name != ownCondition })
}
