// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/cache/scheduler"
	"sigs.k8s.io/kueue/pkg/scheduler/flavorassigner"
	"sigs.k8s.io/kueue/pkg/scheduler/preemption"
	"sigs.k8s.io/kueue/pkg/util/priority"
	"sigs.k8s.io/kueue/pkg/workload"
)

var ordering = workload.Ordering{PodsReadyRequeuingTimestamp: configapi.EvictionTimestamp}

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
	// Victims are whom it preempts.
	Victims []Victim
	// Message is Kueue's own for one that is refused.
	Message string
	// Behind is in front of one that is blocked, or has taken the room that one found which
	// is refused.
	Behind *kueue.Workload
	// Before are those that get quota before it.
	Before []*kueue.Workload
}

// Victim is a Workload that is preempted.
type Victim struct {
	Workload     *kueue.Workload
	ClusterQueue kueue.ClusterQueueReference
	// Reason is that of Kueue's condition Preempted.
	Reason string
}

// Pending is a Workload that waits in a ClusterQueue.
type Pending struct {
	Workload     *kueue.Workload
	ClusterQueue kueue.ClusterQueueReference
	// Parked is set for one that Kueue has looked at, and looks at again when there is more.
	Parked bool
}

// Simulation plays the cycles of Kueue's scheduler on a Snapshot, which it changes. What it
// leaves out: fair sharing's own order of ClusterQueues within one cycle, that of LocalQueues
// by AdmissionFairSharing, second passes, and what Kueue's configuration sets in featureGates
// and requeuingStrategy.timestamp, which are taken at their defaults.
type Simulation struct {
	*assigner
	queues map[kueue.ClusterQueueReference]*queue
	cycle  int64
	// admitted are those that got quota so far.
	admitted []*kueue.Workload
}

// queue holds those that Kueue looks at, the next one first, and those that it has parked.
type queue struct {
	strict         bool
	active, parked []*workload.Info
}

// entry is the head of a queue in one cycle.
type entry struct {
	*workload.Info
	assignment flavorassigner.Assignment
	targets    []*preemption.Target
	decision   Decision
	// skipped is why there is no decision: another was before it in this cycle.
	skipped Decision
}

// NewSimulation begins with all who wait, in any order. strict names the ClusterQueues whose
// strategy is StrictFIFO.
func NewSimulation(snapshot *Snapshot, pending []Pending, strict func(kueue.ClusterQueueReference) bool, fairSharing *configapi.FairSharing) *Simulation {
	s := &Simulation{assigner: newAssigner(snapshot, fairSharing), queues: map[kueue.ClusterQueueReference]*queue{}}
	for _, p := range pending {
		if snapshot.ClusterQueue(p.ClusterQueue) == nil {
			continue // Nobody looks at what waits in a queue that is not active.
		}
		q := s.queues[p.ClusterQueue]
		if q == nil {
			q = &queue{strict: strict(p.ClusterQueue)}
			s.queues[p.ClusterQueue] = q
		}
		info := workload.NewInfo(p.Workload)
		info.ClusterQueue = p.ClusterQueue
		if p.Parked {
			q.parked = append(q.parked, info)
		} else {
			q.active = append(q.active, info)
		}
	}
	for _, q := range s.queues {
		q.sort()
	}
	return s
}

// sort has the one first that waits for those whom it has preempted, unless first in is
// strictly first out.
func (q *queue) sort() {
	slices.SortStableFunc(q.active, func(a, b *workload.Info) int {
		if !q.strict && IsPreempting(a.Obj) != IsPreempting(b.Obj) {
			if IsPreempting(a.Obj) {
				return -1
			}
			return 1
		}
		return CompareInQueue(a.Obj, b.Obj)
	})
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

// CompareInQueue is Kueue's order of a ClusterQueue: by priority, then by the time that
// Workloads queue by.
func CompareInQueue(a, b *kueue.Workload) int {
	return cmp.Or(
		cmp.Compare(priority.EffectivePriority(logr.Discard(), b), priority.EffectivePriority(logr.Discard(), a)),
		ordering.GetQueueOrderTimestamp(a).Compare(ordering.GetQueueOrderTimestamp(b).Time),
		cmp.Compare(a.UID, b.UID),
	)
}

// cyclesFor each that waits is more than it takes: what has no end is cut off.
const cyclesFor = 20

// Decide plays cycles until one has decided about wl, or nothing moves any more.
func (s *Simulation) Decide(ctx context.Context, wl *kueue.Workload) Decision {
	ctx = logr.NewContext(ctx, logr.Discard())
	limit := cyclesFor
	for _, q := range s.queues {
		limit += cyclesFor * (len(q.active) + len(q.parked))
	}
	var entries []*entry
	for moved := true; moved && limit > 0; limit-- {
		entries, moved = s.runCycle(ctx)
		for _, e := range entries {
			if e.Obj == wl && e.decision.Outcome != "" {
				e.decision.Before = slices.DeleteFunc(s.admitted, func(o *kueue.Workload) bool { return o == wl })
				return e.decision
			}
		}
	}
	for _, e := range entries {
		if e.Obj == wl {
			return e.skipped // In every cycle from now on.
		}
	}
	return Decision{Outcome: Blocks, Behind: s.before(wl)}
}

// Order plays cycles until each that waits was looked at, and returns them in the order of that. Who
// cannot start keeps nobody back.
func (s *Simulation) Order(ctx context.Context) []*kueue.Workload {
	ctx = logr.NewContext(ctx, logr.Discard())
	var order []*kueue.Workload
	for {
		entries, _ := s.runCycle(ctx)
		if len(entries) == 0 {
			return order
		}
		for _, e := range entries {
			if !slices.Contains(order, e.Obj) {
				order = append(order, e.Obj)
			}
			if q := s.queues[e.ClusterQueue]; len(q.active) > 0 && q.active[0] == e.Info {
				q.active = q.active[1:]
			}
		}
	}
}

// before returns who stands at the head of the queue of wl.
func (s *Simulation) before(wl *kueue.Workload) *kueue.Workload {
	for _, q := range s.queues {
		if slices.ContainsFunc(q.active, func(i *workload.Info) bool { return i.Obj == wl }) {
			return q.active[0].Obj
		}
	}
	return nil
}

// runCycle looks at the head of every queue, and reports whether anything moved.
func (s *Simulation) runCycle(ctx context.Context) (entries []*entry, moved bool) {
	s.cycle++
	for _, q := range s.queues {
		if len(q.active) > 0 {
			e := &entry{Info: q.active[0]}
			e.assignment, e.targets = s.assign(ctx, e.Info, s.cycle)
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.assignment.Borrows(), b.assignment.Borrows()), CompareInQueue(a.Obj, b.Obj))
	})
	c := &cycle{Simulation: s, preempted: preemption.PreemptedWorkloads{}}
	for _, e := range entries {
		c.process(ctx, e)
	}
	for _, revert := range slices.Backward(c.reverts) {
		revert()
	}
	for _, e := range entries {
		moved = s.settle(e) || moved
	}
	// Only now: until all are settled, each has to be the head of its queue still.
	if slices.ContainsFunc(entries, func(e *entry) bool { return e.decision.Outcome == Preempts }) {
		s.requeueParked()
	}
	return entries, moved
}

// cycle is what the heads of one cycle have taken before the others.
type cycle struct {
	*Simulation
	preempted preemption.PreemptedWorkloads
	// takers have taken or reserved quota, which reverts give back.
	takers  []*entry
	reverts []func()
}

// take lets nobody behind e in this cycle have its usage.
func (c *cycle) take(e *entry, usage workload.Usage) {
	c.takers = append(c.takers, e)
	c.reverts = append(c.reverts, c.snapshot.ClusterQueue(e.ClusterQueue).SimulateUsageAddition(usage))
}

// skip leaves e to the next cycle, in Kueue's words.
func (c *cycle) skip(e *entry, message string) {
	e.skipped = Decision{Outcome: Refuses, Message: message}
	for _, taker := range c.takers {
		if c.shareQuota(e.ClusterQueue, taker.ClusterQueue) {
			e.skipped.Behind = taker.Obj
		}
	}
}

// shareQuota reports whether two ClusterQueues are below the same root.
func (c *cycle) shareQuota(a, b kueue.ClusterQueueReference) bool {
	one, other := c.snapshot.ClusterQueue(a), c.snapshot.ClusterQueue(b)
	return one.HasParent() && other.HasParent() && one.Parent().Root() == other.Parent().Root()
}

// process decides about a head; no outcome is for one that is looked at again in the next
// cycle, because another took what it had found.
func (c *cycle) process(ctx context.Context, e *entry) {
	usage, check := c.check(e)
	if check == scheduler.FitsCheckNoTAS {
		e.assignment, e.targets = c.assign(ctx, e.Info, c.Simulation.cycle)
		usage, check = c.check(e)
	}
	switch mode := e.assignment.RepresentativeMode(); {
	case mode == flavorassigner.NoFit:
		e.decision = Decision{Outcome: Refuses, Message: e.assignment.Message()}
	case mode == flavorassigner.Preempt && len(e.targets) == 0:
		e.decision = Decision{Outcome: Refuses, Message: e.assignment.Message()}
		if cq := c.snapshot.ClusterQueue(e.ClusterQueue); !preemption.CanAlwaysReclaim(cq) {
			c.take(e, c.reservation(e.Info, &e.assignment))
		}
	case c.preempted.HasAny(e.targets):
		c.skip(e, "Workload has overlapping preemption targets with another workload")
	case check != scheduler.FitsCheckOk:
		c.skip(e, "Workload no longer fits after processing another workload")
	default:
		c.preempted.Insert(e.targets)
		c.take(e, usage)
		e.decision = taken(e)
	}
}

func (c *cycle) check(e *entry) (workload.Usage, scheduler.FitsCheck) {
	usage := c.usage(e.Info, &e.assignment, e.assignment.Usage.Quota)
	revert := c.snapshot.SimulateWorkloadUsageRemoval(c.preempted.MergeWithTargets(e.targets).Workloads())
	defer revert()
	return usage, c.snapshot.ClusterQueue(e.ClusterQueue).Fits(usage)
}

func taken(e *entry) Decision {
	d := Decision{Outcome: Admits, Admission: &kueue.Admission{
		ClusterQueue: e.ClusterQueue, PodSetAssignments: e.assignment.ToAPI(logr.Discard()),
	}}
	for _, t := range e.targets {
		d.Outcome = Preempts
		d.Victims = append(d.Victims, Victim{Workload: t.WorkloadInfo.Obj, ClusterQueue: t.WorkloadInfo.ClusterQueue, Reason: t.Reason})
	}
	return d
}

// settle keeps what a cycle has decided, and reports whether anything moved.
func (s *Simulation) settle(e *entry) bool {
	q := s.queues[e.ClusterQueue]
	e.LastAssignment = &e.assignment.LastState
	switch {
	case e.decision.Admission != nil:
		q.active = q.active[1:]
		s.swap(e)
		return true
	case e.LastAssignment.PendingFlavors():
		e.decision = Decision{} // The next cycle looks at the flavors that are left.
		return true
	case e.decision.Outcome == Refuses && !q.strict:
		q.active, q.parked = q.active[1:], append(q.parked, e.Info)
		return true
	}
	return false
}

// swap lets victims go at once, in whose place the preemptor gets its quota.
func (s *Simulation) swap(e *entry) {
	s.admitted = append(s.admitted, e.Obj)
	for _, t := range e.targets {
		s.snapshot.RemoveWorkload(t.WorkloadInfo)
	}
	admitted := e.Obj.DeepCopy()
	workload.SetQuotaReservation(admitted, e.decision.Admission, clock.RealClock{})
	s.snapshot.AddWorkload(workload.NewInfo(admitted))
}

// requeueParked has all of the parked looked at again, because somebody was stopped.
func (s *Simulation) requeueParked() {
	for _, q := range s.queues {
		q.active, q.parked = append(q.active, q.parked...), nil
		q.sort()
	}
}
