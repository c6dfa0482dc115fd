// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	// Registers Kueue's gates with their defaults.
	_ "sigs.k8s.io/kueue/pkg/features"
)

// featureGates finds gates of Kueue that kueue-trainer has otherwise. One that is not set
// has the default of the Kueue that this program is built with.
func featureGates(f *Facts) []Finding {
	cfg, err := f.kueueSettings()
	if err != nil {
		return nil
	}
	kueues, own := f.kueueGates(cfg), f.managerConfiguration().FeatureGates
	names := maps.Clone(kueues)
	maps.Copy(names, own)
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		there, known := gate(kueues, name)
		here, knownHere := gate(own, name)
		if known && knownHere && there != here {
			differ = append(differ, fmt.Sprintf("%s is %t in Kueue and %t in kueue-trainer", name, there, here))
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return []Finding{{
		Severity: Warning, Reason: "FeatureGatesDiffer", Object: f.managerConfigObject(),
		Problem:  fmt.Sprintf("Feature gates differ: %s.", strings.Join(differ, ", ")),
		Effect:   "Gates decide what stands in Workloads and on pods: one side undoes, or does not understand, what the other writes.",
		Commands: []string{mendManagerConfig, managerPart.restart()},
	}}
}

// gate tells whether a gate is on, and whether that is known.
func gate(set map[string]bool, name string) (on, known bool) {
	if on, found := set[name]; found {
		return on, true
	}
	spec, known := utilfeature.DefaultMutableFeatureGate.GetAll()[featuregate.Feature(name)]
	return spec.Default, known
}

// settings finds fields that both configurations have and that mean the same, with
// different values.
func settings(f *Facts) []Finding {
	cfg, err := f.kueueSettings()
	if err != nil {
		return nil
	}
	own := f.managerConfiguration()
	var differ []string
	for _, setting := range []struct {
		name        string
		there, here any
	}{
		{"manageJobsWithoutQueueName", cfg.ManageJobsWithoutQueueName, own.ManageJobsWithoutQueueName},
		{"managedJobsNamespaceSelector", cfg.ManagedJobsNamespaceSelector, own.ManagedJobsNamespaceSelector},
		{"waitForPodsReady", cfg.WaitForPodsReady, own.WaitForPodsReady},
		{"objectRetentionPolicies", cfg.ObjectRetentionPolicies, own.ObjectRetentionPolicies},
		{"integrations.labelKeysToCopy", cfg.Integrations.LabelKeysToCopy, own.Integrations.LabelKeysToCopy},
	} {
		if !equality.Semantic.DeepEqual(setting.there, setting.here) {
			differ = append(differ, setting.name)
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return []Finding{{
		Severity: Warning, Reason: "SettingsDiffer", Object: f.managerConfigObject(),
		Problem:  fmt.Sprintf("Kueue's configuration and kueue-trainer's have different values for %s.", strings.Join(differ, ", ")),
		Effect:   "TrainJobs are treated otherwise than all other jobs.",
		Commands: []string{mendManagerConfig, managerPart.restart()},
	}}
}

// managerConfigObject names the manager's ConfigMap, suffix included.
func (f *Facts) managerConfigObject() string {
	return object("ConfigMap", managerPart.namespace, f.configMap(managerPart).Name)
}
