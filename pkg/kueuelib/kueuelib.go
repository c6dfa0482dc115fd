// SPDX-License-Identifier: Apache-2.0

// Package kueuelib is the one place that imports those packages of Kueue which are neither its API nor made for
// integrations, and move with its minor releases: pkg/workload and the packages below it (workload.go), pkg/metrics
// (metrics.go), pkg/features, its arithmetic (both here), and pkg/cache/scheduler and pkg/scheduler (package scheduler
// below, which the manager does not link).
//
// What else is imported of Kueue is its API, jobframework, which integrations are made with, and its constants.
package kueuelib

import (
	"sigs.k8s.io/kueue/pkg/features"
	"sigs.k8s.io/kueue/pkg/podset"
	"sigs.k8s.io/kueue/pkg/resources"
	"sigs.k8s.io/kueue/pkg/util/api"
	clientutil "sigs.k8s.io/kueue/pkg/util/client"
	"sigs.k8s.io/kueue/pkg/util/math"
	"sigs.k8s.io/kueue/pkg/util/priority"
	"sigs.k8s.io/kueue/pkg/util/resource"
	utilslices "sigs.k8s.io/kueue/pkg/util/slices"
	"sigs.k8s.io/kueue/pkg/util/taints"
	"sigs.k8s.io/kueue/pkg/util/tas"
	"sigs.k8s.io/kueue/pkg/util/tolerations"
)

type (
	// FlavorResource is a resource of a flavor.
	FlavorResource = resources.FlavorResource
	// Amount is how much of a resource; of cpu in thousandths.
	Amount = resources.Amount
	// Requests are amounts by resource.
	Requests = resources.Requests
	// PodSetInfo is what an admission says of the pods of a PodSet.
	PodSetInfo = podset.PodSetInfo
)

// Kueue's arithmetic, and what it does with the pods of a PodSet.
var (
	// NewResourceFormatter returns what writes amounts as quantities.
	NewResourceFormatter = resources.NewResourceFormatter
	// ResourceValue returns a quantity of a resource as an Amount has it.
	ResourceValue = resources.ResourceValue
	// Sum is that of two amounts, at most the largest there is.
	Sum = math.SaturatingAdd
	// Product is that of an amount and a number, at most the largest there is.
	Product = math.SaturatingMul
	// WithMissing returns amounts with those of others that are missing.
	WithMissing = resource.MergeResourceListKeepFirst
	// RequestsOf adds up what a pod asks for.
	RequestsOf = resources.NewRequestsFromPodSpec
	// ByResource returns requests by resource.
	ByResource = resources.ToMap
	// Priority returns the priority of a Workload.
	Priority = priority.Priority
	// IsSchedulingTaint reports whether a taint keeps pods off a node.
	IsSchedulingTaint = taints.IsSchedulingTaint
	// SameToleration reports whether two tolerations are alike, in so many words or by default.
	SameToleration = tolerations.Equal

	// ErrInvalidPodSetInfo is of an admission that does not fit its PodSet, for good.
	ErrInvalidPodSetInfo = podset.ErrInvalidPodsetInfo
	// WrongPodSetCount is the error of an admission for another number of PodSets.
	WrongPodSetCount = podset.BadPodSetsInfoLenError
	// ConflictingPodSet is the error of an admission that sets what a PodSet has already.
	ConflictingPodSet = podset.BadPodSetsUpdateError
	// IsPermanent reports whether an error of an admission lasts: jobframework finishes the Workload for it.
	IsPermanent = podset.IsPermanent

	// Patch writes what a function changes of an object, under the condition of its resource version.
	Patch = clientutil.Patch
	// WithRetryOnConflict has Patch read the object and try again where somebody was faster.
	WithRetryOnConflict = clientutil.WithRetryOnConflict
	// TruncateEvent shortens a message to what an event takes.
	TruncateEvent = api.TruncateEventMessage
	// Levels returns the node labels of a topology's levels, the widest first.
	Levels = tas.Levels
	// SliceTopologies returns in which domains a request wants slices of its pods, whichever of Kueue's fields say so.
	SliceTopologies = tas.PodSetSliceRequiredTopologyConstraints
)

// Map returns what a function makes of each of a list.
func Map[S ~[]From, From, To any](s S, of func(*From) To) []To { return utilslices.Map(s, of) }

// Pick returns those of a list that a function reports.
func Pick[S ~[]E, E any](s S, is func(*E) bool) S { return utilslices.Pick(s, is) }

// Index returns the items of a list by what a function makes of each.
func Index[S ~[]E, E any, K comparable](s S, by func(*E) K) map[K]*E {
	return utilslices.ToRefMap(s, by)
}

// Names of Kueue's feature gates that its settings depend on.
const (
	CustomMetricLabels      = string(features.CustomMetricLabels)
	DisableWaitForPodsReady = string(features.DisableWaitForPodsReady) //nolint:staticcheck // Kueue 0.19 goes by it
)

// MultiKueueEnabled reports whether Kueue's gate MultiKueue is on in this process.
func MultiKueueEnabled() bool { return features.Enabled(features.MultiKueue) }

// TopologyAwareSchedulingEnabled reports whether Kueue's gate of that name is on in this process.
func TopologyAwareSchedulingEnabled() bool { return features.Enabled(features.TopologyAwareScheduling) }
