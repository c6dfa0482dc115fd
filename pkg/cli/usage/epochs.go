// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"slices"
	"time"
)

// sample is a value at a time.
type sample struct {
	at    time.Time
	value float64
}

// samples are what Prometheus has of one series.
type samples struct {
	// before is its last value before the window, where it has one.
	before *float64
	// within are its values within, in the order of time.
	within []sample
}

// epoch is a time in which the ledger's counters only grow.
type epoch struct{ from, to time.Time }

// epochs splits a window where the ledger began again at 0. The values of began are when it did, in
// seconds since 1970. A value is valid until stale after it was read: so long, those of the former
// epoch may be taken for it, also where the ledger began just before the window. known is whether Prometheus
// knew the ledger before the window.
func epochs(began []float64, known bool, from, to time.Time, stale time.Duration) []epoch {
	began = slices.Compact(slices.Sorted(slices.Values(began)))
	out := []epoch{{from, to}}
	for i, seconds := range began {
		at := time.UnixMilli(int64(seconds * 1000))
		if !at.After(from) {
			out[0].from = later(from, at.Add(stale))
			continue
		}
		if i == 0 && !known {
			continue
		}
		out[len(out)-1].to = at
		out = append(out, epoch{at.Add(stale), to})
	}
	return out
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// used returns how much a counter grew in all epochs. A counter is the total of a ledger, whoever
// tells it: what counts is the difference, and where another process tells a moment later a bit
// less, that is no new beginning. fresh is whether the ledger began within the window; then what
// it has at the first look was used in it.
func (s samples) used(epochs []epoch, fresh bool, first time.Time) float64 {
	sum := 0.0
	for i, e := range epochs {
		base, top := 0.0, 0.0
		if i == 0 {
			base = s.base(fresh, first)
			top = base
		}
		for _, p := range s.within {
			if !p.at.Before(e.from) && (p.at.Before(e.to) || i == len(epochs)-1) {
				top = max(top, p.value)
			}
		}
		sum += top - base
	}
	return sum
}

// base is what the counter had when the window began. One that began later began at 0, unless the
// ledger itself was not known until first.
func (s samples) base(fresh bool, first time.Time) float64 {
	switch {
	case s.before != nil:
		return *s.before
	case fresh || len(s.within) == 0 || s.within[0].at.After(first):
		return 0
	}
	return s.within[0].value
}

// notes say what a bill of these epochs does not have.
func notes(epochs []epoch, fresh bool, from, first time.Time) []string {
	var out []string
	if !fresh && first.After(from) {
		out = append(out, fmt.Sprintf("Prometheus knows the ledger since %s only; what was used before is not in the bill", first.UTC().Format(time.RFC3339)))
	}
	for _, e := range epochs[1:] {
		out = append(out, fmt.Sprintf("the ledger was lost and began again at 0 about %s; what was used just before may not be in the bill", e.from.UTC().Format(time.RFC3339)))
	}
	return out
}
