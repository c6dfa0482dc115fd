// SPDX-License-Identifier: Apache-2.0

// Package matchconditions keeps TrainJobs that are none of Kueue's away from the manager's
// webhooks, so that people can write those while the manager is down: the matchConditions
// of the webhook configurations follow Kueue's settings.
package matchconditions

import (
	"cmp"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// The conditions that this package keeps; those of others in a configuration stay as they are.
const (
	// Queued is met by TrainJobs that have, or had, a queue or our patch entry.
	Queued = "queued"
	// NotOwn is met by requests of anybody but the manager.
	NotOwn = "not-own"
)

// Includes reports whether the mutating webhook is for all TrainJobs of a namespace that were made at a time, whatever
// the conditions of this package said then. Where there are others, it is not known to be.
func Includes(c *admissionregistrationv1.MutatingWebhookConfiguration, namespace *corev1.Namespace, made metav1.Time) (bool, error) {
	if made.Before(&c.CreationTimestamp) || len(c.Webhooks) == 0 {
		return false, nil
	}
	// The first one is of config/webhook.
	own := []string{"not-deleting", Queued, NotOwn}
	for _, condition := range c.Webhooks[0].MatchConditions {
		if !slices.Contains(own, condition.Name) {
			return false, nil
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(cmp.Or(c.Webhooks[0].NamespaceSelector, &metav1.LabelSelector{}))
	if err != nil {
		return false, fmt.Errorf("reading the namespaceSelector of %s: %w", c.Name, err)
	}
	return selector.Matches(labels.Set(namespace.Labels)), nil
}

// ofTrainJobs tells the webhooks of TrainJobs from that of Workloads.
func ofTrainJobs(rules []admissionregistrationv1.RuleWithOperations) bool {
	return slices.ContainsFunc(rules, func(rule admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(rule.Resources, "trainjobs")
	})
}

// queued is met where a queue label or our part of the patches is in the object, or was
// there before, and patches something: see patch.Patched. In podTemplateOverrides our part has a mark.
var queued = fmt.Sprintf(`[object, oldObject].exists(o, o != null && (`+
	`%q in o.metadata.?labels.orValue({}) || `+
	`o.?spec.?runtimePatches.orValue([]).exists(p, p.?manager.orValue('') == %q && `+
	`p.?trainingRuntimeSpec.?template.?spec.?replicatedJobs.orValue([]).size() > 0) || `+
	`o.?spec.?podTemplateOverrides.orValue([]).exists(p, p.?metadata.?annotations[?%q].orValue('') == %q)))`,
	kueueconstants.QueueLabel, trainjob.Manager, trainjob.ManagerAnnotation, trainjob.Manager)

// conditions returns those of a webhook: its others, and ours where they hold. With every
// TrainJob in scope nothing is left out. self is the manager's user, or empty where its
// writes have to pass.
func conditions(have []admissionregistrationv1.MatchCondition, every bool, self string) []admissionregistrationv1.MatchCondition {
	out := slices.DeleteFunc(slices.Clone(have), func(c admissionregistrationv1.MatchCondition) bool {
		return c.Name == Queued || c.Name == NotOwn
	})
	if !every {
		out = append(out, admissionregistrationv1.MatchCondition{Name: Queued, Expression: queued})
	}
	if self != "" {
		out = append(out, admissionregistrationv1.MatchCondition{Name: NotOwn, Expression: fmt.Sprintf("request.userInfo.username != %q", self)})
	}
	if equality.Semantic.DeepEqual(out, have) {
		return have
	}
	return out
}
