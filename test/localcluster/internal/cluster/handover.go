// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/kube"
)

// handOver prepares a running cluster for the other integration, as an admin would:
// the manager goes with its webhooks, what waits is freed of its gate, and Kueue stops
// and finds another configuration when up starts it again. Jobs run on meanwhile.
func (c *Cluster) handOver(ctx context.Context, settings Settings) error {
	before := c.state.Settings.Integration
	c.say("TrainJobs change hands: %s to %s", before, settings.Integration)
	if before.manager() {
		if err := c.stop(ctx, kueueTrainer); err != nil {
			return err
		}
	}
	if before.manager() && !settings.Integration.manager() {
		if err := c.uninstall(ctx); err != nil {
			return err
		}
	}
	if err := c.stop(ctx, kueue); err != nil {
		return err
	}
	c.state.Settings = settings
	return writeState(c.path(stateFile), c.state)
}

func (c *Cluster) uninstall(ctx context.Context) error {
	if err := c.removeWebhooks(ctx); err != nil {
		return err
	}
	return c.handBack(ctx)
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

// handBack frees waiting TrainJobs of kueue-trainer's gate, with the command that the
// documentation gives to admins.
func (c *Cluster) handBack(ctx context.Context) error {
	path := filepath.Join(c.Builder.BinDir(), build.Plugin)
	out, err := exec.CommandContext(ctx, path, "hand-back", "--all-namespaces", "--kubeconfig", c.Kubeconfig()).CombinedOutput()
	c.say("%s", strings.TrimSpace(string(out)))
	if err != nil {
		return fmt.Errorf("failed to free the waiting TrainJobs of the gate: %w", err)
	}
	return nil
}
