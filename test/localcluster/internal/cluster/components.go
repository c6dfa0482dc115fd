// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/process"
)

// tier is when a component starts: with its tier, once the one before is healthy. Down goes the other way.
type tier int

const (
	storage tier = iota
	api
	// core works with what the API server brings itself.
	core
	// managers need the CustomResourceDefinitions and permissions to be installed.
	managers
)

type component struct {
	// name is also that of its user, its log and its configuration.
	name string
	tier tier
	// ports it listens on, by purpose.
	ports []string
	// groups of its user.
	groups []string
	// servingNames are those besides loopback's that its certificate, if it serves by TLS, must be valid for.
	servingNames []string
	// config makes config/NAME.yaml, if there is one.
	config    func(context.Context, *Cluster) []byte
	configMap configMap
	args      func(*Cluster) []string
	probes    []probe
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

func (c *Cluster) find(name string) component {
	var names []string
	for _, comp := range c.components() {
		if comp.name == name {
			return comp
		}
		names = append(names, comp.name)
	}
	attempt.Fail("no component %q in this cluster: it is one of %s", name, strings.Join(names, ", "))
	return component{}
}

// binaries are those that the settings need, and kubectl for people.
func binaries(settings Settings) []build.Binary {
	return slices.DeleteFunc(build.All(settings.Kubernetes, settings.Trainer), func(b build.Binary) bool {
		return (b.Name == build.KueueTrainer || b.Name == build.Plugin) && !settings.Integration.manager()
	})
}

// module is the source of a project at the version that runs here.
func (c *Cluster) module(ctx context.Context, path string) build.Module {
	for _, bin := range binaries(c.state.Settings) {
		if bin.Module == path {
			return c.Module(ctx, bin.Dir, path)
		}
	}
	// No program comes of it: it is at the version that Kueue requires.
	return c.Module(ctx, build.ControlPlaneDir, path)
}

// seldomCollects trades memory for a fifth of the control plane's CPU. Managers, which are measured, run as shipped.
var seldomCollects = []string{"GOGC=400", "GOMEMLIMIT=1500MiB"}

func (c *Cluster) spec(comp component) process.Spec {
	// Home is ours so that nobody's ~/.kube or ~/.kwok is read.
	env := []string{"HOME=" + c.Dir}
	if comp.tier == managers {
		// Trainer looks for its certificate below the directory for temporary files: its configuration cannot say where.
		env = append(env, "KUBECONFIG="+c.componentKubeconfig(comp.name), "TMPDIR="+c.certDir(comp.name))
	} else {
		env = append(env, seldomCollects...)
	}
	argv := append([]string{c.binary(comp)}, comp.args(c)...)
	config, _ := os.ReadFile(c.configFile(comp.name)) // Not all have one.
	return process.Spec{Argv: argv, Env: env, Log: c.logFile(comp.name), Config: fmt.Sprintf("%x", sha256.Sum256(config))}
}

func (c *Cluster) binary(comp component) string {
	return filepath.Join(c.BinDir(), build.Program(comp.name, c.state.Settings.Kubernetes, c.state.Settings.Trainer))
}

// Names of Kueue's configuration for who integrates TrainJobs.
const (
	inTreeFramework   = "trainer.kubeflow.org/trainjob"
	jobSetFramework   = "jobset.x-k8s.io/jobset"
	externalFramework = "TrainJob.v1alpha1.trainer.kubeflow.org"
	inTreeKind        = "TrainJob.trainer.kubeflow.org"
)

var (
	jobset = manager(component{name: build.JobSetManager}, "jobset-system", configureJobSet,
		build.JobSetModule, "config/components/manager/controller_manager_config.yaml")
	trainer = manager(component{name: build.TrainerManager}, "kubeflow-system", configureTrainer,
		build.TrainerModule, "manifests/base/manager/controller_manager_config.yaml")
	kueue = manager(component{name: "kueue", configMap: kueueConfigMap, servingNames: []string{"kueue-webhook-service.kueue-system.svc"}},
		"kueue-system", configureKueue, build.KueueModule, "config/components/manager/controller_manager_config.yaml", "--zap-log-level=2")
	kueueTrainer = manager(component{name: build.KueueTrainer, configMap: kueueTrainerConfigMap}, "kueue-trainer-system", configureKueueTrainer, "", "")
)

// manager is a controller manager with webhooks, whose config/NAME.yaml is a file of a module with changes.
func manager(comp component, namespace string, change func(*Cluster, fields), module, file string, args ...string) component {
	comp.tier = managers
	comp.ports = []string{"health", "metrics", "webhook"}
	// The groups of its ServiceAccount: the API server's flow control treats it as it would in a pod.
	comp.groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
	comp.config = func(ctx context.Context, c *Cluster) []byte {
		config := c.shippedConfig(ctx, module, file)
		config.listen(c, comp.name)
		change(c, config)
		return attempt.Must(yaml.Marshal(config))
	}
	comp.args = func(c *Cluster) []string { return append([]string{"--config=" + c.configFile(comp.name)}, args...) }
	comp.probes = []probe{{"http", "health", "/healthz"}, {"http", "health", "/readyz"}, {"https", "webhook", ""}}
	return comp
}

// configureKueue keeps Kueue's own certificate management on: without it Kueue wants certificates for its metrics in /etc.
// It finds everything in place and valid, see kueueSecret, so it has nothing to do.
func configureKueue(c *Cluster, config fields) {
	if !c.state.Settings.Integration.inTree() {
		ExternalTrainJobs(config)
	}
	if c.state.Settings.Dispatches {
		dispatch(config, c.state.Settings.Integration)
	}
	// The visibility server has a fixed port and a certificate directory at the root of the file system.
	config.set(map[string]any{"VisibilityOnDemand": false}, "featureGates")
	if workers := c.state.Settings.InTreeWorkers; workers > 0 {
		config.set(int64(workers), "controller", "groupKindConcurrency", inTreeKind)
	}
	config.set(true, "internalCertManagement", "enable")
	config.set(c.certDir("kueue"), "webhook", "certDir")
}

// ExternalTrainJobs has Kueue leave TrainJobs to others, as docs/install.md says where nobody queues JobSets of his own.
func ExternalTrainJobs(config fields) {
	frameworks, _, _ := unstructured.NestedSlice(config, "integrations", "frameworks")
	config.set(slices.DeleteFunc(frameworks, func(f any) bool { return f == inTreeFramework || f == jobSetFramework }), "integrations", "frameworks")
	config.set([]any{externalFramework}, "integrations", "externalFrameworks")
}

// dispatch sets Kueue up as the manager of a fleet. It watches every kind that it could hand to
// a worker and takes a worker that lacks one, or the permission, for lost: so there is TrainJob
// and, because an empty list means the same, batch/job. Times are short, for specs that lose a worker.
func dispatch(config fields, integration Integration) {
	frameworks := []any{"batch/job"}
	if integration.inTree() {
		frameworks = append(frameworks, inTreeFramework)
	} else {
		config.set([]any{map[string]any{"name": externalFramework}}, "multiKueue", "externalFrameworks")
	}
	config.set(frameworks, "integrations", "frameworks")
	config.set("10s", "multiKueue", "gcInterval")
	config.set("10s", "multiKueue", "workerLostTimeout")
}

func configureJobSet(c *Cluster, config fields) {
	config.set(false, "internalCertManagement", "enable")
	config.set(c.certDir("jobset"), "webhook", "certDir")
	config.set(c.certDir("jobset"), "metrics", "certDir")
}

func configureTrainer(_ *Cluster, config fields) {
	config.set(false, "certManagement", "enable")
	config.set(false, "metrics", "secureServing")
}

func configureKueueTrainer(c *Cluster, config fields) {
	config.set("config.kueue-trainer.dev/v1alpha1", "apiVersion")
	config.set("Configuration", "kind")
	config.set(false, "internalCertManagement", "enable")
	config.set(true, "metrics", "pprof")
	config.set(c.certDir(build.KueueTrainer), "webhook", "certDir")
	// On, so that the permissions for it are proven.
	for field, value := range map[string]any{
		"leaderElect": true, "leaseDuration": lease.String(), "renewDeadline": (lease * 5 / 6).String(), "retryPeriod": (lease / 6).String(),
	} {
		config.set(value, "leaderElection", field)
	}
	// A rule for specs, of an accelerator that nobody makes.
	config.set([]any{map[string]any{
		"resources":   []any{"example.com/*"},
		"tolerations": []any{map[string]any{"key": "example.com/npu", "operator": "Exists", "effect": "NoSchedule"}},
	}}, "tolerationRules")
}

// fields is a configuration of any of the managers. They all follow the same shape.
type fields map[string]any

func (f fields) set(value any, path ...string) {
	attempt.Succeed(unstructured.SetNestedField(f, value, path...), "configuration field %v", path)
}

// listen moves all servers to the ports of this cluster. With leader election a killed manager would be away for 15 s.
func (f fields) listen(c *Cluster, name string) {
	f.set(c.address(name, "health"), "health", "healthProbeBindAddress")
	f.set(c.address(name, "metrics"), "metrics", "bindAddress")
	f.set("127.0.0.1", "webhook", "host")
	f.set(int64(c.port(name, "webhook")), "webhook", "port")
	f.set(false, "leaderElection", "leaderElect")
}

// shippedConfig reads a configuration that a project ships; this one ships none.
func (c *Cluster) shippedConfig(ctx context.Context, module, file string) fields {
	config := fields{}
	if module == "" {
		return config
	}
	content := attempt.Must(os.ReadFile(filepath.Join(c.module(ctx, module).Dir, file)))
	attempt.Succeed(yaml.Unmarshal(content, &config), "%s of %s", file, module)
	return config
}
