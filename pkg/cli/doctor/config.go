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
	"sigs.k8s.io/yaml"

	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
)

// How Kueue's configuration names TrainJobs.
const (
	inTreeFramework   = "trainer.kubeflow.org/trainjob"
	externalFramework = "TrainJob.v1alpha1.trainer.kubeflow.org"
	jobSetFramework   = "jobset.x-k8s.io/jobset"
)

// kueueSettings is Kueue's configuration; the error is of one that is not there or is no
// YAML. Fields that this version does not know are left out.
func (f *Facts) kueueSettings() (*configapi.Configuration, error) {
	cm := f.configMap(kueuePart)
	if cm == nil {
		return nil, errors.New(f.withoutConfigMap(kueuePart))
	}
	var cfg configapi.Configuration
	if err := yaml.Unmarshal([]byte(cm.Data[kueuePart.configKey]), &cfg); err != nil {
		return nil, fmt.Errorf("Kueue's configuration cannot be read: %w", err)
	}
	if cfg.Integrations == nil {
		cfg.Integrations = &configapi.Integrations{}
	}
	return &cfg, nil
}

// managerConfiguration is the manager's configuration without its defaults; empty without
// a ConfigMap, and where it cannot be read, with which the manager does not start.
func (f *Facts) managerConfiguration() *managerconfig.Configuration {
	var cfg managerconfig.Configuration
	if cm := f.configMap(managerPart); cm != nil && yaml.Unmarshal([]byte(cm.Data[managerPart.configKey]), &cfg) == nil {
		return &cfg
	}
	return &managerconfig.Configuration{}
}

// listsInTree and listsExternal report where Kueue's configuration has TrainJobs.
func listsInTree(cfg *configapi.Configuration) bool {
	return slices.Contains(cfg.Integrations.Frameworks, inTreeFramework)
}

func listsExternal(cfg *configapi.Configuration) bool {
	return slices.Contains(cfg.Integrations.ExternalFrameworks, externalFramework)
}

// kueueGates are the feature gates that Kueue was given, in its configuration or by a
// flag.
func (f *Facts) kueueGates(cfg *configapi.Configuration) map[string]bool {
	gates := map[string]bool{}
	maps.Copy(gates, cfg.FeatureGates)
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
