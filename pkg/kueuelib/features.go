// SPDX-License-Identifier: Apache-2.0

package kueuelib

import (
	"maps"
	"slices"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/kueue/pkg/features"
)

// Names of Kueue's feature gates that its settings depend on.
const (
	CustomMetricLabels      = string(features.CustomMetricLabels)
	DisableWaitForPodsReady = string(features.DisableWaitForPodsReady) //nolint:staticcheck // Kueue 0.19 goes by it
)

// MultiKueueEnabled reports whether Kueue's gate MultiKueue is on in this process.
func MultiKueueEnabled() bool { return features.Enabled(features.MultiKueue) }

// TopologyAwareSchedulingEnabled reports whether Kueue's gate of that name is on in this
// process.
func TopologyAwareSchedulingEnabled() bool { return features.Enabled(features.TopologyAwareScheduling) }

// UseFeatureGates sets Kueue's gates in this process as its configuration does, and returns the names of those that
// it cannot: they are of another release. It is for the plugin, which lives as long as one command.
func UseFeatureGates(gates map[string]bool) (unknown []string) {
	gate := utilfeature.DefaultMutableFeatureGate
	specs := gate.GetAll()
	known := map[string]bool{}
	for name, on := range gates {
		// One that cannot be set is kept all the same, and no other can be set after it.
		if spec, found := specs[featuregate.Feature(name)]; !found || spec.LockToDefault && spec.Default != on {
			unknown = append(unknown, name)
		} else {
			known[name] = on
		}
	}
	if gate.SetFromMap(known) != nil {
		unknown = slices.Collect(maps.Keys(gates))
	}
	slices.Sort(unknown)
	return unknown
}
