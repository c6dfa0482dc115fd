// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"cmp"
	"context"
	"iter"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/workload"
	workloadevict "sigs.k8s.io/kueue/pkg/workload/evict"
)

// Settle plays cycles until there is no more to come of them, or the context is done, and returns what happened, in its
// order.
func (p *Player) Settle(ctx context.Context) (all []Moved) {
	for moved := range p.cycles(quietly(ctx)) {
		all = append(all, moved...)
	}
	return all
}

func (p *Player) cycles(ctx context.Context) iter.Seq[[]Moved] {
	return func(yield func([]Moved) bool) {
		seen := sets.New[client.ObjectKey]()
		for idle := 0; idle <= p.patience && ctx.Err() == nil; idle++ {
			p.cycleClock.asked.Store(0)
			p.memory.requeued = nil
			schedule(p.kueue, &cycleContext{Context: ctx, clock: p.cycleClock})
			if p.cycleClock.noHeads() {
				return
			}
			moved := p.observe(ctx)
			if len(moved) > 0 {
				seen.Clear()
			}
			if !seen.HasAll(p.memory.requeued...) || len(moved) > 0 {
				idle = 0
			}
			seen.Insert(p.memory.requeued...)
			if !yield(moved) {
				return
			}
		}
	}
}

// observe tells queues and cache of what was written, as Kueue's controller of Workloads does.
func (p *Player) observe(ctx context.Context) []Moved {
	written := p.memory.written
	p.memory.written = nil
	sortEvictions(written)
	var moved []Moved
	for _, w := range written {
		move := w.move()
		if move == "" {
			continue
		}
		p.queues.DeleteWorkload(logr.Discard(), workload.Key(w.after))
		p.cache.AddOrUpdateWorkload(logr.Discard(), w.after.DeepCopy())
		if move != Evicted {
			p.settlePenalty(w.after)
		}
		p.queues.QueueSecondPassIfNeeded(ctx, w.after.DeepCopy(), 0)
		moved = append(moved, Moved{move, w.after})
	}
	return moved
}

// sortEvictions puts those in a row by their names, which Kueue writes beside each other. All else it writes one after
// the other.
func sortEvictions(written []write) {
	for first := 0; first < len(written); first++ {
		last := first
		for last < len(written) && written[last].move() == Evicted {
			last++
		}
		slices.SortFunc(written[first:last], func(a, b write) int {
			return cmp.Or(cmp.Compare(a.after.Namespace, b.after.Namespace), cmp.Compare(a.after.Name, b.after.Name))
		})
		first = max(first, last)
	}
}

func (w write) move() Move {
	switch {
	case workloadevict.IsEvicted(w.after) && !workloadevict.IsEvicted(w.before):
		return Evicted
	case workload.IsAdmitted(w.after) && !workload.IsAdmitted(w.before):
		return Admitted
	case workload.HasQuotaReservation(w.after) && !workload.HasQuotaReservation(w.before):
		return Reserved
	}
	return ""
}

// HowIs returns what was the last move of a Workload that has quota, and nothing for one that waits.
func HowIs(wl *kueue.Workload) Move {
	if !workload.HasQuotaReservation(wl) {
		return ""
	}
	return write{before: &kueue.Workload{}, after: wl}.move()
}
