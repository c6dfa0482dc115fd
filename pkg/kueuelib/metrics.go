// SPDX-License-Identifier: Apache-2.0

package kueuelib

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/metrics"
	utilqueue "sigs.k8s.io/kueue/pkg/util/queue"
	"sigs.k8s.io/kueue/pkg/workload"
	workloadpatching "sigs.k8s.io/kueue/pkg/workload/patching"
)

// JobMetrics are Kueue's metrics of jobs, which Kueue records, for other kinds, in its own process.
func JobMetrics() []prometheus.Collector {
	return []prometheus.Collector{
		metrics.QueuedUntilReadyWaitTime, metrics.AdmittedUntilReadyWaitTime,
		metrics.LocalQueueQueuedUntilReadyWaitTime, metrics.LocalQueueAdmittedUntilReadyWaitTime,
		metrics.WorkloadCreationLatency,
		metrics.EvictedWorkloadsTotal, metrics.LocalQueueEvictedWorkloadsTotal,
		metrics.EvictedWorkloadsOnceTotal, metrics.PodsReadyToEvictedTimeSeconds,
	}
}

// CustomLabels are the labels that Kueue's configuration gives to its metrics of queues, and their values. Nil has none.
type CustomLabels = metrics.CustomLabels

// NewCustomLabels recreates Kueue's metrics of this process with these labels. Nothing may be
// recorded or registered before. None of them is nil.
func NewCustomLabels(custom []configapi.ControllerMetricsCustomLabel) (*CustomLabels, error) {
	if len(custom) == 0 {
		return nil, nil
	}
	// Metrics keep the labels that they are made with, and Kueue's code leaves the values out
	// where the gate is off: for this process it is on from here to the end.
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{CustomMetricLabels: true}); err != nil {
		return nil, err
	}
	return metrics.NewCustomLabels(custom), nil
}

// StoreQueue has labels take the values of a ClusterQueue or LocalQueue.
func StoreQueue(labels *CustomLabels, queue client.Object) {
	switch q := queue.(type) {
	case *kueue.ClusterQueue:
		labels.CQStore(kueue.ClusterQueueReference(q.Name), q.Labels, q.Annotations)
	case *kueue.LocalQueue:
		labels.LQStore(utilqueue.Key(q), q.Labels, q.Annotations)
	}
}

// ObserveReady records in Kueue's metrics how long it took until the pods of wl, which is
// admitted, were ready; with ofQueue in those of its LocalQueue, too.
func ObserveReady(wl *kueue.Workload, ofQueue bool, labels *CustomLabels) {
	clusterQueue, class := wl.Status.Admission.ClusterQueue, workloadpatching.PriorityClassName(wl)
	admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted)
	queued, admittedFor := workload.QueuedWaitTime(wl, clock.RealClock{}), time.Since(admitted.LastTransitionTime.Time)
	values := labels.CQGet(clusterQueue)
	metrics.ReadyWaitTime(clusterQueue, class, queued, values, nil)
	metrics.ReportAdmittedUntilReadyWaitTime(clusterQueue, class, admittedFor, values, nil)
	if !ofQueue {
		return
	}
	queue, values := metrics.LQRefFromWorkload(wl), labels.LQGet(utilqueue.KeyFromWorkload(wl))
	metrics.LocalQueueReadyWaitTime(queue, class, queued, values, nil)
	metrics.ReportLocalQueueAdmittedUntilReadyWaitTime(queue, class, admittedFor, values, nil)
}

// ForgetClusterQueue drops what Kueue's metrics of this process have of a ClusterQueue that is gone, as Kueue does with its own.
func ForgetClusterQueue(name string) {
	metrics.ClearClusterQueueMetrics(kueue.ClusterQueueReference(name))
}

// ForgetLocalQueue drops what they have of a LocalQueue that is gone.
func ForgetLocalQueue(namespace, name string) {
	metrics.ClearLocalQueueMetrics(metrics.LocalQueueReference{Namespace: namespace, Name: kueue.LocalQueueName(name)})
}

// NewLocalQueueMetrics returns what says of which LocalQueues Kueue's configuration, which may be nil, wants metrics.
var NewLocalQueueMetrics = metrics.NewLocalQueueMetricsConfig

// CustomLabelSources returns the labels and annotations of Workloads that metrics carry.
var CustomLabelSources = metrics.WorkloadCustomLabelSources
