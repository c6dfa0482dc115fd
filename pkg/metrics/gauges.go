// SPDX-License-Identifier: Apache-2.0

package metrics

import "github.com/prometheus/client_golang/prometheus"

// Tell tells one value of a metric, by the values of its labels.
type Tell func(m Metric, value float64, labels ...string)

// Scraped is a collector of what is found out at each scrape.
type Scraped struct {
	collect func(Tell)
	descs   map[string]*prometheus.Desc
}

var _ prometheus.Collector = (*Scraped)(nil)

// NewScraped returns a collector of metrics whose values collect tells; it has to be cheap, must
// not block, and may be called by several scrapes at a time.
func NewScraped(collect func(Tell), metrics ...Metric) *Scraped {
	s := &Scraped{collect: collect, descs: map[string]*prometheus.Desc{}}
	for _, m := range metrics {
		s.descs[m.Name] = prometheus.NewDesc(m.Name, help(m), m.Labels, nil)
	}
	return s
}

// Describe implements prometheus.Collector.
func (s *Scraped) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range s.descs {
		descs <- desc
	}
}

// Collect implements prometheus.Collector.
func (s *Scraped) Collect(values chan<- prometheus.Metric) {
	s.collect(func(m Metric, value float64, labels ...string) {
		kind := prometheus.GaugeValue
		if m.Type == Counter {
			kind = prometheus.CounterValue
		}
		values <- prometheus.MustNewConstMetric(s.descs[m.Name], kind, value, labels...)
	})
}

// OneIf returns the value of a gauge that tells whether something is so.
func OneIf(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}
