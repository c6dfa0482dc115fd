// SPDX-License-Identifier: Apache-2.0

package kueueconfig

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// KnowsGate reports whether a feature gate is one of the Kueue that this program is built with.
func KnowsGate(name string) bool {
	_, known := utilfeature.DefaultMutableFeatureGate.GetAll()[featuregate.Feature(name)]
	return known
}

// resolve returns the value of every gate where some are set. Gates that are not known, or
// are locked, are in the error and change nothing.
func resolve(set map[string]bool) (map[string]bool, error) {
	gates := utilfeature.DefaultMutableFeatureGate.DeepCopyAndReset()
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(set)) {
		// One that is refused is kept all the same, and would refuse those after it.
		with := gates.DeepCopy()
		if err := with.SetFromMap(map[string]bool{name: set[name]}); err != nil {
			errs = append(errs, fmt.Errorf("featureGates: %w", err))
			continue
		}
		gates = with
	}
	values := map[string]bool{}
	for name := range gates.GetAll() {
		values[string(name)] = gates.Enabled(name)
	}
	return values, errors.Join(errs...)
}

// UseGates sets Kueue's gates in this process as its configuration does. The error is of those that are left out. It is for
// the plugin, which lives as long as one command.
func UseGates(set map[string]bool) error {
	values, err := resolve(set)
	return errors.Join(err, applyGates(values))
}

// applyGates brings the gates of this process to values. Those that have them already are
// not touched: Kueue's code reads them meanwhile. Nor is that of labels of metrics, which goes
// with the metrics that this process has made.
func applyGates(values map[string]bool) error {
	gates := utilfeature.DefaultMutableFeatureGate
	change := map[string]bool{}
	for name, value := range values {
		if name != kueuelib.CustomMetricLabels && gates.Enabled(featuregate.Feature(name)) != value {
			change[name] = value
		}
	}
	if len(change) == 0 {
		return nil
	}
	if err := gates.SetFromMap(change); err != nil {
		return fmt.Errorf("featureGates: %w", err)
	}
	return nil
}
