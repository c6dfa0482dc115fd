// SPDX-License-Identifier: Apache-2.0

// Package scheduler is the one place that imports Kueue's scheduler, its cache, flavor
// assigner and preemptor: who wants to know what is free, or what becomes of a Workload, asks
// the code that Kueue itself goes by.
package scheduler

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/util/tas"
)

type (
	// Snapshot is what a Cache holds at one time.
	Snapshot = scheduler.Snapshot
	// ClusterQueue is one of a Snapshot.
	ClusterQueue = scheduler.ClusterQueueSnapshot
	// TopologyRequests are those of a Workload, by flavor.
	TopologyRequests = scheduler.WorkloadTASRequests
)

// PlacedByTopology reports whether Kueue has placed pod by a topology.
func PlacedByTopology(pod *corev1.Pod) bool { return tas.IsTAS(pod) }
