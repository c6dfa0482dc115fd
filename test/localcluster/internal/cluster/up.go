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

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/kube"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/manifests"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/nodes"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/process"
)

// Build makes the binaries that the settings need, where they can run.
func (c *Cluster) Build(ctx context.Context, settings Settings) {
	attempt.Succeed(process.Supported())
	c.Builder.Build(ctx, binaries(c.withDefaults(settings)))
}

// Up builds what is out of date and starts what is not running. On a running cluster it also applies the manifests
// again, restarts what has another program or configuration by now, and changes to other settings.
func (c *Cluster) Up(ctx context.Context, settings Settings) {
	c.refuseForeignDir()
	defer c.lock()()
	settings = c.withDefaults(settings)
	c.refuseOtherSettings(settings)
	if !c.Built {
		c.Build(ctx, settings)
	}
	start := time.Now()
	if c.state.exists() {
		c.change(ctx, settings)
	}
	if err := attempt.To(func() { c.bringUp(ctx, settings) }); err != nil {
		attempt.Fail("%w\nWhat was started is still there: look around, or run `localcluster down --local-dir %s`", err, c.Dir)
	}
	c.Say("up in %s", time.Since(start).Round(100*time.Millisecond))
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
func (c *Cluster) refuseOtherSettings(settings Settings) {
	if !c.state.exists() {
		return
	}
	if c.state.Settings.Nodes != settings.Nodes || c.state.Settings.InTreeWorkers != settings.InTreeWorkers ||
		c.state.Settings.Kubernetes != settings.Kubernetes ||
		slices.Index(build.Trainers, settings.Trainer) < slices.Index(build.Trainers, c.state.Settings.Trainer) {
		attempt.Fail("%s holds a cluster with %s, which cannot change to %s: run `localcluster down` first, or use another LOCAL_DIR",
			c.Dir, c.state.Settings, settings)
	}
	c.Say("cluster in %s exists: starting what is missing", c.Dir)
}

// refuseForeignDir keeps us from writing into, and later removing from, a directory
// with somebody else's files. It comes before anything is written there.
func (c *Cluster) refuseForeignDir() {
	entries, err := os.ReadDir(c.Dir)
	if !errors.Is(err, fs.ErrNotExist) {
		attempt.Succeed(err)
	}
	for _, entry := range entries {
		if !c.state.exists() && !slices.Contains(keptEntries, entry.Name()) {
			attempt.Fail("LOCAL_DIR %s holds %s, which is not ours: use an empty directory", c.Dir, entry.Name())
		}
	}
}

func (c *Cluster) bringUp(ctx context.Context, settings Settings) {
	c.prepare(ctx, settings)
	// It takes a while, and needs no cluster.
	rendered := sync.OnceValues(func() (objects []*unstructured.Unstructured, err error) {
		err = attempt.To(func() { objects = c.render(ctx) })
		return objects, err
	})
	go func() { _, _ = rendered() }() // What comes of it, startManagers looks at.
	for _, t := range []tier{storage, api} {
		c.inTier(ctx, t, c.ensure)
	}
	api := kube.NewClient(c.Kubeconfig())
	api.Install(ctx, OwnObjects())
	// Nodes get ready while the managers start.
	attempt.ForEach(ctx, []func(context.Context){
		func(ctx context.Context) { c.inTier(ctx, core, c.ensure) },
		func(ctx context.Context) { c.makeNodes(ctx, api) },
		func(ctx context.Context) { c.startManagers(ctx, api, attempt.Must(rendered())) },
	}, func(ctx context.Context, step func(context.Context)) { step(ctx) })
}

// startManagers starts them on what they need, and makes what they have to be asked about.
func (c *Cluster) startManagers(ctx context.Context, api *kube.Client, objects []*unstructured.Unstructured) {
	start := time.Now()
	runtimes, others := manifests.Partition(objects, manifests.Runtime)
	api.Install(ctx, withNamespaces(append(append(others, c.kueueSecret()), c.configMaps(ctx)...)))
	c.Done("manifests", "installed", start)
	c.inTier(ctx, managers, c.ensure)
	// Not before: Trainer's webhook is asked about them.
	api.ApplyAll(ctx, runtimes)
	// Pods there run as that.
	account := client.ObjectKey{Namespace: JobsNamespace, Name: "default"}
	kube.WaitFor(ctx, healthyWithin, "ServiceAccount "+account.String(), func(ctx context.Context) {
		attempt.Succeed(api.Get(ctx, account, &corev1.ServiceAccount{}))
	})
}

// prepare writes all files. The state comes first, so that down knows its own.
func (c *Cluster) prepare(ctx context.Context, settings Settings) {
	if !c.state.exists() {
		// Those of kueue-trainer always: TrainJobs can migrate.
		var names []string
		for _, comp := range components(Settings{Integration: External}) {
			for _, purpose := range comp.ports {
				names = append(names, comp.name+"/"+purpose)
			}
		}
		c.state = state{Settings: settings, Ports: choosePorts(names), Processes: map[string]process.Process{}}
		c.writeState()
		c.removeOldLogs()
	}
	attempt.Succeed(attempt.To(c.makeCredentials), "failed to make credentials")
	for _, comp := range c.components() {
		if comp.config != nil {
			configure := func() { writeFile(c.configFile(comp.name), comp.config(ctx, c)) }
			attempt.Succeed(attempt.To(configure), "failed to configure %s", comp.name)
		}
	}
}

// removeOldLogs leaves those of the build, which was just now.
func (c *Cluster) removeOldLogs() {
	for _, log := range attempt.Must(filepath.Glob(c.path("logs", "*"))) {
		if !strings.HasPrefix(filepath.Base(log), "build-") {
			attempt.Succeed(os.Remove(log))
		}
	}
}

func (c *Cluster) makeNodes(ctx context.Context, api *kube.Client) {
	if c.state.Settings.Dispatches {
		return
	}
	start := time.Now()
	made := MakeNodes(ctx, api, c.state.Settings.Nodes)
	c.Done(fmt.Sprintf("%d nodes", made), "ready", start)
}

// MakeNodes makes the fake nodes, so many with GPUs, and waits until pods can be placed on every node of the cluster.
func MakeNodes(ctx context.Context, api *kube.Client, gpuNodes int) (made int) {
	wanted := nodes.Make(gpuNodes)
	attempt.ForEach(ctx, wanted, func(ctx context.Context, node *corev1.Node) {
		attempt.Succeed(client.IgnoreAlreadyExists(api.Create(ctx, node)), "failed to create Node %s", node.Name)
	})
	kube.WaitFor(ctx, healthyWithin, "nodes", func(ctx context.Context) {
		list := &corev1.NodeList{}
		attempt.Succeed(api.List(ctx, list))
		for i := range list.Items {
			if !nodes.Usable(&list.Items[i]) {
				attempt.Fail("%s is not ready", list.Items[i].Name)
			}
		}
	})
	return len(wanted)
}
