// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/prom"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

// at returns a time some minutes after noon.
func at(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }

// hourAgo is when a ledger began before all that is asked for.
var hourAgo = []float64{unix(-60)}

func unix(minutes int) float64 { return float64(at(minutes).Unix()) }

func TestUsed(t *testing.T) {
	within := func(values ...float64) []sample {
		out := make([]sample, 0, len(values))
		for i, value := range values {
			out = append(out, sample{at(10 * i), value})
		}
		return out
	}
	cases := map[string]struct {
		samples samples
		// began are when the ledger did, known since when Prometheus knows it.
		began []float64
		known bool
		first int
		want  float64
	}{
		"it grows":                   {samples: samples{before: ptr.To(100.0), within: within(100, 120, 150)}, began: hourAgo, known: true, want: 50},
		"it stays":                   {samples: samples{before: ptr.To(100.0), within: within(100, 100)}, began: hourAgo, known: true, want: 0},
		"nobody leads at the end":    {samples: samples{before: ptr.To(100.0), within: within(100, 130)}, began: hourAgo, known: true, want: 30},
		"nobody leads in the window": {samples: samples{before: ptr.To(100.0)}, began: hourAgo, known: true, want: 0},
		"another process tells a little less": {
			samples: samples{before: ptr.To(100.0), within: within(100, 120, 119, 119.5)}, began: hourAgo, known: true, want: 20,
		},
		"a queue is new":                       {samples: samples{within: []sample{{at(30), 7}, {at(40), 9}}}, began: hourAgo, known: true, want: 9},
		"the ledger is new":                    {samples: samples{within: within(0, 5, 9)}, began: []float64{unix(2)}, first: 10, want: 9},
		"Prometheus is new":                    {samples: samples{within: []sample{{at(30), 700}, {at(40), 720}}}, began: hourAgo, first: 30, want: 20},
		"Prometheus is new, and a queue newer": {samples: samples{within: []sample{{at(40), 6}, {at(50), 8}}}, began: hourAgo, first: 30, want: 8},
		"the ledger was lost": {
			samples: samples{before: ptr.To(100.0), within: []sample{{at(0), 100}, {at(10), 130}, {at(22), 130}, {at(30), 4}, {at(40), 9}}},
			began:   []float64{unix(-60), unix(20)}, known: true, want: 39,
		},
		"the ledger was lost just before, and the former process's values are still valid": {
			samples: samples{before: ptr.To(4.0), within: []sample{{at(0), 130}, {at(2), 130}, {at(10), 6}, {at(20), 9}}},
			began:   []float64{unix(-60), unix(-2)}, known: true, want: 5,
		},
		"the ledger was lost, and what is used by now is more than before": {
			samples: samples{before: ptr.To(100.0), within: []sample{{at(0), 100}, {at(10), 110}, {at(30), 300}}},
			began:   []float64{unix(-60), unix(20)}, known: true, want: 310,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fresh := tc.known || !time.Unix(int64(minOf(tc.began)), 0).Before(noon)
			expect.Same(t, "Unexpected use", tc.want, tc.samples.used(epochs(tc.began, tc.known, noon, at(60), prom.Stale), fresh, at(tc.first)))
		})
	}
}

func TestNotes(t *testing.T) {
	cases := map[string]struct {
		began []float64
		known bool
		first int
		want  []string
	}{
		"all is known":      {began: []float64{unix(-60)}, known: true},
		"the ledger is new": {began: []float64{unix(2)}, first: 2},
		"Prometheus is new": {
			began: []float64{unix(-60)}, first: 30,
			want: []string{"Prometheus knows the ledger since 2030-01-01T12:30:00Z only; what was used before is not in the bill"},
		},
		"the ledger was lost": {
			began: []float64{unix(-60), unix(20)}, known: true,
			want: []string{"the ledger was lost and began again at 0 about 2030-01-01T12:25:00Z; what was used just before may not be in the bill"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			fresh := tc.known || !time.Unix(int64(minOf(tc.began)), 0).Before(noon)
			expect.Same(t, "Unexpected notes", tc.want, notes(epochs(tc.began, tc.known, noon, at(60), prom.Stale), fresh, noon, at(tc.first)))
		})
	}
}
