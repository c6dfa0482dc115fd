// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// remembered is how long after its end a holding is known by its name in a save.
const remembered = 5 * time.Minute

// maxPayers bounds the pairs of LocalQueue and user that are told apart in a namespace: whoever may edit a TrainJob may make
// up a user, and some may make queues, and shall not use up the place of others.
const maxPayers = 100

// payer is whom a holding is charged to.
type payer struct{ localQueue, user string }

// Book has totals of what has ended, and what is held now. Its methods decide by what they are given alone.
type Book struct {
	// began is when the book began: nothing before counts.
	began time.Time
	// totals are by phase and, of runs that ended, by outcome.
	totals map[slot]float64
	open   map[types.UID]*Holding
	// closed has the ends of holdings that Workloads still tell of, or old copies of them, and when.
	closed map[types.UID]closing
	// assumed is the time up to which all that ended is in the totals, but for closed.
	assumed time.Time
	// merged is what of the totals came from series that were put together.
	merged map[slot]float64
	// whole are the namespaces whose queues and users are not told apart any more.
	whole map[string]bool
	// payers are those that are told apart, by namespace.
	payers map[string]sets.Set[payer]
	// changes counts what is to be saved.
	changes uint64
}

type closing struct {
	UID      types.UID `json:"uid"`
	Version  string    `json:"version"`
	Reserved time.Time `json:"reserved"`
	Ended    time.Time `json:"ended"`
	// Gone is when its Workload was seen to be gone: whoever still tells of it has an old copy.
	Gone time.Time `json:"gone,omitzero"`
	// Released is set where Version tells that the quota was given back: what a newer one tells is another holding.
	Released bool `json:"released,omitempty"`
}

// NewBook returns an empty book that counts from now on.
func NewBook(now time.Time) *Book {
	return &Book{
		began: now, assumed: now,
		totals: map[slot]float64{}, merged: map[slot]float64{}, open: map[types.UID]*Holding{},
		closed: map[types.UID]closing{}, payers: map[string]sets.Set[payer]{},
	}
}

// Observe takes note of what a Workload proves. known is a time until which what the book says is held was there.
func (b *Book) Observe(r Reading, now, known time.Time) {
	h, closed := b.open[r.UID], b.closed[r.UID]
	if !closed.Gone.IsZero() || h != nil && older(r.Version, h.Version) || older(r.Version, closed.Version) {
		return
	}
	if h != nil && !h.reserved().Equal(r.Reserved) {
		b.close(h, h.former(r, known), r)
		h = nil
	}
	if r.Reserved.IsZero() || b.has(r) {
		return
	}
	if h != nil {
		h.keep(r)
	}
	r.Shares = b.bounded(r.Shares)
	if h == nil {
		h = begin(r)
		b.open[r.UID] = h
		b.changes++
	} else if h.follow(r, now) {
		h.fold(b.began)
		b.changes++
	}
	if !r.Ended.IsZero() {
		b.end(h, r.Ended)
	}
}

// has reports whether the holding of a reading is in the totals already.
func (b *Book) has(r Reading) bool {
	if c, ok := b.closed[r.UID]; ok {
		// Times are whole seconds: quota may be given back and reserved again within one.
		return !r.Reserved.After(c.Reserved) && !(c.Released && older(c.Version, r.Version))
	}
	// What is open is in no total, whenever it ended.
	return b.open[r.UID] == nil && !r.Ended.IsZero() && !r.Ended.After(b.assumed)
}

// close ends a holding whose Workload tells of something else now.
func (b *Book) close(h *Holding, at time.Time, r Reading) {
	released := !r.Released.IsZero()
	if released && h.follow(Reading{UID: r.UID, Version: r.Version, Marks: r.Marks}, at) {
		h.Outcome = r.Outcome
	}
	h.Outcome = cmp.Or(h.Outcome, metrics.OutcomeLost)
	b.end(h, at)
	c := b.closed[h.UID]
	c.Released = released
	b.closed[h.UID] = c
}

// Gone takes note that a Workload is seen to be gone now, at the latest by a time.
func (b *Book) Gone(uid types.UID, by, now time.Time) {
	if h := b.open[uid]; h != nil {
		h.Outcome = cmp.Or(h.Outcome, metrics.OutcomeDeleted)
		b.end(h, by)
	}
	if c, ok := b.closed[uid]; ok {
		c.Gone = now
		b.closed[uid] = c
	}
}

// prune forgets Workloads that are gone for so long that nobody has a copy of them any more.
func (b *Book) prune(now time.Time) {
	maps.DeleteFunc(b.closed, func(_ types.UID, c closing) bool {
		return !c.Gone.IsZero() && c.Gone.Before(now.Add(-remembered))
	})
}

// observeEnd is Observe, and reports whether something ended by that of which the Workload may soon tell no more: that
// pods ran, or that quota was held for a run which is stopped now.
func (b *Book) observeEnd(r Reading, now time.Time) bool {
	before := b.phase(r.UID)
	b.Observe(r, now, time.Time{})
	after := b.phase(r.UID)
	return after != before && (before == metrics.PhaseRunning || before == metrics.PhaseWaiting && after != metrics.PhaseRunning)
}

// phase is what a Workload does with the quota that it holds; empty: it holds none.
func (b *Book) phase(uid types.UID) string {
	if h := b.open[uid]; h != nil {
		return h.last().Phase
	}
	return ""
}

func (b *Book) end(h *Holding, at time.Time) {
	h.seconds(b.began, at, func(s Series, phase string, seconds float64) {
		b.totals[slot{s, phase}] += seconds
		if phase == metrics.PhaseRunning {
			b.totals[slot{s, h.Outcome}] += seconds
		}
	})
	delete(b.open, h.UID)
	b.changes++
	b.closed[h.UID] = closing{UID: h.UID, Version: h.Version, Reserved: h.reserved(), Ended: at}
}

// older reports whether one resource version came before another one; what cannot be compared did not.
func older(a, b string) bool {
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order < 0
}

// forgotten reports whether the objects of a run are about to forget what it used: it is stopped before its end.
func (b *Book) forgotten() bool {
	return slices.ContainsFunc(slices.Collect(maps.Values(b.open)), func(h *Holding) bool {
		return h.last().Phase == metrics.PhaseStopping && (h.Outcome == metrics.OutcomeLost || h.Outcome == metrics.OutcomeDeleted)
	})
}

// Totals returns what was held until now, by phase, and the ended runs of it, by outcome.
func (b *Book) Totals(now time.Time) map[slot]float64 {
	totals := maps.Clone(b.totals)
	for _, h := range b.open {
		h.seconds(b.began, now, func(s Series, phase string, seconds float64) { totals[slot{s, phase}] += seconds })
	}
	return totals
}

// Holds returns what is held now, by phase.
func (b *Book) Holds() map[slot]float64 {
	holds := map[slot]float64{}
	for _, h := range b.open {
		for _, share := range h.last().Shares {
			holds[slot{share.Series, h.last().Phase}] += share.Amount
		}
	}
	return holds
}

// bounded puts queues and users beyond the limit together.
func (b *Book) bounded(shares []Share) []Share {
	if len(shares) == 0 || b.tellsApart(shares[0].Series) {
		return shares
	}
	return kueuelib.Map(shares, func(s *Share) Share { return Share{s.withoutQueue(), s.Amount} })
}

// tellsApart reports whether queue and user of a series have a place among those of its namespace, and gives them one that
// is free.
func (b *Book) tellsApart(s Series) bool {
	who, known := payer{s.LocalQueue, s.User}, b.payers[s.Namespace]
	if s == s.withoutQueue() || known.Has(who) && !b.whole[s.Namespace] {
		return true
	}
	if b.whole[s.Namespace] || len(known) >= maxPayers {
		return false
	}
	b.payers[s.Namespace] = known.Union(sets.New(who))
	return true
}
