// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
)

// featureGates finds gates of Kueue that kueue-trainer has otherwise, because its own
// configuration sets them, or because Kueue has them from a flag.
func featureGates(f *Facts) []Finding {
	kueues, managers, err := f.settingsInForce()
	if err != nil {
		return nil
	}
	var differ []string
	for _, d := range kueueconfig.GateDifferences(kueues, managers) {
		differ = append(differ, fmt.Sprintf("%s is %t in Kueue and %t in kueue-trainer", strings.TrimPrefix(d.Setting, "featureGates."), d.Kueue, d.Here))
	}
	if len(differ) == 0 {
		return nil
	}
	return []Finding{{
		Severity: Warning, Reason: "FeatureGatesDiffer", Object: f.managerConfigObject(),
		Problem:  fmt.Sprintf("Feature gates differ: %s.", strings.Join(differ, ", ")),
		Effect:   "Gates decide what stands in Workloads and on pods: one side undoes, or does not understand, what the other writes.",
		Commands: []string{f.fixManagerConfig(), managerPart.restart()},
	}}
}

// settings finds settings of Kueue's that kueue-trainer's own configuration overrides with
// other values.
func settings(f *Facts) []Finding {
	kueues, managers, err := f.settingsInForce()
	if err != nil {
		return nil
	}
	var differ []string
	for _, d := range kueueconfig.Differences(kueues, managers) {
		differ = append(differ, d.Setting)
	}
	if len(differ) == 0 {
		return nil
	}
	return []Finding{{
		Severity: Warning, Reason: "SettingsDiffer", Object: f.managerConfigObject(),
		Problem:  fmt.Sprintf("kueue-trainer's configuration overrides Kueue's with other values for %s.", strings.Join(differ, ", ")),
		Effect:   "TrainJobs are treated otherwise than all other jobs.",
		Commands: []string{f.fixManagerConfig(), managerPart.restart()},
	}}
}

// fixManagerConfig is the command that has the manager go by Kueue's settings.
func (f *Facts) fixManagerConfig() string {
	if r := f.release(); r != nil {
		return r.upgrade(configure(f.valuesLikeKueue()))
	}
	return fixManagerConfig
}

// managerConfigObject names the manager's ConfigMap, suffix included.
func (f *Facts) managerConfigObject() string {
	return object("ConfigMap", managerPart.namespace, f.configMap(managerPart).Name)
}
