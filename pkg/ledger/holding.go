// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// Holding is quota from its reservation until it is given back, as far as it is known.
type Holding struct {
	// UID, Name and Version are those of the Workload when it was last looked at.
	UID     types.UID            `json:"uid"`
	Name    types.NamespacedName `json:"name"`
	Version string               `json:"version"`
	// Spans are what was held and what for, one after the other; the last one lasts. Past has the seconds of those
	// before the first, and Reserved is when the quota was reserved where there are some.
	Spans    []Span    `json:"spans"`
	Past     []Total   `json:"past,omitempty"`
	Reserved time.Time `json:"reserved,omitzero"`
	// Admitted and Accumulated are those of the Reading.
	Admitted    time.Time `json:"admitted,omitzero"`
	Accumulated int32     `json:"accumulated,omitempty"`
	// Outcome is what the run comes to if it ends as it looks now.
	Outcome string `json:"outcome,omitempty"`
}

// maxSpans is how many spans are kept one by one, and from how many spans or past series on a holding stays with its user
// and its priority class: tenants may change them, and have their pods lose readiness, as often as they like, and none shall
// make the account too large to be saved.
const maxSpans = 20

// keep has a reading tell what is known of the holding where that is not known any more, or changes too often.
func (h *Holding) keep(r Reading) {
	if len(h.last().Shares) == 0 {
		return
	}
	before, changesOften := h.last().Shares[0], len(h.Spans)+len(h.Past) >= maxSpans
	for i := range r.Shares {
		if r.userUnknown || changesOften {
			r.Shares[i].User = before.User
		}
		if changesOften {
			r.Shares[i].PriorityClass = before.PriorityClass
		}
	}
}

// Span is a time in which nothing changes.
type Span struct {
	Mark
	Shares []Share `json:"shares"`
}

func begin(r Reading) *Holding {
	h := &Holding{UID: r.UID, Name: r.Name, Version: r.Version}
	for _, m := range r.Marks {
		h.mark(m, r.Shares)
	}
	h.admission(r)
	return h
}

func (h *Holding) admission(r Reading) {
	h.Admitted, h.Accumulated = r.Admitted, r.Accumulated
	if h.last().Phase == metrics.PhaseStopping || !r.Ended.IsZero() {
		h.Outcome = r.Outcome
	}
}

// reserved is when the quota was reserved, which tells one holding of a Workload from the next.
func (h *Holding) reserved() time.Time { return cmp.Or(h.Reserved, h.Spans[0].At) }

func (h *Holding) last() *Span { return &h.Spans[len(h.Spans)-1] }

// follow adds what a reading of the same holding tells more, and reports whether it does. A
// different amount, of which no object has the time, holds from now on.
func (h *Holding) follow(r Reading, now time.Time) bool {
	before, outcome, admitted := len(h.Spans), h.Outcome, h.Admitted
	h.Version = r.Version
	for _, m := range r.Marks {
		if !m.Assumed {
			h.mark(m, h.last().Shares)
		}
	}
	if len(r.Shares) > 0 && !slices.Equal(r.Shares, h.last().Shares) {
		h.Spans = append(h.Spans, Span{Mark{Phase: h.last().Phase, At: later(now, h.last().At)}, r.Shares})
	}
	if !r.Reserved.IsZero() {
		h.admission(r)
	}
	return len(h.Spans) != before || h.Outcome != outcome || !h.Admitted.Equal(admitted)
}

// mark begins the next phase. One of before the last is known better already, and a stop lasts until the end.
func (h *Holding) mark(m Mark, shares []Share) {
	if len(h.Spans) > 0 && (m.At.Before(h.last().At) || m.Phase == h.last().Phase || h.last().Phase == metrics.PhaseStopping) {
		return
	}
	h.Spans = append(h.Spans, Span{Mark{Phase: m.Phase, At: m.At}, shares})
}

// former returns when a holding ended, of whose Workload a reading tells that it gave the quota
// back or has another one now; at least it was there at known.
func (h *Holding) former(r Reading, known time.Time) time.Time {
	if !r.Released.IsZero() {
		return r.Released
	}
	if !h.Admitted.IsZero() && r.Accumulated > h.Accumulated {
		end := h.Admitted.Add(time.Duration(r.Accumulated-h.Accumulated) * time.Second)
		if !end.After(r.Reserved) {
			return end
		}
	}
	// It was never admitted, or several admissions went by that cannot be told apart.
	known = later(known, h.last().At)
	if !r.Reserved.IsZero() {
		known = earlier(known, r.Reserved)
	}
	return known
}

// fold sums up all spans but the last, where there are too many. Nothing before from counts.
func (h *Holding) fold(from time.Time) {
	if len(h.Spans) <= maxSpans {
		return
	}
	sums := map[slot]float64{}
	h.seconds(from, h.last().At, func(s Series, phase string, seconds float64) { sums[slot{s, phase}] += seconds })
	h.Reserved, h.Past, h.Spans = h.reserved(), sorted(sums), []Span{*h.last()}
}

// seconds adds what was held from a time until another one, by phase.
func (h *Holding) seconds(from, to time.Time, add func(s Series, phase string, seconds float64)) {
	for _, past := range h.Past {
		add(past.Series, past.Is, past.Seconds)
	}
	for i, span := range h.Spans {
		end := to
		if i+1 < len(h.Spans) {
			end = earlier(h.Spans[i+1].At, to)
		}
		held := end.Sub(later(span.At, from)).Seconds()
		if held <= 0 {
			continue
		}
		for _, share := range span.Shares {
			add(share.Series, span.Phase, share.Amount*held)
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}
