// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// ownConditions leave out what is being deleted, see config/webhook, what has no queue and
// what the manager writes, see pkg/matchconditions.
var ownConditions = []string{"not-deleting", "queued", "not-own"}

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
	// narrowed is set when the webhook is not asked about every object of its rules in the namespaces that it is for,
	// those that are being deleted aside.
	narrowed   bool
	namespaces *metav1.LabelSelector
}

func (w webhook) object() string { return object(w.kind, "", w.configuration) }

// asksAbout reports whether a rule of the webhook names a resource.
func (w webhook) asksAbout(resource string) bool {
	return slices.ContainsFunc(w.rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(rule.Resources, resource)
	})
}

// webhooks returns those of the parts, mutating first.
func (f *Facts) webhooks() []webhook {
	var all []webhook
	for i := range f.Mutating {
		configuration := &f.Mutating[i]
		for n, w := range configuration.Webhooks {
			all = append(all, mutatingWebhook(configuration.Name, n, w))
		}
	}
	for i := range f.Validating {
		configuration := &f.Validating[i]
		for n, w := range configuration.Webhooks {
			all = append(all, validatingWebhook(configuration.Name, n, w))
		}
	}
	return slices.DeleteFunc(all, func(w webhook) bool { return w.part == nil })
}

// mutatingWebhook goes by what it has in common with a validating one.
func mutatingWebhook(configuration string, index int, w admissionregistrationv1.MutatingWebhook) webhook {
	common := validatingWebhook(configuration, index, admissionregistrationv1.ValidatingWebhook{
		Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
		MatchConditions: w.MatchConditions, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector,
	})
	common.kind = "MutatingWebhookConfiguration"
	common.reinvocation = ptr.Deref(w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	return common
}

func validatingWebhook(configuration string, index int, w admissionregistrationv1.ValidatingWebhook) webhook {
	return webhook{
		kind: "ValidatingWebhookConfiguration", configuration: configuration, index: index, part: partOf(configuration),
		name: w.Name, client: w.ClientConfig, rules: w.Rules,
		failure:  ptr.Deref(w.FailurePolicy, admissionregistrationv1.Fail),
		narrowed: conditional(w.MatchConditions) || narrows(w.ObjectSelector), namespaces: w.NamespaceSelector,
	}
}

// conditional reports whether there is a condition beside our own.
func conditional(conditions []admissionregistrationv1.MatchCondition) bool {
	return slices.ContainsFunc(conditions, func(c admissionregistrationv1.MatchCondition) bool { return !slices.Contains(ownConditions, c.Name) })
}
