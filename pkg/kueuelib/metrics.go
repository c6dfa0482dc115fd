// SPDX-License-Identifier: Apache-2.0

package kueuelib

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/metrics"
)

// JobMetrics are Kueue's metrics of jobs, which Kueue records, for other kinds, in its own
// process.
func JobMetrics() []prometheus.Collector {
	return []prometheus.Collector{
		metrics.QueuedUntilReadyWaitTime, metrics.AdmittedUntilReadyWaitTime,
		metrics.LocalQueueQueuedUntilReadyWaitTime, metrics.LocalQueueAdmittedUntilReadyWaitTime,
		metrics.WorkloadCreationLatency,
	}
}

// ObserveReady records in Kueue's metrics how long it took until the pods of wl, which is
// admitted, were ready; with ofQueue in those of its LocalQueue, too.
func ObserveReady(wl *kueue.Workload, ofQueue bool) {
	clusterQueue, class := wl.Status.Admission.ClusterQueue, priorityClass(wl)
	admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted)
	queued, admittedFor := queuedFor(wl), time.Since(admitted.LastTransitionTime.Time)
	metrics.ReadyWaitTime(clusterQueue, class, queued, nil, nil)
	metrics.ReportAdmittedUntilReadyWaitTime(clusterQueue, class, admittedFor, nil, nil)
	if !ofQueue {
		return
	}
	queue := metrics.LQRefFromWorkload(wl)
	metrics.LocalQueueReadyWaitTime(queue, class, queued, nil, nil)
	metrics.ReportLocalQueueAdmittedUntilReadyWaitTime(queue, class, admittedFor, nil, nil)
}

// LocalQueueMetrics says of which LocalQueues Kueue's configuration wants metrics.
type LocalQueueMetrics struct {
	config *metrics.LocalQueueMetricsConfig
}

// NewLocalQueueMetrics reads the configuration, which may be nil.
func NewLocalQueueMetrics(cfg *configapi.LocalQueueMetrics) LocalQueueMetrics {
	return LocalQueueMetrics{metrics.NewLocalQueueMetricsConfig(cfg)}
}

// Enabled reports whether it wants those of any.
func (m LocalQueueMetrics) Enabled() bool { return m.config.IsEnabled() }

// Wanted reports whether it wants those of a LocalQueue with these labels.
func (m LocalQueueMetrics) Wanted(labels map[string]string) bool {
	return m.config.ShouldExposeLocalQueueMetrics(labels)
}

// CustomLabelSources returns the labels and annotations of Workloads that metrics carry.
func CustomLabelSources(custom []configapi.ControllerMetricsCustomLabel) (labels, annotations sets.Set[string]) {
	return metrics.WorkloadCustomLabelSources(custom)
}
