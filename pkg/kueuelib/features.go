// SPDX-License-Identifier: Apache-2.0

package kueuelib

import "sigs.k8s.io/kueue/pkg/features"

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
