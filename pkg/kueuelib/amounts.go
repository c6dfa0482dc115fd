// SPDX-License-Identifier: Apache-2.0

package kueuelib

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kueue/pkg/podset"
	"sigs.k8s.io/kueue/pkg/resources"
	"sigs.k8s.io/kueue/pkg/util/api"
	clientutil "sigs.k8s.io/kueue/pkg/util/client"
	"sigs.k8s.io/kueue/pkg/util/priority"
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

	// TruncateEvent shortens a message to what an event takes.
	TruncateEvent = api.TruncateEventMessage
	// SliceTopologies returns in which domains a request wants slices of its pods, whichever of Kueue's fields say so.
	SliceTopologies = tas.PodSetSliceRequiredTopologyConstraints
)

// Patch writes what change changes of an object, under the condition of its resource version.
func Patch(ctx context.Context, c client.Client, obj client.Object, change func() (bool, error)) error {
	return clientutil.Patch(ctx, c, obj, change)
}
