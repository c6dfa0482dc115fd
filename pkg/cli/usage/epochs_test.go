// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func at(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }

func sample(minutes int, value float64) model.SamplePair {
	return model.SamplePair{Timestamp: model.TimeFromUnixNano(at(minutes).UnixNano()), Value: model.SampleValue(value)}
}

func TestUsed(t *testing.T) {
	within := func(values ...float64) []model.SamplePair {
		var out []model.SamplePair
		for i, value := range values {
			out = append(out, sample(10*i, value))
		}
		return out
	}
	// known has Prometheus know a ledger before the window that began an hour before that, and again at these minutes.
	known := func(again ...int) window {
		w := window{known: true, first: noon, began: []time.Time{at(-60)}}
		for _, minutes := range again {
			w.began = append(w.began, at(minutes))
		}
		return w
	}
	// since has it know a ledger since a minute of the window.
	since := func(began, first int) window { return window{began: []time.Time{at(began)}, first: at(first)} }
	lost := "the ledger was lost and began again at 0 about 2030-01-01T12:25:00Z; what was used just before may not be in the bill"
	late := "Prometheus knows the ledger since 2030-01-01T12:30:00Z only; what was used before is not in the bill"
	type row struct {
		samples samples
		window  window
		want    float64
		notes   []string
	}
	expect.Rows(t, map[string]row{
		"it grows":                            {samples: samples{before: new(100.0), within: within(100, 120, 150)}, window: known(), want: 50},
		"it stays":                            {samples: samples{before: new(100.0), within: within(100, 100)}, window: known(), want: 0},
		"nobody leads at the end":             {samples: samples{before: new(100.0), within: within(100, 130)}, window: known(), want: 30},
		"nobody leads in the window":          {samples: samples{before: new(100.0)}, window: known(), want: 0},
		"another process tells a little less": {samples: samples{before: new(100.0), within: within(100, 120, 119, 119.5)}, window: known(), want: 20},
		"a queue is new":                      {samples: samples{within: []model.SamplePair{sample(30, 7), sample(40, 9)}}, window: known(), want: 9},
		"the ledger is new":                   {samples: samples{within: within(0, 5, 9)}, window: since(2, 10), want: 9},
		"Prometheus is new": {samples: samples{within: []model.SamplePair{sample(30, 700), sample(40, 720)}}, window: since(-60, 30), want: 20,
			notes: []string{late}},
		"Prometheus is new, and a queue newer": {samples: samples{within: []model.SamplePair{sample(40, 6), sample(50, 8)}}, window: since(-60, 30), want: 8,
			notes: []string{late}},
		"the ledger was lost": {samples: samples{before: new(100.0), within: []model.SamplePair{sample(0, 100), sample(10, 130), sample(22, 130), sample(30, 4), sample(40, 9)}},
			window: known(20), want: 39, notes: []string{lost}},
		"the ledger was lost just before, and the former process's values are still valid": {samples: samples{before: new(4.0), within: []model.SamplePair{sample(0, 130), sample(2, 130), sample(10, 6), sample(20, 9)}},
			window: known(-2), want: 5},
		"the ledger was lost, and what is used by now is more than before": {samples: samples{before: new(100.0), within: []model.SamplePair{sample(0, 100), sample(10, 110), sample(30, 300)}},
			window: known(20), want: 310, notes: []string{lost}},
	}, func(t *testing.T, tc row) {
		tc.window.from, tc.window.to = noon, at(60)
		expect.Same(t, "Unexpected use", tc.want, tc.samples.used(&tc.window))
		expect.Same(t, "Unexpected notes", tc.notes, tc.window.notes())
	})
}
