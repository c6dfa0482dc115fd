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

// webhook is a webhook of a part, and where it stands.
type webhook struct {
	*admissionregistrationv1.MutatingWebhook

	part          *part
	kind          string // kind and configuration are of the object, index is the place in it
	configuration *admissionregistrationv1.MutatingWebhookConfiguration
	index         int
}

// webhooks returns those of the parts, mutating first.
func (f *Facts) webhooks() []webhook {
	var all []webhook
	add := func(kind string, configurations []admissionregistrationv1.MutatingWebhookConfiguration) {
		for i := range configurations {
			c := &configurations[i]
			p := f.owner(c)
			for n := range c.Webhooks {
				if p != nil {
					all = append(all, webhook{MutatingWebhook: &c.Webhooks[n], part: p, kind: kind, configuration: c, index: n})
				}
			}
		}
	}
	add(mutatingKind, f.Mutating)
	add(validatingKind, f.Validating)
	return all
}

// asMutating is a validating configuration with what doctor looks at in both kinds. Like mutating ones that are asked again,
// its webhooks see what all others have made of an object.
func asMutating(c *admissionregistrationv1.ValidatingWebhookConfiguration) admissionregistrationv1.MutatingWebhookConfiguration {
	same := admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: c.ObjectMeta}
	for _, w := range c.Webhooks {
		same.Webhooks = append(same.Webhooks, admissionregistrationv1.MutatingWebhook{
			Name: w.Name, ClientConfig: w.ClientConfig, Rules: w.Rules, FailurePolicy: w.FailurePolicy,
			MatchConditions: w.MatchConditions, NamespaceSelector: w.NamespaceSelector, ObjectSelector: w.ObjectSelector,
			ReinvocationPolicy: ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy),
		})
	}
	return same
}

// owner returns the part that a webhook configuration belongs to, or nil: by its name, or by what it is
// asked about where the part has none of that name, as Helm releases name theirs after themselves.
func (f *Facts) owner(c *admissionregistrationv1.MutatingWebhookConfiguration) *part {
	if p := slices.IndexFunc(parts, func(p *part) bool { return c.Name == p.mutating || c.Name == p.validating }); p >= 0 {
		return parts[p]
	}
	for _, p := range parts {
		if p.asked == (schema.GroupResource{}) || !slices.ContainsFunc(c.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool { return installed.Asked(w.Rules, p.asked) }) {
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
	return slices.ContainsFunc(w.configuration.ManagedFields, func(e metav1.ManagedFieldsEntry) bool {
		var fields fieldpath.Set
		return slices.Contains(deployers, e.Manager) && e.FieldsV1 != nil && fields.FromJSON(e.FieldsV1.GetRawReader()) == nil && fields.Has(field)
	})
}

func (w webhook) object() string { return object(w.kind, "", w.configuration.Name) }

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

// ownConditions leave out what is being deleted, has no queue or is written by the manager: see pkg/matchconditions.
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
