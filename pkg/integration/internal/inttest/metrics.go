// SPDX-License-Identifier: Apache-2.0

package inttest

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// Metrics returns a Recorder that nobody reads.
func Metrics() *metrics.Recorder {
	return metrics.NewRecorder(prometheus.NewRegistry(), metrics.QueueLabels{})
}

// Recorded returns what a registry has: values of counters, and counts of histograms, by name and by
// the values of some labels.
func Recorded(tb testing.TB, registry prometheus.Gatherer, labels ...string) map[string]float64 {
	tb.Helper()
	families := expect.Must(registry.Gather())(tb)
	out := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			names := []string{family.GetName()}
			for _, pair := range metric.Label {
				if slices.Contains(labels, pair.GetName()) {
					names = append(names, pair.GetValue())
				}
			}
			out[strings.Join(names, " ")] += metric.GetCounter().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return out
}
