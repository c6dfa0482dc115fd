// SPDX-License-Identifier: Apache-2.0

// Package kueuelib is the one place that imports those packages of Kueue which are neither
// its API nor made for integrations, and move with its minor releases: pkg/workload and the
// packages below it (workload.go), pkg/features (features.go), pkg/metrics (metrics.go), its
// arithmetic (amounts.go), and pkg/cache/scheduler and pkg/scheduler (package scheduler below,
// which the manager does not link).
//
// What else is imported of Kueue is its API, jobframework, which integrations are made with,
// and its constants.
package kueuelib
