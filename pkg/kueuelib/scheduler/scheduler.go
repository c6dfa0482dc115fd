// SPDX-License-Identifier: Apache-2.0

// Package scheduler is the one place that imports Kueue's scheduler, its queues and its cache:
// who wants to know what is free, or what becomes of a Workload, asks the code that Kueue itself
// goes by.
//
// world.go is what Workloads compete for. player.go runs Kueue's scheduler on it, cycle by cycle (cycles.go), on a clock and
// a client of its own (virtual.go); consumption.go has what admission fair sharing goes by. contest.go asks it what it decides
// about those who wait, and in which order: look.go reads a cycle off its log, and record.go makes decisions (decision.go)
// of that.
package scheduler

import (
	"sigs.k8s.io/kueue/pkg/cache/scheduler"
)

type (
	// Snapshot is what a Cache holds at one time.
	Snapshot = scheduler.Snapshot
	// ClusterQueue is one of a Snapshot.
	ClusterQueue = scheduler.ClusterQueueSnapshot
	// TopologyRequests are those of a Workload, by flavor.
	TopologyRequests = scheduler.WorkloadTASRequests
)
