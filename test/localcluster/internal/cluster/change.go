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

// change prepares a running cluster for other settings. What it stops, up starts again,
// with manifests and configuration as they shall be.
func (c *Cluster) change(ctx context.Context, settings Settings) error {
	if c.state.Settings.Integration != settings.Integration {
		if err := c.handOver(ctx, settings.Integration); err != nil {
			return err
		}
	}
	if c.state.Settings.Trainer != settings.Trainer {
		if err := c.upgradeTrainer(ctx, settings.Trainer); err != nil {
			return err
		}
	}
	c.state.Settings = settings
	return writeState(c.path(stateFile), c.state)
}

// upgradeTrainer makes room for a newer Trainer and its JobSet, as an admin would. Jobs,
// Kueue and kueue-trainer run on meanwhile. Nothing has to be removed: a newer generation
// has all objects of an older one, and what is gone from inside them goes when they are
// applied.
func (c *Cluster) upgradeTrainer(ctx context.Context, to build.Trainer) error {
	c.say("Trainer is upgraded: %s to %s", c.state.Settings.Trainer.Name, to.Name)
	return c.stopAll(ctx, trainer, jobset)
}

// handOver prepares a running cluster for the other integration, as an admin would:
// the manager goes with its webhooks, Kueue stops and finds another configuration when
// up starts it again. Jobs run on meanwhile.
func (c *Cluster) handOver(ctx context.Context, to Integration) error {
	c.say("TrainJobs change hands: %s to %s", c.state.Settings.Integration, to)
	if err := c.stopAll(ctx, kueue, kueueTrainer); err != nil {
		return err
	}
	if to == InTree {
		return c.removeWebhooks(ctx)
	}
	return nil
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
