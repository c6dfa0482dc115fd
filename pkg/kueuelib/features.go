// SPDX-License-Identifier: Apache-2.0

package kueuelib

import (
	"slices"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
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
	for name, on := range gates {
		if utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{name: on}) != nil {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}
