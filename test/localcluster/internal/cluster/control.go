// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/kube"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/manifests"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/process"
)

// grace is how long a component may take to end by itself: as long as in the shipped Deployments of Kueue and JobSet.
const grace = 10 * time.Second

var (
	// ownEntries of LOCAL_DIR are made by up and removed by down.
	ownEntries = []string{"certs", "config", "etcd", "kubeconfig", "kubeconfigs", "manifests", stateFile, newStateFile}
	// keptEntries may be there without a cluster: the logs tell what happened, the lock is held, and a full disk may
	// have left no more of the state.
	keptEntries = []string{"logs", lockFile, newStateFile}
)

// Control does something to one component: start, stop, kill as a crash would, or restart. It returns when the
// component is healthy, or gone.
func (c *Cluster) Control(ctx context.Context, verb, name string) error {
	release, err := c.lockExisting()
	if err != nil {
		return err
	}
	defer release()
	comp, err := c.find(name)
	if err != nil {
		return err
	}
	p := c.process(name)
	switch {
	case verb == "start" && p.Alive():
		c.say("%s is running already, pid %d", name, p.PID)
		return nil
	case verb == "start":
		return c.start(ctx, comp)
	case verb == "stop":
		return c.stop(ctx, comp)
	case verb == "restart":
		return c.restart(ctx, comp)
	case !p.Alive():
		c.say("%s is not running", name)
		return nil
	}
	if err := p.Kill(ctx); err != nil {
		return fmt.Errorf("failed to kill %s: %w", name, err)
	}
	c.say("%s killed", name)
	return nil
}

func (c *Cluster) restart(ctx context.Context, comp component) error {
	if err := c.stop(ctx, comp); err != nil {
		return err
	}
	return c.start(ctx, comp)
}

func (c *Cluster) inTier(ctx context.Context, t tier, do func(context.Context, component) error) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, comp := range c.components() {
		if comp.tier == t {
			group.Go(func() error { return do(ctx, comp) })
		}
	}
	return group.Wait()
}

// ensure starts a component that does not run, and restarts one whose program or configuration has changed.
func (c *Cluster) ensure(ctx context.Context, comp component) error {
	p := c.process(comp.name)
	if !p.Alive() {
		return c.start(ctx, comp)
	}
	same, err := c.isProgramOf(comp, p)
	if err != nil {
		return err
	}
	if same && reflect.DeepEqual(p.Spec, c.spec(comp)) {
		return c.waitHealthy(ctx, comp)
	}
	c.say("%-24s has a new binary or configuration: restarting", comp.name)
	return c.restart(ctx, comp)
}

func (c *Cluster) start(ctx context.Context, comp component) error {
	if _, err := os.Stat(c.binary(comp)); err != nil {
		return fmt.Errorf("cannot start %s: %w, run `localcluster build`", comp.name, err)
	}
	start := time.Now()
	if err := c.readConfigMap(ctx, comp); err != nil {
		return err
	}
	p, err := process.Start(c.spec(comp))
	if err != nil {
		return err
	}
	if err := c.record(comp.name, p); err != nil {
		return err
	}
	if err := c.waitHealthy(ctx, comp); err != nil {
		return err
	}
	c.done(comp.name, "ready", start)
	return nil
}

func (c *Cluster) stop(ctx context.Context, comp component) error {
	p := c.process(comp.name)
	if !p.Alive() {
		return nil
	}
	start := time.Now()
	killed, err := p.Terminate(ctx, grace)
	if err != nil {
		return fmt.Errorf("failed to stop %s: %w", comp.name, err)
	}
	if killed {
		c.done(comp.name, "did not stop by itself and was killed", start)
	} else {
		c.done(comp.name, "stopped", start)
	}
	return nil
}

// Down stops every process that up has started, and removes everything but the logs.
func (c *Cluster) Down(ctx context.Context) error {
	if !c.state.exists() {
		c.say("no cluster in %s", c.Dir)
		return nil
	}
	release, err := c.Lock()
	if err != nil {
		return err
	}
	defer release()
	for t := managers; t >= storage; t-- {
		if err := c.inTier(ctx, t, c.stop); err != nil {
			return err
		}
	}
	for _, entry := range ownEntries {
		err = errors.Join(err, os.RemoveAll(c.path(entry)))
	}
	if err == nil {
		c.say("down; the logs are in %s", c.path("logs"))
	}
	return err
}

// isProgramOf reports whether a process runs the program that a component has now, by its content: the go command also
// replaces programs that have not changed.
func (c *Cluster) isProgramOf(comp component, p process.Process) (bool, error) {
	path := fmt.Sprintf("/proc/%d/exe", p.PID)
	running, _ := os.Stat(path) // Nothing, where it has just ended.
	there, err := os.Stat(c.binary(comp))
	if err != nil || os.SameFile(running, there) {
		return true, err
	}
	runs, _ := os.ReadFile(path)
	has, err := os.ReadFile(c.binary(comp))
	return bytes.Equal(runs, has), err
}

// change prepares a running cluster for other settings. What it stops, up starts again,
// with manifests and configuration as they shall be.
func (c *Cluster) change(ctx context.Context, settings Settings) error {
	if c.state.Settings.Integration != settings.Integration {
		if err := c.handOver(ctx, settings.Integration); err != nil {
			return err
		}
	}
	if c.state.Settings.Trainer != settings.Trainer {
		// Its controllers have other binaries then, and are restarted when everything else of them is in place.
		c.say("Trainer is upgraded: %s to %s", c.state.Settings.Trainer, settings.Trainer)
	}
	c.state.Settings = settings
	return c.writeState()
}

// UpgradeCRDs brings the CRDs of a newer Trainer and its JobSet and nothing else, as the first step of an upgrade that
// up completes: the older controllers work on with them. Nothing has to be removed: a newer generation has all objects
// of an older one, and what is gone from inside them goes when they are applied.
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
	c.say("CRDs of Trainer %s installed", c.state.Settings.Trainer)
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
