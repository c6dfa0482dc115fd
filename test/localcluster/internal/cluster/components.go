// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/process"
)

// tier is when a component starts: everything in one tier starts at the same time,
// as soon as the tier before it is healthy. Down goes the other way.
type tier int

const (
	storage tier = iota
	api
	// core works with what the API server brings itself.
	core
	// managers need the CustomResourceDefinitions and permissions to be installed.
	managers
)

// component is one process of the cluster.
type component struct {
	// name is also that of its user, its log and its configuration.
	name string
	tier tier
	// ports it listens on, by purpose; the first is shown by status.
	ports []string
	// groups of its user. A component without any does not call the API server.
	groups []string
	// serving is whether it needs a certificate, and the names besides loopback's that
	// this must be valid for.
	serving      bool
	servingNames []string
	// config makes config/NAME.yaml, if there is one.
	config func(context.Context, *Cluster) ([]byte, error)
	// configMap has the configuration for people to see and to change.
	configMap configMap
	args      func(*Cluster) []string
	// probes say whether it is healthy.
	probes []probe
	// watchBinary makes an up restart the component when its program has changed.
	watchBinary bool
}

// probe is a request to one of a component's ports. One with a path has to be answered by 200; one without
// speaks TLS with a certificate of this cluster, as webhook servers do.
type probe struct{ scheme, port, path string }

// components of a cluster with these settings, in the order in which they start.
func components(settings Settings) []component {
	all := []component{etcd, apiServer, controllerManager, scheduler, kwok, jobset, trainer, kueue}
	if !settings.Integration.manager() {
		return all
	}
	ours := kueueTrainer
	if settings.Integration.inTree() {
		// It stands aside, which is to be not ready.
		ours.probes = slices.DeleteFunc(slices.Clone(ours.probes), func(p probe) bool { return p.path == "/readyz" })
	}
	return append(all, ours)
}

func (c *Cluster) components() []component { return components(c.state.Settings) }

// find returns the component with that name.
func (c *Cluster) find(name string) (component, error) {
	var names []string
	for _, comp := range c.components() {
		if comp.name == name {
			return comp, nil
		}
		names = append(names, comp.name)
	}
	return component{}, fmt.Errorf("no component %q in this cluster: it is one of %s", name, strings.Join(names, ", "))
}

// binaries are those that the settings need, and kubectl for people.
func binaries(settings Settings) []build.Binary {
	return slices.DeleteFunc(build.All(settings.Kubernetes, settings.Trainer), func(b build.Binary) bool {
		return (b.Name == build.KueueTrainer || b.Name == build.Plugin) && !settings.Integration.manager()
	})
}

// module is the source of a project at the version that runs here.
func (c *Cluster) module(ctx context.Context, path string) (build.Module, error) {
	for _, bin := range binaries(c.state.Settings) {
		if bin.Module == path {
			return c.Builder.Module(ctx, bin.Dir, path)
		}
	}
	// No program comes of it: it is at the version that Kueue requires.
	return c.Builder.Module(ctx, build.ControlPlaneDir, path)
}

// portNames lists all ports of the cluster as "component/purpose", those of
// kueue-trainer always: TrainJobs can migrate.
func portNames() []string {
	var names []string
	for _, comp := range components(Settings{Integration: External}) {
		for _, purpose := range comp.ports {
			names = append(names, comp.name+"/"+purpose)
		}
	}
	return names
}

// seldomCollects trades memory for a fifth of the control plane's CPU. The managers are measured,
// so they run as they are shipped.
var seldomCollects = []string{"GOGC=400", "GOMEMLIMIT=1500MiB"}

// spec says how to run a component.
func (c *Cluster) spec(comp component) process.Spec {
	// Home is ours so that nobody's ~/.kube or ~/.kwok is read.
	env := []string{"HOME=" + c.Dir}
	if comp.tier == managers {
		env = append(env, "KUBECONFIG="+c.componentKubeconfig(comp.name))
	} else {
		env = append(env, seldomCollects...)
	}
	if comp.name == trainer.name {
		env = append(env, "TMPDIR="+c.certDir(comp.name))
	}
	argv := append([]string{c.binary(comp)}, comp.args(c)...)
	return process.Spec{Argv: argv, Env: env, Log: c.logFile(comp.name)}
}

func (c *Cluster) binary(comp component) string {
	return filepath.Join(c.Builder.BinDir(), build.Program(comp.name, c.state.Settings.Kubernetes, c.state.Settings.Trainer))
}
