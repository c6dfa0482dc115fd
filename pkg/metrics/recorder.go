// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"regexp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Recorder records what happens. It is made once, when the manager is set up, and given to whoever
// has something to record.
type Recorder struct {
	QueueLabels
	// There reports whether there is a LocalQueue; nil: all are there.
	There    func(namespace, name string) bool
	registry prometheus.Registerer

	admittedUntilStarted, startedUntilReady, admittedUntilEnded, evictedUntilStopped *prometheus.HistogramVec
	starts, stops, ungatedPods, writes, webhookRequests                              *prometheus.CounterVec
}

// NewRecorder returns a Recorder whose metrics are in registry, where none of them is yet.
func NewRecorder(registry prometheus.Registerer, labels QueueLabels) *Recorder {
	r := &Recorder{
		QueueLabels: labels, registry: registry,
		admittedUntilStarted: newHistogram(AdmittedUntilStarted),
		startedUntilReady:    newHistogram(StartedUntilReady),
		admittedUntilEnded:   newRunTimes(AdmittedUntilEnded),
		evictedUntilStopped:  newHistogram(EvictedUntilStopped),
		starts:               newCounter(Starts),
		stops:                newCounter(Stops),
		ungatedPods:          newCounter(UngatedPods),
		writes:               newCounter(Writes),
		webhookRequests:      newCounter(WebhookRequests),
	}
	// Pods at the gate are so rare that the first one would be lost on who asks for increases.
	for _, outcome := range []string{UngateFreed, UngateRefused} {
		r.ungatedPods.WithLabelValues(outcome)
	}
	registry.MustRegister(r.admittedUntilStarted, r.startedUntilReady, r.admittedUntilEnded, r.evictedUntilStopped,
		r.starts, r.stops, r.ungatedPods, r.writes, r.webhookRequests)
	return r
}

// Register adds metrics of others to the registry, where none of them is yet.
func (r *Recorder) Register(others ...prometheus.Collector) { r.registry.MustRegister(others...) }

// values returns the values of labels. A LocalQueue that is not there is not named, nor its namespace: nothing would drop
// the series.
func (r *Recorder) values(q Queue, more ...string) []string {
	if r.LocalQueues && r.There != nil && !r.There(q.Namespace, q.LocalQueue) {
		q.Namespace, q.LocalQueue = "", ""
	}
	return r.Values(q, more...)
}

// Started records that a TrainJob was resumed.
func (r *Recorder) Started(q Queue, kind string) {
	r.starts.WithLabelValues(r.values(q, kind)...).Inc()
}

// StartedAfter records how long after its admission a TrainJob was resumed for the first time.
func (r *Recorder) StartedAfter(q Queue, sinceAdmitted time.Duration) {
	r.admittedUntilStarted.WithLabelValues(r.values(q)...).Observe(seconds(sinceAdmitted))
}

// Ready records that all pods of a TrainJob are ready, for the first time since it was resumed.
func (r *Recorder) Ready(q Queue, sinceStarted time.Duration) {
	r.startedUntilReady.WithLabelValues(r.values(q)...).Observe(seconds(sinceStarted))
}

// usualStops are the manager's reasons of stops, and Kueue's that are no rarity.
var usualStops = []string{
	StopByUser, StopTrainJobDeleted, StopRuntimeChanged, StopWorkloadDeleted, StopNotAdmitted, StopNoMatchingWorkload,
	"Preempted", "PodsReadyTimeout", "AdmissionCheck", "ClusterQueueStopped", "LocalQueueStopped", "NodeFailures", "Deactivated",
}

// Runs records that TrainJobs of a queue run of which none may have ended, or been stopped, yet: of a series that begins
// with the first one, who asks for increases would not see that.
func (r *Recorder) Runs(q Queue) {
	queue := r.values(q)
	r.admittedUntilEnded.WithLabelValues(queue...)
	for _, kind := range []string{StartFirst, StartAgain} {
		r.starts.WithLabelValues(append(queue, kind)...)
	}
	for _, reason := range usualStops {
		r.stops.WithLabelValues(append(queue, reason)...)
	}
}

// Ended records how long a TrainJob ran that succeeded or failed.
func (r *Recorder) Ended(q Queue, sinceAdmitted time.Duration) {
	r.admittedUntilEnded.WithLabelValues(r.values(q)...).Observe(seconds(sinceAdmitted))
}

// Stopped records that a TrainJob was suspended while it ran.
func (r *Recorder) Stopped(q Queue, reason string) {
	r.stops.WithLabelValues(r.values(q, reason)...).Inc()
}

// Gone records that an evicted TrainJob has no pod any more and gave its quota back.
func (r *Recorder) Gone(q Queue, sinceEvicted time.Duration) {
	r.evictedUntilStopped.WithLabelValues(r.values(q)...).Observe(seconds(sinceEvicted))
}

// Ungated records what became of a pod at the gate.
func (r *Recorder) Ungated(outcome string) { r.ungatedPods.WithLabelValues(outcome).Inc() }

// Wrote records a request that writes.
func (r *Recorder) Wrote(resource, outcome string) {
	r.writes.WithLabelValues(resource, outcome).Inc()
}

// Answered records the answer of a webhook.
func (r *Recorder) Answered(kind, operation, outcome, reason string) {
	r.webhookRequests.WithLabelValues(kind, operation, outcome, reason).Inc()
}

// ForgetClusterQueue drops what was recorded of a ClusterQueue that is gone.
func (r *Recorder) ForgetClusterQueue(name string) { r.forget(prometheus.Labels{ClusterQueue: name}) }

// ForgetLocalQueue drops what was recorded of a LocalQueue that is gone.
func (r *Recorder) ForgetLocalQueue(namespace, name string) {
	r.forget(prometheus.Labels{Namespace: namespace, LocalQueue: name})
}

func (r *Recorder) forget(queue prometheus.Labels) {
	for _, of := range []*prometheus.MetricVec{
		r.admittedUntilStarted.MetricVec, r.startedUntilReady.MetricVec, r.admittedUntilEnded.MetricVec, r.evictedUntilStopped.MetricVec,
		r.starts.MetricVec, r.stops.MetricVec,
	} {
		of.DeletePartialMatch(queue)
	}
}

// seconds of a time whose ends two clocks may have told.
func seconds(d time.Duration) float64 { return max(0, d.Seconds()) }

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
