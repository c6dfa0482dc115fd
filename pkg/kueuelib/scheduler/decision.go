// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"strings"

	"github.com/go-logr/logr"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/util/priority"
	"sigs.k8s.io/kueue/pkg/workload"
)

// Outcome is what Kueue's scheduler does with a Workload.
type Outcome string

// The outcomes.
const (
	// Admits: it gets quota.
	Admits Outcome = "Admits"
	// Preempts: it gets quota as soon as others are gone, which Kueue stops for it.
	Preempts Outcome = "Preempts"
	// Refuses: Kueue has looked at it, and it has to wait.
	Refuses Outcome = "Refuses"
	// Blocks: somebody in front of it waits, and Kueue does not look at it before.
	Blocks Outcome = "Blocks"
)

// Decision is an outcome with its reasons.
type Decision struct {
	Outcome Outcome
	// Admission is set where it admits or preempts.
	Admission *kueue.Admission
	// Victims are whom it preempts, as Kueue left them: their condition Preempted says why.
	Victims []*kueue.Workload
	// Message is Kueue's own for one that is refused.
	Message string
	// Behind is in front of one that is blocked, or has taken the room that one found which
	// is refused.
	Behind *kueue.Workload
	// Before is the first that gets quota before it, of that which it could have had.
	Before *kueue.Workload
}

// IsPreempting reports whether Kueue is stopping others for wl.
func IsPreempting(wl *kueue.Workload) bool {
	return strings.Contains(WhyWaiting(wl), "Pending the preemption")
}

// IsNamespaceMismatch reports whether Kueue leaves wl alone for the labels of its namespace.
func IsNamespaceMismatch(wl *kueue.Workload) bool {
	return WhyWaiting(wl) == workload.ErrNamespaceMismatch.Error()
}

// WhyWaiting is what Kueue says of the quota of wl; empty before it has looked.
func WhyWaiting(wl *kueue.Workload) string {
	if c := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadQuotaReserved); c != nil && c.Status == metav1.ConditionFalse {
		return c.Message
	}
	return ""
}

var ordering = workload.Ordering{PodsReadyRequeuingTimestamp: configapi.EvictionTimestamp}

// CompareInQueue is Kueue's order of a ClusterQueue: by priority, then by the time that
// Workloads queue by.
func CompareInQueue(a, b *kueue.Workload) int {
	return cmp.Or(
		cmp.Compare(priority.EffectivePriority(logr.Discard(), b), priority.EffectivePriority(logr.Discard(), a)),
		ordering.GetQueueOrderTimestamp(a).Compare(ordering.GetQueueOrderTimestamp(b).Time),
		cmp.Compare(a.UID, b.UID),
	)
}
