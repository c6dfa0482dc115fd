// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/installed"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
)

const (
	mutatingKind   = "MutatingWebhookConfiguration"
	validatingKind = "ValidatingWebhookConfiguration"
)

// webhook is a webhook of a part. A mutating one has what it has in common with validating ones.
type webhook struct {
	admissionregistrationv1.ValidatingWebhook
	// reinvocation is of mutating ones.
	reinvocation admissionregistrationv1.ReinvocationPolicyType

	part *part
	// kind and configuration name the object, index is the place in it.
	kind, configuration string
	index               int
	// managed says who has set which fields of the configuration.
	managed []metav1.ManagedFieldsEntry
}

// webhooks returns those of the parts, mutating first.
func (f *Facts) webhooks() []webhook {
	var all []webhook
	for i := range f.Mutating {
		var webhooks []webhook
		for _, w := range f.Mutating[i].Webhooks {
			webhooks = append(webhooks, webhook{
				reinvocation: ptr.Deref(w.ReinvocationPolicy, admissionregistrationv1.NeverReinvocationPolicy),
				ValidatingWebhook: admissionregistrationv1.ValidatingWebhook{
					Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
					MatchConditions: w.MatchConditions, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector,
				},
			})
		}
		all = append(all, f.owned(mutatingKind, &f.Mutating[i].ObjectMeta, webhooks)...)
	}
	for i := range f.Validating {
		var webhooks []webhook
		for _, w := range f.Validating[i].Webhooks {
			webhooks = append(webhooks, webhook{ValidatingWebhook: w})
		}
		all = append(all, f.owned(validatingKind, &f.Validating[i].ObjectMeta, webhooks)...)
	}
	return all
}

// owned completes the webhooks of a configuration; it returns none where that is of no part.
func (f *Facts) owned(kind string, configuration *metav1.ObjectMeta, webhooks []webhook) []webhook {
	var rules []admissionregistrationv1.RuleWithOperations
	for _, w := range webhooks {
		rules = append(rules, w.Rules...)
	}
	p := f.owner(configuration.Name, rules)
	if p == nil {
		return nil
	}
	for i := range webhooks {
		w := &webhooks[i]
		w.part, w.kind, w.configuration, w.managed, w.index = p, kind, configuration.Name, configuration.ManagedFields, i
	}
	return webhooks
}

// owner returns the part that a webhook configuration belongs to, or nil: by its name, or by what it is
// asked about where the part has none of that name, as Helm releases name theirs after themselves.
func (f *Facts) owner(configuration string, rules []admissionregistrationv1.RuleWithOperations) *part {
	for _, p := range parts {
		if configuration == p.mutating || configuration == p.validating {
			return p
		}
	}
	for _, p := range parts {
		if p.asked == (schema.GroupResource{}) || !installed.Asked(rules, p.asked) {
			continue
		}
		if inventory.Find(f.Mutating, "", p.mutating) != nil || inventory.Find(f.Validating, "", p.validating) != nil {
			return nil
		}
		return p
	}
	return nil
}

// deployers write fields that somebody has declared, values of the chart for instance.
var deployers = []string{"helm", "helm-controller", "argocd-controller"}

// declares reports whether a field of the webhook is a value of the chart: its deployer has set it, and nobody has since.
func (w webhook) declares(path ...any) bool {
	field := fieldpath.MakePathOrDie(append([]any{"webhooks", fieldpath.KeyByFields("name", w.Name)}, path...)...)
	return slices.ContainsFunc(w.managed, func(e metav1.ManagedFieldsEntry) bool {
		var fields fieldpath.Set
		return slices.Contains(deployers, e.Manager) && e.FieldsV1 != nil && fields.FromJSON(e.FieldsV1.GetRawReader()) == nil && fields.Has(field)
	})
}

func (w webhook) object() string { return object(w.kind, "", w.configuration) }

// address is what the API server calls.
func (w webhook) address() string {
	if service := w.ClientConfig.Service; service != nil {
		return fmt.Sprintf("https://%s.%s.svc:", service.Name, service.Namespace)
	}
	return ptr.Deref(w.ClientConfig.URL, "")
}

// asksAbout reports whether a rule of the webhook names a resource.
func (w webhook) asksAbout(resource string) bool {
	return slices.ContainsFunc(w.Rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(rule.Resources, resource)
	})
}

// ownConditions leave out what is being deleted, see config/webhook, what has no queue and
// what the manager writes, see pkg/matchconditions.
var ownConditions = []string{"not-deleting", "queued", "not-own"}

// narrowed reports whether the webhook is not asked about every object of its rules in the namespaces that it is for,
// those that are being deleted aside: it has a condition beside our own and values of the chart, or a selector.
func (w webhook) narrowed() bool {
	return narrows(w.ObjectSelector) || slices.ContainsFunc(w.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool {
		return !slices.Contains(ownConditions, c.Name) && !w.declares("matchConditions", fieldpath.KeyByFields("name", c.Name), "expression")
	})
}

// narrows reports whether a selector leaves anything out.
func narrows(selector *metav1.LabelSelector) bool {
	return selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) > 0
}
