// SPDX-License-Identifier: Apache-2.0

package kueuelib

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
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

// NewResourceFormatter returns what writes amounts as quantities.
func NewResourceFormatter() *resources.ResourceFormatter { return resources.NewResourceFormatter() }

// ResourceValue returns a quantity of a resource as an Amount has it.
func ResourceValue(name corev1.ResourceName, quantity resource.Quantity) int64 {
	return resources.ResourceValue(name, quantity)
}

// RequestsOf adds up what a pod asks for.
func RequestsOf(spec *corev1.PodSpec) Requests { return resources.NewRequestsFromPodSpec(spec) }

// ByResource returns requests by resource.
func ByResource(requests Requests) map[corev1.ResourceName]int64 { return resources.ToMap(requests) }

// Priority returns the priority of a Workload.
func Priority(wl *kueue.Workload) int32 { return priority.Priority(wl) }

// IsSchedulingTaint reports whether a taint keeps pods off a node.
func IsSchedulingTaint(taint *corev1.Taint) bool { return taints.IsSchedulingTaint(taint) }

// SameToleration reports whether two tolerations are alike, in so many words or by default.
func SameToleration(a, b corev1.Toleration) bool { return tolerations.Equal(a, b) }

// ErrInvalidPodSetInfo is of an admission that does not fit its PodSet, for good.
var ErrInvalidPodSetInfo = podset.ErrInvalidPodsetInfo

// WrongPodSetCount is the error of an admission for another number of PodSets.
func WrongPodSetCount(want, got int) error { return podset.BadPodSetsInfoLenError(want, got) }

// ConflictingPodSet is the error of an admission that sets what a PodSet has already.
func ConflictingPodSet(what string, err error) error { return podset.BadPodSetsUpdateError(what, err) }

// IsPermanent reports whether an error of an admission lasts: jobframework finishes the Workload for it.
func IsPermanent(err error) bool { return podset.IsPermanent(err) }

// TruncateEvent shortens a message to what an event takes.
func TruncateEvent(message string) string { return api.TruncateEventMessage(message) }

// Patch writes what change changes of an object, under the condition of its resource version.
func Patch(ctx context.Context, c client.Client, obj client.Object, change func() (bool, error)) error {
	return clientutil.Patch(ctx, c, obj, change)
}

// SliceTopologies returns in which domains a request wants slices of its pods, whichever of Kueue's fields say so.
func SliceTopologies(request *kueue.PodSetTopologyRequest) []kueue.PodsetSliceRequiredTopologyConstraint {
	return tas.PodSetSliceRequiredTopologyConstraints(request)
}
