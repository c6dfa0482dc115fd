// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"

	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
)

// featureGates finds gates of Kueue that kueue-trainer has otherwise, because its own
// configuration sets them, or because Kueue has them from a flag.
func featureGates(f *Facts, found func(hit)) {
	kueues, managers, _ := f.settingsInForce()
	var differ []string
	for _, d := range kueueconfig.GateDifferences(kueues, managers) {
		differ = append(differ, fmt.Sprintf("%s is %t in Kueue and %t in kueue-trainer", strings.TrimPrefix(d.Setting, "featureGates."), d.Kueue, d.Here))
	}
	f.differing(differ, found)
}

// settings finds settings of Kueue's that kueue-trainer's own configuration overrides with
// other values.
func settings(f *Facts, found func(hit)) {
	kueues, managers, _ := f.settingsInForce()
	var differ []string
	for _, d := range kueueconfig.Differences(kueues, managers) {
		differ = append(differ, d.Setting)
	}
	f.differing(differ, found)
}

// differing is about the manager's ConfigMap, suffix included.
func (f *Facts) differing(settings []string, found func(hit)) {
	if len(settings) > 0 {
		found(about("ConfigMap", managerPart.Namespace, f.configMap(managerPart).Name, "differ", strings.Join(settings, ", "), "fix", f.fixManagerConfig()))
	}
}

// fixManagerConfig is the command that has the manager go by Kueue's settings.
func (f *Facts) fixManagerConfig() string {
	if r := f.release(); r != nil {
		return r.upgrade(configure(f.valuesLikeKueue()))
	}
	return fixManagerConfig
}
