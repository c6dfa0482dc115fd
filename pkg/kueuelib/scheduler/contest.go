// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	qcache "sigs.k8s.io/kueue/pkg/cache/queue"
	utilslices "sigs.k8s.io/kueue/pkg/util/slices"
	"sigs.k8s.io/kueue/pkg/workload"
)

// Contest is a world at a time, with all who have quota or wait for it where Kueue looks at them.
type Contest struct {
	World     *World
	Workloads []*kueue.Workload
	Now       time.Time
}

// player returns a Player with all of them, those that wait as Kueue left them: parked where it looked in vain, and in front
// where it stops others for them. Those that are asked about are not parked: Kueue decides about them again.
func (c *Contest) player(ctx context.Context, asked sets.Set[client.ObjectKey]) (*Player, error) {
	p, err := NewPlayer(ctx, c.World, c.Now)
	if err != nil {
		return nil, err
	}
	for _, wl := range Apart(c.Workloads) {
		key := client.ObjectKeyFromObject(wl)
		if workload.HasQuotaReservation(wl) || !IsPreempting(wl) && (asked.Has(key) || WhyWaiting(wl) == "") {
			_ = p.Add(ctx, wl) // It fails where the queue is not there, and it competes with nobody.
			continue
		}
		reason := qcache.RequeueReasonGeneric
		if IsPreempting(wl) {
			reason = qcache.RequeueReasonPendingPreemption
		}
		p.memory.workloads[key] = wl.DeepCopy()
		p.queues.RequeueWorkload(quietly(ctx), workload.NewInfo(wl), reason, "")
	}
	return p, nil
}

// Apart returns Workloads that do not come at the same time, to which Kubernetes' second makes many: Kueue looks at such of
// different ClusterQueues in any order, and the same input would not tell the same.
func Apart(workloads []*kueue.Workload) []*kueue.Workload {
	workloads = slices.Clone(workloads)
	order := utilslices.Map(workloads, func(wl **kueue.Workload) **kueue.Workload { return wl })
	slices.SortStableFunc(order, func(a, b **kueue.Workload) int {
		return cmp.Or((*a).CreationTimestamp.Compare((*b).CreationTimestamp.Time), cmp.Compare((*a).UID, (*b).UID))
	})
	var last time.Time
	for _, wl := range order {
		if at := (*wl).CreationTimestamp.Time; at.After(last) {
			last = at
			continue
		}
		last = last.Add(1)
		later := **wl
		later.CreationTimestamp.Time = last
		*wl = &later
	}
	return workloads
}

// Decide returns what Kueue's scheduler decides first about each that is asked about. Of one there is nothing whose
// ClusterQueue is not active, or for which the time of the context was too short.
func (c *Contest) Decide(ctx context.Context, asked sets.Set[client.ObjectKey]) (map[client.ObjectKey]*Decision, error) {
	p, err := c.player(ctx, asked)
	if err != nil {
		return nil, err
	}
	r := &record{
		Player: p, decided: map[client.ObjectKey]*Decision{}, skipped: map[client.ObjectKey]*Decision{}, refused: map[shape]*Decision{},
		heads: map[kueue.ClusterQueueReference]*kueue.Workload{}, first: map[string]*kueue.Workload{},
	}
	left := asked.Clone()
	for all := range p.looks(ctx) {
		r.takers = map[string]*kueue.Workload{}
		for _, l := range all {
			r.heads[l.queue] = p.memory.workloads[l.key]
			if r.note(l); r.decided[l.key] != nil {
				left.Delete(l.key)
			}
		}
		if len(left) == 0 {
			break
		}
	}
	if ctx.Err() == nil {
		r.rest(left)
	}
	return r.decided, nil
}

// Turn is when Kueue comes to look at a Workload.
type Turn struct {
	Workload     *kueue.Workload
	ClusterQueue kueue.ClusterQueueReference
	// Cohort is the topmost one; empty for a ClusterQueue that shares with none.
	Cohort string
	// Place counts from 1, among all that wait in ClusterQueues which share quota.
	Place int
}

// Order returns all who wait in the order in which Kueue looks at them. Who cannot start keeps nobody back.
func (c *Contest) Order(ctx context.Context) ([]Turn, error) {
	own, all := *c, sets.New[client.ObjectKey]()
	own.Workloads = nil
	for _, wl := range c.Workloads {
		own.Workloads = append(own.Workloads, unlike(wl))
		all.Insert(client.ObjectKeyFromObject(wl))
	}
	p, err := own.player(ctx, all)
	if err != nil {
		return nil, err
	}
	var order []Turn
	places := map[string]int{}
	for all := range p.looks(ctx) {
		for _, l := range all {
			places[l.sharing()]++
			order = append(order, Turn{p.memory.workloads[l.key], l.queue, l.cohort, places[l.sharing()]})
			if !l.admits() {
				p.Remove(ctx, l.key)
			}
		}
	}
	return order, ctx.Err()
}

// unlike returns a Workload like which there is no other: of those that are alike Kueue looks at one.
func unlike(wl *kueue.Workload) *kueue.Workload {
	wl = wl.DeepCopy()
	for n := range wl.Spec.PodSets {
		pod := &wl.Spec.PodSets[n].Template.Spec
		pod.Tolerations = append(pod.Tolerations, corev1.Toleration{Key: string(wl.UID)}) // No taint has such a key.
	}
	return wl
}

// looks plays cycles and returns what Kueue found out in each. Whoever is preempted is gone at once.
func (p *Player) looks(ctx context.Context) iter.Seq[[]*look] {
	return func(yield func([]*look) bool) {
		var all []*look
		for range p.cycles(logr.NewContext(ctx, logr.New(cycleLog{memory: p.memory, looks: &all}))) {
			if !yield(all) {
				return
			}
			for _, l := range all {
				for _, target := range l.preempted() {
					p.Remove(ctx, keyOf(target))
				}
			}
			all = nil
			if !p.requeueAt.IsZero() {
				p.SetTime(ctx, p.requeueAt)
			}
		}
	}
}
