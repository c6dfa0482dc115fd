// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestARunThatWasStoppedGoesOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kept")
	p50 := time.Hour
	first := forecasted{Wait: time.Minute, Band: forecast.Band{P50: &p50, Futures: 30}, Queued: 3}
	openKept(path).forecast("a", func() forecasted { return first })

	again := openKept(path)
	expect.Same(t, "Unexpected forecast", first, again.forecast("a", func() forecasted { t.Error("it is made again"); return forecasted{} }))
	second := again.forecast("b", func() forecasted { return forecasted{Queued: 7} })
	expect.Same(t, "Unexpected number of those who wait", 7, second.Queued)
	expect.Same(t, "Unexpected number of forecasts", 2, len(openKept(path).made))
	expect.NoError(t, again.done())
}
