// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
)

// Names of Kueue's configuration for who integrates TrainJobs.
const (
	inTreeFramework   = "trainer.kubeflow.org/trainjob"
	jobSetFramework   = "jobset.x-k8s.io/jobset"
	externalFramework = "TrainJob.v1alpha1.trainer.kubeflow.org"
	inTreeKind        = "TrainJob.trainer.kubeflow.org"
)

// trainerCertDir is where Trainer looks for its certificate below $TMPDIR, since its
// configuration cannot say.
const trainerCertDir = "k8s-webhook-server/serving-certs"

var (
	jobset  = manager(component{name: build.JobSetManager, config: jobsetConfig, watchBinary: true}, "jobset-system")
	trainer = manager(component{name: build.TrainerManager, config: trainerConfig, watchBinary: true}, "kubeflow-system")
	kueue   = manager(component{name: "kueue", config: kueueConfig, configMap: kueueConfigMap,
		servingNames: []string{"kueue-webhook-service.kueue-system.svc"}}, "kueue-system", "--zap-log-level=2")
	kueueTrainer = manager(component{name: build.KueueTrainer, config: kueueTrainerConfig, configMap: kueueTrainerConfigMap,
		watchBinary: true}, "kueue-trainer-system")
)

// manager is a controller manager with webhooks that reads config/NAME.yaml.
func manager(comp component, namespace string, args ...string) component {
	comp.tier = managers
	comp.ports = []string{"health", "metrics", "webhook"}
	// The groups of its ServiceAccount: the API server's flow control treats it as it would in a pod.
	comp.groups = []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace}
	comp.serving = true
	comp.args = func(c *Cluster) []string { return append([]string{"--config=" + c.configFile(comp.name)}, args...) }
	comp.probes = []probe{{"http", "health", "/healthz"}, {"http", "health", "/readyz"}, {"https", "webhook", ""}}
	return comp
}

// kueueConfig keeps Kueue's own certificate management on: without it Kueue wants
// certificates for its metrics in /etc. It finds everything in place and valid, see
// kueueSecret, so it has nothing to do.
func kueueConfig(ctx context.Context, c *Cluster) ([]byte, error) {
	return c.shippedConfig(ctx, build.KueueModule, "config/components/manager/controller_manager_config.yaml", func(config fields) error {
		if !c.state.Settings.Integration.inTree() {
			if err := ExternalTrainJobs(config); err != nil {
				return err
			}
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
		config.listen(c, "kueue")
		return nil
	})
}

// ExternalTrainJobs tells a configuration of Kueue that TrainJobs are managed outside, as docs/install.md has it:
// nobody queues JobSets of his own.
func ExternalTrainJobs(config map[string]any) error {
	frameworks, _, err := unstructured.NestedStringSlice(config, "integrations", "frameworks")
	if err != nil {
		return err
	}
	frameworks = slices.DeleteFunc(frameworks, func(f string) bool { return f == inTreeFramework || f == jobSetFramework })
	fields(config).set([]any{externalFramework}, "integrations", "externalFrameworks")
	return unstructured.SetNestedStringSlice(config, frameworks, "integrations", "frameworks")
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

func jobsetConfig(ctx context.Context, c *Cluster) ([]byte, error) {
	return c.shippedConfig(ctx, build.JobSetModule, "config/components/manager/controller_manager_config.yaml", func(config fields) error {
		config.set(false, "internalCertManagement", "enable")
		config.set(c.certDir("jobset"), "webhook", "certDir")
		config.set(c.certDir("jobset"), "metrics", "certDir")
		config.listen(c, "jobset")
		return nil
	})
}

func trainerConfig(ctx context.Context, c *Cluster) ([]byte, error) {
	return c.shippedConfig(ctx, build.TrainerModule, "manifests/base/manager/controller_manager_config.yaml", func(config fields) error {
		config.set(false, "certManagement", "enable")
		config.set(false, "metrics", "secureServing")
		config.listen(c, "trainer")
		return nil
	})
}

func kueueTrainerConfig(_ context.Context, c *Cluster) ([]byte, error) {
	config := fields{"apiVersion": "config.kueue-trainer.dev/v1alpha1", "kind": "Configuration"}
	config.set(false, "internalCertManagement", "enable")
	config.set(true, "metrics", "pprof")
	config.set(c.certDir(build.KueueTrainer), "webhook", "certDir")
	config.listen(c, build.KueueTrainer)
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
	return yaml.Marshal(config)
}

// fields is a configuration of any of the managers. They all follow the same shape.
type fields map[string]any

func (f fields) set(value any, path ...string) {
	if err := unstructured.SetNestedField(f, value, path...); err != nil {
		panic(fmt.Sprintf("configuration field %v: %v", path, err)) // it is a scalar where we expect a map
	}
}

// listen moves all servers to the ports of this cluster. Leader election is off: a
// manager that was killed would come back only after its lease of 15 s has run out.
func (f fields) listen(c *Cluster, name string) {
	f.set(c.address(name, "health"), "health", "healthProbeBindAddress")
	f.set(c.address(name, "metrics"), "metrics", "bindAddress")
	f.set("127.0.0.1", "webhook", "host")
	f.set(int64(c.port(name, "webhook")), "webhook", "port")
	f.set(false, "leaderElection", "leaderElect")
}

// shippedConfig changes the configuration file that a project ships.
func (c *Cluster) shippedConfig(ctx context.Context, modulePath, file string, change func(fields) error) ([]byte, error) {
	module, err := c.module(ctx, modulePath)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(module.Dir, file)
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	config := fields{}
	if err := yaml.Unmarshal(content, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := change(config); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return yaml.Marshal(config)
}
