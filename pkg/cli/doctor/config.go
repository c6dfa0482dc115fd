// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	cliflag "k8s.io/component-base/cli/flag"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
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
		return nil, f.withoutConfigMap(kueuePart)
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
	return cluster.WithDefaults(cluster.ManagerConfigurationIn(f.configMap(managerPart)))
}

// listsInTree and listsExternal report where Kueue's configuration has TrainJobs.
func listsInTree(cfg *configapi.Configuration) bool {
	return slices.Contains(cfg.Integrations.Frameworks, inTreeFramework)
}

func listsExternal(cfg *configapi.Configuration) bool {
	return slices.Contains(cfg.Integrations.ExternalFrameworks, externalFramework)
}

// kueueGateFlags are the feature gates that Kueue's Deployment sets by a flag, which the
// manager does not see.
func (f *Facts) kueueGateFlags() map[string]bool {
	gates := map[string]bool{}
	d := f.deployment(kueuePart)
	if d == nil {
		return gates
	}
	flag := cliflag.NewMapStringBool(&gates)
	for _, container := range d.Spec.Template.Spec.Containers {
		for _, arg := range slices.Concat(container.Command, container.Args) {
			if list, found := strings.CutPrefix(strings.TrimLeft(arg, "-"), "feature-gates="); found {
				_ = flag.Set(list) // Kueue does not start with what this does not take.
			}
		}
	}
	return gates
}

// managesNamespace reports whether Kueue manages jobs without a queue in a namespace.
func (f *Facts) managesNamespace(cfg *configapi.Configuration, name string) bool {
	selector, _ := metav1.LabelSelectorAsSelector(cfg.ManagedJobsNamespaceSelector) // Who decoded it has looked.
	selected, _ := f.selected(selector, name)
	return cfg.ManageJobsWithoutQueueName && selected
}

// selected reports whether a selector takes a namespace, and whether the namespace is there.
func (f *Facts) selected(selector labels.Selector, name string) (selected, known bool) {
	namespace := inventory.Find(f.Namespaces, "", name)
	return namespace != nil && selector.Matches(labels.Set(namespace.Labels)), namespace != nil
}

// leftOut reports whether Kueue is known to leave a namespace alone: then so does everybody.
func (f *Facts) leftOut(namespace string) bool {
	_, settings, err := f.settingsInForce()
	if err != nil {
		return false
	}
	selected, known := f.selected(settings.NamespaceSelector(), namespace)
	return known && !selected
}
