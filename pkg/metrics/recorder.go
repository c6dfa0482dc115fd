// SPDX-License-Identifier: Apache-2.0

package metrics

import (
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
