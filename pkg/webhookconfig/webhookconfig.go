// SPDX-License-Identifier: Apache-2.0

// Package webhookconfig changes the webhook configurations of the manager while it runs.
package webhookconfig

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Names are those of the two configurations.
type Names struct {
	Mutating, Validating string
}

// Installed are the configurations as config/webhook names them.
var Installed = Names{
	Mutating:   "kueue-trainer-mutating-webhook-configuration",
	Validating: "kueue-trainer-validating-webhook-configuration",
}

// Webhook is what is changed in one webhook of a configuration.
type Webhook struct {
	// Validating tells the webhooks of the two configurations apart.
	Validating      bool
	Rules           []admissionregistrationv1.RuleWithOperations
	ClientConfig    *admissionregistrationv1.WebhookClientConfig
	MatchConditions *[]admissionregistrationv1.MatchCondition
}

// Change has change look at each webhook of both configurations, and writes those that are
// others afterwards. A conflict is an error: the next look goes by the newer version.
func (n Names) Change(ctx context.Context, c client.Client, change func(Webhook)) error {
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	err := changeOne(ctx, c, n.Mutating, mutating, func() {
		for i := range mutating.Webhooks {
			w := &mutating.Webhooks[i]
			change(Webhook{Rules: w.Rules, ClientConfig: &w.ClientConfig, MatchConditions: &w.MatchConditions})
		}
	})
	if err != nil {
		return err
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	return changeOne(ctx, c, n.Validating, validating, func() {
		for i := range validating.Webhooks {
			w := &validating.Webhooks[i]
			change(Webhook{Validating: true, Rules: w.Rules, ClientConfig: &w.ClientConfig, MatchConditions: &w.MatchConditions})
		}
	})
}

// changeOne reads a configuration into configuration, which change changes.
func changeOne(ctx context.Context, c client.Client, name string, configuration client.Object, change func()) error {
	if err := c.Get(ctx, client.ObjectKey{Name: name}, configuration); err != nil {
		return fmt.Errorf("reading the webhook configuration %s: %w", name, err)
	}
	before := configuration.DeepCopyObject()
	change()
	if equality.Semantic.DeepEqual(before, configuration) {
		return nil
	}
	if err := c.Update(ctx, configuration); err != nil {
		return fmt.Errorf("changing the webhook configuration %s: %w", name, err)
	}
	return nil
}
