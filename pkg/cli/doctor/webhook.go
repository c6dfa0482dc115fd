// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
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
	// namespacesDeclared is set where these are a value of the chart.
	namespacesDeclared bool
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
		p := f.owner(configuration.Name, mutatingRules(configuration.Webhooks))
		set := declaredFields(p, configuration.ManagedFields)
		for n, w := range configuration.Webhooks {
			all = append(all, mutatingWebhook(configuration.Name, n, w, set).of(p))
		}
	}
	for i := range f.Validating {
		configuration := &f.Validating[i]
		p := f.owner(configuration.Name, validatingRules(configuration.Webhooks))
		set := declaredFields(p, configuration.ManagedFields)
		for n, w := range configuration.Webhooks {
			all = append(all, validatingWebhook(configuration.Name, n, w, set).of(p))
		}
	}
	return slices.DeleteFunc(all, func(w webhook) bool { return w.part == nil })
}

func (w webhook) of(p *part) webhook {
	w.part = p
	return w
}

func mutatingRules(webhooks []admissionregistrationv1.MutatingWebhook) []admissionregistrationv1.RuleWithOperations {
	var all []admissionregistrationv1.RuleWithOperations
	for _, w := range webhooks {
		all = append(all, w.Rules...)
	}
	return all
}

func validatingRules(webhooks []admissionregistrationv1.ValidatingWebhook) []admissionregistrationv1.RuleWithOperations {
	var all []admissionregistrationv1.RuleWithOperations
	for _, w := range webhooks {
		all = append(all, w.Rules...)
	}
	return all
}

// mutatingWebhook goes by what it has in common with a validating one.
func mutatingWebhook(configuration string, index int, w admissionregistrationv1.MutatingWebhook, set *fieldpath.Set) webhook {
	common := validatingWebhook(configuration, index, admissionregistrationv1.ValidatingWebhook{
		Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
		MatchConditions: w.MatchConditions, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector,
	}, set)
	common.kind = "MutatingWebhookConfiguration"
	common.reinvocation = ptr.Deref(w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy)
	return common
}

func validatingWebhook(configuration string, index int, w admissionregistrationv1.ValidatingWebhook, set *fieldpath.Set) webhook {
	return webhook{
		kind: "ValidatingWebhookConfiguration", configuration: configuration, index: index,
		name: w.Name, client: w.ClientConfig, rules: w.Rules,
		failure:  ptr.Deref(w.FailurePolicy, admissionregistrationv1.Fail),
		narrowed: conditional(w.Name, w.MatchConditions, set) || narrows(w.ObjectSelector), namespaces: w.NamespaceSelector,
		namespacesDeclared: declares(set, w.Name, "namespaceSelector"),
	}
}

// conditional reports whether there is a condition beside our own and values of the chart.
func conditional(webhook string, conditions []admissionregistrationv1.MatchCondition, set *fieldpath.Set) bool {
	return slices.ContainsFunc(conditions, func(c admissionregistrationv1.MatchCondition) bool {
		return !slices.Contains(ownConditions, c.Name) && !declares(set, webhook, "matchConditions", fieldpath.KeyByFields("name", c.Name), "expression")
	})
}
