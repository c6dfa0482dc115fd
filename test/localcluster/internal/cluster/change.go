// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/kube"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/manifests"
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
		// Its controllers have other binaries then, and are restarted when everything else of
		// them is in place.
		c.say("Trainer is upgraded: %s to %s", c.state.Settings.Trainer.Name, settings.Trainer.Name)
	}
	c.state.Settings = settings
	return c.writeState()
}

// UpgradeCRDs brings the CRDs of a newer Trainer and its JobSet and nothing else, as the
// first step of an upgrade that up completes: the older controllers work on with them.
// Nothing has to be removed: a newer generation has all objects of an older one, and what
// is gone from inside them goes when they are applied.
func (c *Cluster) UpgradeCRDs(ctx context.Context, settings Settings) error {
	release, err := c.lockExisting()
	if err != nil {
		return err
	}
	defer release()
	// What is written down stays: the controllers are those of the older one.
	c.state.Settings.Trainer = c.withDefaults(settings).Trainer
	objects, err := c.render(ctx)
	if err != nil {
		return err
	}
	api, err := kube.NewClient(c.Kubeconfig())
	if err != nil {
		return err
	}
	crds, _ := manifests.Partition(objects, manifests.CRD)
	if err := api.ApplyAll(ctx, crds); err != nil {
		return err
	}
	c.say("CRDs of Trainer %s installed", c.state.Settings.Trainer.Name)
	return nil
}

// handOver prepares a running cluster for the other integration, as an admin would:
// the manager goes with its webhooks, what waits is freed of its gate, and Kueue stops
// and finds another configuration when up starts it again. Jobs run on meanwhile.
func (c *Cluster) handOver(ctx context.Context, to Integration) error {
	before := c.state.Settings.Integration
	c.say("TrainJobs migrate: %s to %s", before, to)
	if before.manager() {
		if err := c.stop(ctx, kueueTrainer); err != nil {
			return err
		}
		if !to.manager() {
			if err := c.uninstall(ctx); err != nil {
				return err
			}
		}
	}
	return c.stop(ctx, kueue)
}

// uninstall deletes kueue-trainer's webhooks, which nobody would answer, and rules at the API server, and frees
// waiting TrainJobs of its gate, with the command that the documentation gives to admins.
func (c *Cluster) uninstall(ctx context.Context) error {
	api, err := kube.NewClient(c.Kubeconfig())
	if err != nil {
		return err
	}
	objects, err := c.renderBundle(ctx, ourBundle)
	if err != nil {
		return err
	}
	gone, _ := manifests.Partition(objects, manifests.MutatingConfig, manifests.ValidatingConfig, "ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy")
	for _, obj := range gone {
		if err := client.IgnoreNotFound(api.Delete(ctx, obj)); err != nil {
			return fmt.Errorf("failed to delete %s %s: %w", obj.GetKind(), obj.GetName(), err)
		}
	}
	path := filepath.Join(c.Builder.BinDir(), build.Plugin)
	out, err := exec.CommandContext(ctx, path, "hand-back", "--all-namespaces", "--kubeconfig", c.Kubeconfig()).CombinedOutput()
	c.say("%s", strings.TrimSpace(string(out)))
	if err != nil {
		return fmt.Errorf("failed to free the waiting TrainJobs of the gate: %w", err)
	}
	return nil
}
