// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"golang.org/x/sync/errgroup"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/kube"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/manifests"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/nodes"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/process"
)

// Build makes the binaries that the settings need, where they can run.
func (c *Cluster) Build(ctx context.Context, settings Settings) error {
	if err := process.Supported(); err != nil {
		return err
	}
	settings = c.withDefaults(settings)
	return c.Builder.Build(ctx, binaries(settings))
}

// Up builds what is out of date and starts what is not running. On a running cluster it is a repair: it also applies
// the manifests again and restarts what has another program or configuration by now. With other settings it also changes
// to those.
func (c *Cluster) Up(ctx context.Context, settings Settings) error {
	if err := c.refuseForeignDir(); err != nil {
		return err
	}
	release, err := c.Lock()
	if err != nil {
		return err
	}
	defer release()
	settings = c.withDefaults(settings)
	if err := c.refuseOtherSettings(settings); err != nil {
		return err
	}
	if !c.Built {
		if err := c.Build(ctx, settings); err != nil {
			return err
		}
	}
	start := time.Now()
	if c.state.exists() {
		if err := c.change(ctx, settings); err != nil {
			return err
		}
	}
	if err := c.bringUp(ctx, settings); err != nil {
		return fmt.Errorf("%w\nWhat was started is still there: look around, or run `localcluster down --local-dir %s`", err, c.Dir)
	}
	c.say("up in %s", time.Since(start).Round(100*time.Millisecond))
	return nil
}

// withDefaults completes settings that were left open with what this cluster has.
func (c *Cluster) withDefaults(settings Settings) Settings {
	settings.Trainer = cmp.Or(settings.Trainer, c.state.Settings.Trainer)
	settings.Kubernetes = cmp.Or(settings.Kubernetes, c.state.Settings.Kubernetes)
	// Who is up again need not know that this is the manager of a fleet.
	settings.Dispatches = settings.Dispatches || c.state.Settings.Dispatches
	return settings
}

// refuseOtherSettings says that a cluster cannot change its nodes, workers or version while it exists,
// nor go back to an older Trainer: that one would drop what it does not know from every object.
func (c *Cluster) refuseOtherSettings(settings Settings) error {
	if !c.state.exists() {
		return nil
	}
	if c.state.Settings.Nodes != settings.Nodes || c.state.Settings.InTreeWorkers != settings.InTreeWorkers ||
		c.state.Settings.Kubernetes != settings.Kubernetes ||
		slices.Index(build.Trainers, settings.Trainer) < slices.Index(build.Trainers, c.state.Settings.Trainer) {
		return fmt.Errorf("%s holds a cluster with %s, which cannot change to %s: run `localcluster down` first, or use another LOCAL_DIR",
			c.Dir, c.state.Settings, settings)
	}
	c.say("cluster in %s exists: starting what is missing", c.Dir)
	return nil
}

// refuseForeignDir keeps us from writing into, and later removing from, a directory
// with somebody else's files. It comes before anything is written there.
func (c *Cluster) refuseForeignDir() error {
	entries, err := os.ReadDir(c.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, entry := range entries {
		if !c.state.exists() && !slices.Contains(keptEntries, entry.Name()) {
			return fmt.Errorf("LOCAL_DIR %s holds %s, which is not ours: use an empty directory", c.Dir, entry.Name())
		}
	}
	return nil
}

func (c *Cluster) bringUp(ctx context.Context, settings Settings) error {
	if err := c.prepare(ctx, settings); err != nil {
		return err
	}
	// It takes a while, and needs no cluster.
	rendered := sync.OnceValues(func() ([]*unstructured.Unstructured, error) { return c.render(ctx) })
	go func() { _, _ = rendered() }() // What it returns, fill looks at.
	for _, t := range []tier{storage, api} {
		if err := c.inTier(ctx, t, c.ensure); err != nil {
			return err
		}
	}
	return c.fill(ctx, rendered)
}

// fill does everything that needs an API server. Nodes get ready while the managers start.
func (c *Cluster) fill(ctx context.Context, rendered func() ([]*unstructured.Unstructured, error)) error {
	api, err := kube.NewClient(c.Kubeconfig())
	if err != nil {
		return err
	}
	if err := api.Install(ctx, OwnObjects()); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.inTier(ctx, core, c.ensure) })
	group.Go(func() error { return c.makeNodes(ctx, api) })
	group.Go(func() error {
		objects, err := rendered()
		if err != nil {
			return err
		}
		start := time.Now()
		runtimes, others := manifests.Partition(objects, manifests.Runtime)
		if err := c.install(ctx, api, others); err != nil {
			return err
		}
		c.done("manifests", "installed", start)
		if err := c.inTier(ctx, managers, c.ensure); err != nil {
			return err
		}
		// Not before: Trainer's webhook is asked about them.
		if err := api.ApplyAll(ctx, runtimes); err != nil {
			return err
		}
		// Pods there run as that.
		account := client.ObjectKey{Namespace: JobsNamespace, Name: "default"}
		return kube.WaitFor(ctx, healthyWithin, "ServiceAccount "+account.String(), func(ctx context.Context) error {
			return api.Get(ctx, account, &corev1.ServiceAccount{})
		})
	})
	return group.Wait()
}

// prepare writes all files. The state comes first, so that down knows its own.
func (c *Cluster) prepare(ctx context.Context, settings Settings) error {
	if !c.state.exists() {
		// Those of kueue-trainer always: TrainJobs can migrate.
		var names []string
		for _, comp := range components(Settings{Integration: External}) {
			for _, purpose := range comp.ports {
				names = append(names, comp.name+"/"+purpose)
			}
		}
		ports, err := choosePorts(names)
		if err != nil {
			return err
		}
		c.state = State{Settings: settings, Ports: ports, Processes: map[string]process.Process{}}
		if err := errors.Join(c.writeState(), c.removeOldLogs()); err != nil {
			return err
		}
	}
	if err := c.makeCredentials(); err != nil {
		return fmt.Errorf("failed to make credentials: %w", err)
	}
	for _, comp := range c.components() {
		if comp.config == nil {
			continue
		}
		content, err := comp.config(ctx, c)
		if err == nil {
			err = writeFile(c.configFile(comp.name), content)
		}
		if err != nil {
			return fmt.Errorf("failed to configure %s: %w", comp.name, err)
		}
	}
	return nil
}

// removeOldLogs leaves those of the build, which was just now.
func (c *Cluster) removeOldLogs() error {
	logs, err := filepath.Glob(c.path("logs", "*"))
	for _, log := range logs {
		if !strings.HasPrefix(filepath.Base(log), "build-") {
			err = errors.Join(err, os.Remove(log))
		}
	}
	return err
}

func (c *Cluster) makeNodes(ctx context.Context, api *kube.Client) error {
	if c.state.Settings.Dispatches {
		return nil
	}
	start := time.Now()
	made, err := MakeNodes(ctx, api, c.state.Settings.Nodes)
	if err == nil {
		c.done(fmt.Sprintf("%d nodes", made), "ready", start)
	}
	return err
}

// MakeNodes makes the fake nodes, so many of them with GPUs, and waits until pods can be placed on
// every node of the cluster.
func MakeNodes(ctx context.Context, api *kube.Client, gpuNodes int) (made int, err error) {
	wanted := nodes.Make(gpuNodes)
	if err := kube.Create(ctx, api, wanted); err != nil {
		return 0, err
	}
	return len(wanted), kube.WaitFor(ctx, healthyWithin, "nodes", func(ctx context.Context) error {
		list := &corev1.NodeList{}
		if err := api.List(ctx, list); err != nil {
			return err
		}
		for i := range list.Items {
			if !nodes.Usable(&list.Items[i]) {
				return fmt.Errorf("%s is not ready", list.Items[i].Name)
			}
		}
		return nil
	})
}

func (c *Cluster) done(what, verb string, start time.Time) {
	c.say("%-24s %s in %s", what, verb, time.Since(start).Round(100*time.Millisecond))
}
