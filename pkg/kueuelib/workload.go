// SPDX-License-Identifier: Apache-2.0

package kueuelib

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/features"
	"sigs.k8s.io/kueue/pkg/workload"
	"sigs.k8s.io/kueue/pkg/workload/concurrentadmission"
	workloadevict "sigs.k8s.io/kueue/pkg/workload/evict"
	workloadfinish "sigs.k8s.io/kueue/pkg/workload/finish"
	workloadpatching "sigs.k8s.io/kueue/pkg/workload/patching"
)

// What Kueue's packages say of a Workload in one call.
var (
	// HasQuotaReservation reports whether it has the condition QuotaReserved.
	HasQuotaReservation = workload.HasQuotaReservation
	// IsAdmitted reports whether it has the condition Admitted.
	IsAdmitted = workload.IsAdmitted
	// IsFinished reports whether it has the condition Finished.
	IsFinished = workloadfinish.IsFinished
	// IsActive reports whether nobody has deactivated it.
	IsActive = workload.IsActive
	// IsEvicted reports whether it is being evicted.
	IsEvicted = workloadevict.IsEvicted
	// IsEvictedByDeactivation reports whether that is because somebody, or Kueue, deactivated it.
	IsEvictedByDeactivation = workloadevict.IsEvictedByDeactivation
	// IsAdmissible reports whether Kueue would queue it as it is.
	IsAdmissible = workload.IsAdmissible
	// HasAdmissionGate reports whether an admission gate of Kueue's keeps it out of its queue.
	HasAdmissionGate = workload.HasAdmissionGate
	// HasRetryChecks reports whether an admission check says Retry.
	HasRetryChecks = workload.HasRetryChecks
	// HasRejectedChecks reports whether an admission check says Rejected.
	HasRejectedChecks = workload.HasRejectedChecks
	// HasWorkloadPriorityClass reports whether its priority is of a WorkloadPriorityClass.
	HasWorkloadPriorityClass = workload.IsWorkloadPriorityClass
	// HasVariants reports whether Kueue's concurrent admission queues copies of it in its place, one for each flavor. It never
	// changes them.
	HasVariants = concurrentadmission.IsParent
	// HasTopologyAssignmentsPending reports whether Kueue has yet to place it in a topology, after its admission checks.
	HasTopologyAssignmentsPending = workload.HasTopologyAssignmentsPending
	// Status returns how far it is, in Kueue's words.
	Status = workload.Status
	// RemoveFinalizer takes Kueue's finalizer off it, in one write; none where it is not there.
	RemoveFinalizer = workload.RemoveFinalizer
	// UseLimitsAsMissingRequests sets the requests of containers that have limits alone.
	UseLimitsAsMissingRequests = workload.UseLimitsAsMissingRequestsInPod
	// IsExplicitlyRequestingTopology reports whether a PodSet asks for a topology.
	IsExplicitlyRequestingTopology = workload.IsExplicitlyRequestingTAS
)

// True returns a condition that is true, or nil.
func True(conditions []metav1.Condition, condition string) *metav1.Condition {
	if c := apimeta.FindStatusCondition(conditions, condition); c != nil && c.Status == metav1.ConditionTrue {
		return c
	}
	return nil
}

// Since returns since when a condition is true; zero: it is not.
func Since(conditions []metav1.Condition, condition string) time.Time {
	return ptr.Deref(True(conditions, condition), metav1.Condition{}).LastTransitionTime.Time
}

// IsDeactivatedByKueue reports whether Kueue itself deactivated wl, over a limit of retries or of
// time, or for a check that rejected it. Kueue does not queue such a Workload again when
// somebody activates it: it waits for condition Requeued, or is deactivated again at once.
func IsDeactivatedByKueue(wl *kueue.Workload) bool {
	return !IsActive(wl) && (workloadevict.IsEvictedDueToDeactivationByKueue(wl) ||
		apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadDeactivationTarget))
}

// IsLeftBehind reports whether somebody activated a Workload that Kueue had deactivated.
func IsLeftBehind(wl *kueue.Workload) bool {
	requeued := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadRequeued)
	return IsActive(wl) && requeued != nil && requeued.Status == metav1.ConditionFalse &&
		strings.HasPrefix(requeued.Reason, workloadpatching.ReasonWithCause(kueue.WorkloadDeactivated, ""))
}

// EvictToDeactivate evicts wl as Kueue does when it is deactivated, for a cause of Kueue's or for none, records that on
// wl, and in Kueue's metrics: with ofQueue in those of its LocalQueue, too. It changes wl.
func EvictToDeactivate(
	ctx context.Context, c client.Client, recorder events.EventRecorder, wl *kueue.Workload, cause, message string, ofQueue bool, labels *CustomLabels,
) error {
	return workloadevict.Evict(ctx, c, recorder, wl, kueue.WorkloadDeactivated, message, kueue.EvictionUnderlyingCause(cause), clock.RealClock{}, ofQueue, nil, labels)
}

// Unreserve takes its quota from an evicted Workload, as jobframework does when the job has stopped.
func Unreserve(wl *kueue.Workload) {
	evicted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted)
	again := evicted.Reason == kueue.WorkloadEvictedByPreemption || evicted.Reason == kueue.WorkloadEvictedDueToNodeFailures
	workload.SetRequeuedCondition(wl, evicted.Reason, evicted.Message, again)
	reason := workload.UnadmittedWorkloadReasonWithFallback(kueue.WorkloadQuotaReservedReasonPendingEvaluation, kueue.WorkloadPending) //nolint:staticcheck // Kueue 0.19's own
	workload.UnsetQuotaReservationWithCondition(wl, reason, evicted.Message, time.Now())
}

// RanFor returns how long wl ran since its last admission, at least a second; false unless its job has succeeded or failed.
func RanFor(wl *kueue.Workload) (time.Duration, bool) {
	admitted, finished := True(wl.Status.Conditions, kueue.WorkloadAdmitted), True(wl.Status.Conditions, kueue.WorkloadFinished)
	if admitted == nil || finished == nil || finished.Reason != kueue.WorkloadFinishedReasonSucceeded && finished.Reason != kueue.WorkloadFinishedReasonFailed {
		return 0, false
	}
	// Times are in seconds, and clocks differ.
	return max(time.Second, finished.LastTransitionTime.Sub(admitted.LastTransitionTime.Time)), true
}

// ReplacesNode reports whether Kueue is about to find another node for wl in place of one that
// failed, or to evict it: one of the two happens within seconds.
func ReplacesNode(wl *kueue.Workload) bool {
	return features.Enabled(features.TASFailedNodeReplacementFailFast) && workload.HasUnhealthyNodes(wl)
}

// The values of Status.
const (
	StatusQuotaReserved = workload.StatusQuotaReserved
	StatusAdmitted      = workload.StatusAdmitted
	StatusFinished      = workload.StatusFinished
)

// TotalRequests returns what the PodSets of wl ask for, as Kueue's scheduler counts it by its configuration of resources;
// nil is without.
func TotalRequests(wl *kueue.Workload, by *configapi.Resources) []workload.PodSetResources {
	counts := ptr.Deref(by, configapi.Resources{})
	return workload.NewInfo(wl, workload.WithExcludedResourcePrefixes(counts.ExcludeResourcePrefixes), workload.WithResourceTransformations(counts.Transformations)).TotalRequests
}

// CountedOf adds up what Kueue counts of a pod by its configuration of resources; nil is without, and all that it asks for.
func CountedOf(pod *corev1.PodSpec, by *configapi.Resources) Requests {
	if by == nil {
		return RequestsOf(pod)
	}
	wl := &kueue.Workload{Spec: kueue.WorkloadSpec{PodSets: []kueue.PodSet{{Count: 1, Template: corev1.PodTemplateSpec{Spec: *pod}}}}}
	return TotalRequests(wl, by)[0].Requests
}

// IgnoresUndeclared reports whether Kueue gives quota in spite of resources that the ClusterQueue does not have.
func IgnoresUndeclared(by *configapi.Resources) bool {
	return features.Enabled(features.QuotaCheckStrategy) && by != nil && ptr.Deref(by.QuotaCheckStrategy, "") == configapi.QuotaCheckIgnoreUndeclared
}

// ChecksOf returns the admission checks that a ClusterQueue has for wl: with an admission, those of its flavors.
func ChecksOf(wl *kueue.Workload, cq *kueue.ClusterQueue) sets.Set[kueue.AdmissionCheckReference] {
	return workload.AdmissionChecksForWorkload(logr.Discard(), wl, cq)
}

// Holds returns what wl has of the flavors that are assigned to it, as Kueue counts it: without pods that it reclaimed.
func Holds(wl *kueue.Workload) map[FlavorResource]Amount {
	held := workload.NewInfo(wl).FlavorResourceUsage()
	maps.DeleteFunc(held, func(of FlavorResource, _ Amount) bool { return of.Flavor == "" })
	return held
}

// SetCondition writes a condition of wl as the controller of a job does, and changes wl.
func SetCondition(ctx context.Context, c client.Client, wl *kueue.Workload, condition string, status metav1.ConditionStatus, reason, message string) error {
	return workload.SetConditionAndUpdate(ctx, c, wl, condition, status, reason, message, kueueconstants.JobControllerName, clockOf(wl))
}

// clockOf returns a clock that is not behind the admission of a Workload, which Kueue has stamped by its own: Kueue and we
// take a condition from before that for one of a former admission.
func clockOf(wl *kueue.Workload) clock.Clock {
	if admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); admitted != nil && admitted.LastTransitionTime.After(time.Now()) {
		return lateClock{at: admitted.LastTransitionTime.Time}
	}
	return clock.RealClock{}
}

type lateClock struct {
	clock.RealClock
	at time.Time
}

func (c lateClock) Now() time.Time { return c.at }
