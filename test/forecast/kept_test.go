// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
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
	k := expect.Must(openKept(path))(t)
	expect.Must(k.forecast("a", func() (forecasted, error) { return first, nil }))(t)

	again := expect.Must(openKept(path))(t)
	expect.Same(t, "Unexpected forecast", first, expect.Must(again.forecast("a", func() (forecasted, error) { return forecasted{}, errors.New("it is made again") }))(t))
	second := expect.Must(again.forecast("b", func() (forecasted, error) { return forecasted{Queued: 7}, nil }))(t)
	expect.Same(t, "Unexpected number of those who wait", 7, second.Queued)
	expect.Same(t, "Unexpected number of forecasts", 2, len(expect.Must(openKept(path))(t).made))
	expect.NoError(t, again.done())
}
