// SPDX-License-Identifier: Apache-2.0

package kueuelib

import (
	"fmt"
	"testing"

	"k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"sigs.k8s.io/kueue/pkg/features"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestUseFeatureGates(t *testing.T) {
	featuregatetesting.SetFeatureGateDuringTest(t, feature.DefaultFeatureGate, features.MultiKueue, true)
	for n := range 10 { // A map has another order each time.
		on := n%2 == 0
		unknown := UseFeatureGates(map[string]bool{"OfTheFuture": true, "OfThePast": false, string(features.MultiKueue): on})
		expect.Same(t, "Unexpected unknown gates", []string{"OfTheFuture", "OfThePast"}, unknown)
		expect.Same(t, fmt.Sprintf("Gate MultiKueue, time %d", n), on, MultiKueueEnabled())
	}
}
