// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
)

// How Kueue's configuration names TrainJobs.
const (
	inTreeFramework   = kueueconfig.InTreeFramework
	externalFramework = "TrainJob.v1alpha1.trainer.kubeflow.org"
	jobSetFramework   = "jobset.x-k8s.io/jobset"
)

// kueueSettings is Kueue's configuration with its defaults; the error is of one that is not
// there or cannot be decoded. Fields that this version does not know are left out.
func (f *Facts) kueueSettings() (*configapi.Configuration, error) {
	cm := f.configMap(kueuePart)
	if cm == nil {
		return nil, errors.New(f.withoutConfigMap(kueuePart))
	}
	cfg, err := kueueconfig.Decode([]byte(cm.Data[f.at(kueuePart).configKey]), cm.Namespace)
	if err != nil {
		return nil, fmt.Errorf("Kueue's configuration cannot be read: %w", err)
	}
	return cfg, nil
}

// settingsInForce returns the settings that Kueue goes by, and those that the manager goes
// by: Kueue's, as its ConfigMap has them, under the manager's own overrides.
func (f *Facts) settingsInForce() (kueues, managers *kueueconfig.Settings, err error) {
	cfg, err := f.kueueSettings()
	if err != nil {
		return nil, nil, err
	}
	running := cfg.DeepCopy()
	running.FeatureGates = map[string]bool{}
	maps.Copy(running.FeatureGates, cfg.FeatureGates)
	maps.Copy(running.FeatureGates, f.kueueGateFlags())
	// Gates that this version does not know have the same value on both sides.
	kueues, _ = kueueconfig.Of(running, kueueconfig.Overrides{})
	managers, _ = kueueconfig.Of(cfg, f.managerConfiguration().Overrides)
	return kueues, managers, nil
}

// managerConfiguration is the manager's configuration with its defaults; these alone without
// a ConfigMap, and where it cannot be read, with which the manager does not start.
func (f *Facts) managerConfiguration() *managerconfig.Configuration {
	cfg := cluster.ManagerConfigurationIn(f.configMap(managerPart))
	if cfg == nil {
		cfg = &managerconfig.Configuration{}
		managerconfig.Default(cfg)
	}
	return cfg
}

// listsInTree and listsExternal report where Kueue's configuration has TrainJobs.
func listsInTree(cfg *configapi.Configuration) bool {
	return slices.Contains(cfg.Integrations.Frameworks, inTreeFramework)
}

func listsExternal(cfg *configapi.Configuration) bool {
	return slices.Contains(cfg.Integrations.ExternalFrameworks, externalFramework)
}

// dispatches reports whether Kueue hands TrainJobs of kueue-trainer to workers of MultiKueue.
func dispatches(cfg *configapi.Configuration) bool {
	return cfg.MultiKueue != nil && slices.ContainsFunc(cfg.MultiKueue.ExternalFrameworks,
		func(e configapi.MultiKueueExternalFramework) bool { return e.Name == externalFramework })
}

// kueueGateFlags are the feature gates that Kueue's Deployment sets by a flag, which the
// manager does not see.
func (f *Facts) kueueGateFlags() map[string]bool {
	gates := map[string]bool{}
	d := f.deployment(kueuePart)
	if d == nil {
		return gates
	}
	for _, container := range d.Spec.Template.Spec.Containers {
		for _, arg := range slices.Concat(container.Command, container.Args) {
			list, found := strings.CutPrefix(strings.TrimLeft(arg, "-"), "feature-gates=")
			for pair := range strings.SplitSeq(list, ",") {
				name, value, _ := strings.Cut(strings.TrimSpace(pair), "=")
				if on, err := strconv.ParseBool(value); found && err == nil {
					gates[name] = on
				}
			}
		}
	}
	return gates
}
