// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/util/priority"
	utilslices "sigs.k8s.io/kueue/pkg/util/slices"
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
	// Behind is in front of one that is blocked, or has taken the room that one found which is refused.
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

// CompareInQueue is Kueue's order of a ClusterQueue: by priority, then by the time that Workloads queue by.
func CompareInQueue(a, b *kueue.Workload) int {
	return cmp.Or(
		cmp.Compare(priority.EffectivePriority(logr.Discard(), b), priority.EffectivePriority(logr.Discard(), a)),
		ordering.GetQueueOrderTimestamp(a).Compare(ordering.GetQueueOrderTimestamp(b).Time),
		cmp.Compare(a.UID, b.UID),
	)
}

type record struct {
	*Player
	decided map[client.ObjectKey]*Decision
	// skipped are those that another was before, each time that Kueue looked.
	skipped map[client.ObjectKey]*Decision
	// refused is for those that Kueue does not look at since it has looked at one like them.
	refused map[shape]*Decision
	// heads are the last ones that were looked at.
	heads map[kueue.ClusterQueueReference]*kueue.Workload
	// first got quota before all others of a cohort, takers have taken or reserved it in this cycle.
	first, takers map[string]*kueue.Workload
}

type shape struct {
	kueue.ClusterQueueReference
	workload.EquivalenceHash
}

// note decides about a Workload, unless it is looked at again.
func (r *record) note(l *look) {
	wl, d := r.memory.workloads[l.key], &Decision{Outcome: Refuses, Message: l.message, Before: r.first[l.sharing()]}
	d.Victims = utilslices.Map(l.preempted(), func(target *klog.ObjectRef) *kueue.Workload { return r.memory.workloads[keyOf(*target)] })
	switch {
	case l.isSkipped():
		d.Behind = r.takers[l.sharing()]
		r.skipped[l.key] = d
		return
	case l.admits(), len(d.Victims) > 0:
		d.Outcome, d.Message = Admits, ""
		if len(d.Victims) > 0 {
			d.Outcome = Preempts
		}
		d.Admission = &kueue.Admission{ClusterQueue: l.queue, PodSetAssignments: l.assignment.ToAPI(logr.Discard())}
		if d.Before == nil {
			r.first[l.sharing()] = wl
		}
	case l.assignment.LastState.PendingFlavors():
		d = nil
	default:
		r.refused[shape{l.queue, l.assignment.LastState.SchedulingHash}] = d
	}
	if d != nil && r.decided[l.key] == nil {
		r.decided[l.key] = d
	}
	if l.takes() {
		r.takers[l.sharing()] = wl
	}
}

func (r *record) rest(left sets.Set[client.ObjectKey]) {
	parked := r.queues.DumpInadmissible()
	for name, head := range r.heads {
		for _, info := range r.queues.PendingWorkloadsInfo(name) {
			key := client.ObjectKeyFromObject(info.Obj)
			if !left.Has(key) {
				continue
			}
			r.decided[key] = &Decision{Outcome: Blocks, Behind: head}
			if d := r.skipped[key]; d != nil {
				r.decided[key] = d
			} else if d := r.refused[shape{name, info.SchedulingHash}]; d != nil && slices.Contains(parked[name], workload.Key(info.Obj)) {
				r.decided[key] = d
			}
		}
	}
}
