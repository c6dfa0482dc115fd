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
	// program is the file name of its binary, where versions have their own; else that is name.
	program func(Settings) string
	tier    tier
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
	env       func(*Cluster) []string
	// health are URLs, see healthy.
	health func(*Cluster) []string
	// watchBinary makes an up restart the component when its program has changed.
	watchBinary bool
}

// components of a cluster with these settings, in the order in which they start.
func components(settings Settings) []component {
	all := []component{etcd, apiServer, controllerManager, scheduler, kwok, jobset, trainer, kueue}
	if settings.Integration.manager() {
		all = append(all, kueueTrainer)
	}
	return all
}

func (c *Cluster) components() []component { return components(c.state.Settings) }

// find returns the component with that name.
func (c *Cluster) find(name string) (component, error) {
	if !c.state.exists() {
		return component{}, fmt.Errorf("there is no cluster in %s: run `localcluster up` first", c.Dir)
	}
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
	if path == build.AutoscalerModule {
		// No program comes of it: it is at the version that Kueue requires.
		return c.Builder.Module(ctx, build.ControlPlaneDir, path)
	}
	return c.Builder.ModuleOf(ctx, binaries(c.state.Settings), path)
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
	if comp.tier != managers {
		env = append(env, seldomCollects...)
	}
	if comp.env != nil {
		env = append(env, comp.env(c)...)
	}
	argv := append([]string{c.binary(comp)}, comp.args(c)...)
	return process.Spec{Argv: argv, Env: env, Log: c.logFile(comp.name)}
}

func (c *Cluster) binary(comp component) string {
	name := comp.name
	if comp.program != nil {
		name = comp.program(c.state.Settings)
	}
	return filepath.Join(c.Builder.BinDir(), name)
}

// ofKubernetes is the program of a component of the control plane.
func ofKubernetes(name string) func(Settings) string {
	return func(s Settings) string { return s.Kubernetes.Binary(name) }
}

// ofTrainer is the program that each generation of Trainer has its own of.
func ofTrainer(name string) func(Settings) string {
	return func(s Settings) string { return s.Trainer.Binary(name) }
}
