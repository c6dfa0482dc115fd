// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/kube"
)

// handOver prepares a running cluster for the other integration, as an admin would:
// the manager goes with its webhooks, Kueue stops and finds another configuration when
// up starts it again. Jobs run on meanwhile.
func (c *Cluster) handOver(ctx context.Context, settings Settings) error {
	c.say("TrainJobs change hands: %s to %s", c.state.Settings.Integration, settings.Integration)
	for _, comp := range components(Settings{Integration: External}) {
		if comp.name == build.KueueTrainer || comp.name == "kueue" {
			if err := c.stop(ctx, comp); err != nil {
				return err
			}
		}
	}
	if settings.Integration == InTree {
		if err := c.removeWebhooks(ctx); err != nil {
			return err
		}
	}
	c.state.Settings = settings
	return writeState(c.path(stateFile), c.state)
}

// removeWebhooks deletes kueue-trainer's, which nobody would answer.
func (c *Cluster) removeWebhooks(ctx context.Context) error {
	api, err := kube.NewClient(c.Kubeconfig())
	if err != nil {
		return err
	}
	for _, obj := range []client.Object{
		&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kueue-trainer-mutating-webhook-configuration"}},
		&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "kueue-trainer-validating-webhook-configuration"}},
	} {
		if err := client.IgnoreNotFound(api.Delete(ctx, obj)); err != nil {
			return fmt.Errorf("failed to delete the webhook configuration %s: %w", obj.GetName(), err)
		}
	}
	return nil
}
