// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/workload"
)

// record makes Decisions of looks.
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
	for _, target := range l.preempted() {
		d.Victims = append(d.Victims, r.memory.workloads[keyOf(target)])
	}
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

// rest decides about those that no cycle has decided about.
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
