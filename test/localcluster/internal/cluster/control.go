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
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
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
	// keptEntries may be there without a cluster: logs, the lock that is held, and what a full disk leaves of the state.
	keptEntries = []string{"logs", lockFile, newStateFile}
)

// Control starts, stops, kills (as a crash would) or restarts a component. It returns when that is healthy, or gone.
func (c *Cluster) Control(ctx context.Context, verb, name string) {
	defer c.lockExisting()()
	comp, p := c.find(name), c.process(name)
	switch {
	case verb == "start" && p.Alive():
		c.Say("%s is running already, pid %d", name, p.PID)
	case verb == "start":
		c.start(ctx, comp)
	case verb == "stop":
		c.stop(ctx, comp)
	case verb == "restart":
		c.restart(ctx, comp)
	case !p.Alive():
		c.Say("%s is not running", name)
	default:
		attempt.Succeed(attempt.To(func() { p.Kill(ctx) }), "failed to kill %s", name)
		c.Say("%s killed", name)
	}
}

func (c *Cluster) restart(ctx context.Context, comp component) {
	c.stop(ctx, comp)
	c.start(ctx, comp)
}

func (c *Cluster) inTier(ctx context.Context, t tier, do func(context.Context, component)) {
	others := func(comp component) bool { return comp.tier != t }
	attempt.ForEach(ctx, slices.DeleteFunc(c.components(), others), do)
}

// ensure starts a component that does not run, and restarts one whose program or configuration has changed.
func (c *Cluster) ensure(ctx context.Context, comp component) {
	p := c.process(comp.name)
	switch {
	case !p.Alive():
		c.start(ctx, comp)
	case c.isProgramOf(comp, p) && reflect.DeepEqual(p.Spec, c.spec(comp)):
		c.waitHealthy(ctx, comp)
	default:
		c.Say("%-24s has a new binary or configuration: restarting", comp.name)
		c.restart(ctx, comp)
	}
}

func (c *Cluster) start(ctx context.Context, comp component) {
	if _, err := os.Stat(c.binary(comp)); err != nil {
		attempt.Fail("cannot start %s: %w, run `localcluster build`", comp.name, err)
	}
	start := time.Now()
	c.readConfigMap(ctx, comp)
	c.record(comp.name, process.Start(c.spec(comp)))
	c.waitHealthy(ctx, comp)
	c.Done(comp.name, "ready", start)
}

func (c *Cluster) stop(ctx context.Context, comp component) {
	p := c.process(comp.name)
	if !p.Alive() {
		return
	}
	start, end := time.Now(), "stopped"
	terminate := func() {
		if p.Terminate(ctx, grace) {
			end = "did not stop by itself and was killed"
		}
	}
	attempt.Succeed(attempt.To(terminate), "failed to stop %s", comp.name)
	c.Done(comp.name, end, start)
}

// Down stops every process that up has started, and removes everything but the logs.
func (c *Cluster) Down(ctx context.Context) {
	if !c.state.exists() {
		c.Say("no cluster in %s", c.Dir)
		return
	}
	defer c.lock()()
	for t := managers; t >= storage; t-- {
		c.inTier(ctx, t, c.stop)
	}
	var err error
	for _, entry := range ownEntries {
		err = errors.Join(err, os.RemoveAll(c.path(entry)))
	}
	attempt.Succeed(err)
	c.Say("down; the logs are in %s", c.path("logs"))
}

// isProgramOf compares programs by their content: the go command also replaces those that have not changed.
func (c *Cluster) isProgramOf(comp component, p process.Process) bool {
	path := fmt.Sprintf("/proc/%d/exe", p.PID)
	running, _ := os.Stat(path) // Nothing, where it has just ended.
	if os.SameFile(running, attempt.Must(os.Stat(c.binary(comp)))) {
		return true
	}
	runs, _ := os.ReadFile(path)
	return bytes.Equal(runs, attempt.Must(os.ReadFile(c.binary(comp))))
}

// change prepares a running cluster for other settings. What it stops, up starts again, configured as it shall be.
func (c *Cluster) change(ctx context.Context, settings Settings) {
	if c.state.Settings.Integration != settings.Integration {
		c.handOver(ctx, settings.Integration)
	}
	if c.state.Settings.Trainer != settings.Trainer {
		// Its controllers have other binaries then, and are restarted when everything else of them is in place.
		c.Say("Trainer is upgraded: %s to %s", c.state.Settings.Trainer, settings.Trainer)
	}
	c.state.Settings = settings
	c.writeState()
}

// UpgradeCRDs brings the CRDs of a newer Trainer and its JobSet and nothing else, as the first step of an upgrade that
// up completes: the older controllers work on with them. Nothing has to be removed: a newer generation has all objects
// of an older one, and what is gone from inside them goes when they are applied.
func (c *Cluster) UpgradeCRDs(ctx context.Context, settings Settings) {
	defer c.lockExisting()()
	// What is written down stays: the controllers are those of the older one.
	c.state.Settings.Trainer = c.withDefaults(settings).Trainer
	crds, _ := manifests.Partition(c.render(ctx), manifests.CRD)
	kube.NewClient(c.Kubeconfig()).ApplyAll(ctx, crds)
	c.Say("CRDs of Trainer %s installed", c.state.Settings.Trainer)
}

// handOver prepares a running cluster for the other integration, as an admin would:
// the manager goes with its webhooks, what waits is freed of its gate, and Kueue stops
// and finds another configuration when up starts it again. Jobs run on meanwhile.
func (c *Cluster) handOver(ctx context.Context, to Integration) {
	before := c.state.Settings.Integration
	c.Say("TrainJobs migrate: %s to %s", before, to)
	if before.manager() {
		c.stop(ctx, kueueTrainer)
		if !to.manager() {
			c.uninstall(ctx)
		}
	}
	c.stop(ctx, kueue)
}

// uninstall deletes kueue-trainer's webhooks, which nobody would answer, and rules at the API server, and frees
// waiting TrainJobs of its gate, with the command that the documentation gives to admins.
func (c *Cluster) uninstall(ctx context.Context) {
	api := kube.NewClient(c.Kubeconfig())
	gone, _ := manifests.Partition(c.renderBundle(ctx, ourBundle),
		manifests.MutatingConfig, manifests.ValidatingConfig, "ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy")
	for _, obj := range gone {
		attempt.Succeed(client.IgnoreNotFound(api.Delete(ctx, obj)), "failed to delete %s %s", obj.GetKind(), obj.GetName())
	}
	path := filepath.Join(c.BinDir(), build.Plugin)
	out, err := exec.CommandContext(ctx, path, "hand-back", "--all-namespaces", "--kubeconfig", c.Kubeconfig()).CombinedOutput()
	c.Say("%s", strings.TrimSpace(string(out)))
	attempt.Succeed(err, "failed to free the waiting TrainJobs of the gate")
}
