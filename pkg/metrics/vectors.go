// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Queue is the queue of a TrainJob. Only names of objects that exist belong here: what a tenant
// may make up is no label.
type Queue struct {
	ClusterQueue, Namespace, LocalQueue string
}

// QueueLabels says which labels of a Queue are told.
type QueueLabels struct {
	// LocalQueues leaves namespace and local_queue empty where it is false.
	LocalQueues bool
}

// Values returns the values of labels that begin with those of a queue.
func (l QueueLabels) Values(q Queue, more ...string) []string {
	if !l.LocalQueues {
		q.Namespace, q.LocalQueue = "", ""
	}
	return append([]string{q.ClusterQueue, q.Namespace, q.LocalQueue}, more...)
}

// buckets are for times that people wait: for a write, an image, a grace period, a node.
var buckets = []float64{0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600}

// newHistogram returns the histogram of m, with buckets and as a native one.
func newHistogram(m Metric) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: m.Name, Help: help(m), Buckets: buckets,
		NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100, NativeHistogramMinResetDuration: time.Hour,
	}, m.Labels)
}

// runTimes are buckets for how long jobs run, in seconds: from a minute to 30 days, each about twice the one before.
var runTimes = []float64{
	60, 120, 240, 480, 900, 1800, 3600, 2 * 3600, 4 * 3600, 8 * 3600, 16 * 3600,
	day, 2 * day, 4 * day, 8 * day, 16 * day, 30 * day,
}

const day = 24 * 3600

// newRunTimes returns the histogram of m with buckets of running times. It is no native one: a Prometheus that scrapes
// those may leave the buckets out, and forecasts are made of them.
func newRunTimes(m Metric) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: help(m), Buckets: runTimes}, m.Labels)
}

func newCounter(m Metric) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: help(m)}, m.Labels)
}

func help(m Metric) string { return m.Help + "." }

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

// NoDevice matches, as PromQL does, a whole label resource of what is not counted one by one. All else is something like a GPU:
// a resource that stands for device classes needs no slash in its name.
const NoDevice = "cpu|memory|ephemeral-storage|pods|hugepages-.+"

var noDevice = regexp.MustCompile("^(?:" + NoDevice + ")$")

// IsDevice reports whether a resource is something like a GPU, which is counted one by one.
func IsDevice(resource string) bool { return !noDevice.MatchString(resource) }
