// SPDX-License-Identifier: Apache-2.0

package ledger

import "time"

// Total is how many resource seconds there were of something: of a phase, or of runs with an outcome.
type Total struct {
	Series
	Is      string  `json:"is"`
	Seconds float64 `json:"seconds"`
}

// Prove returns what readings prove of a time by themselves, without anything that was saved: by
// phase, and of runs that ended in it, by outcome.
func Prove(readings []Reading, from, to time.Time) (held, ended []Total) {
	b := NewBook(from)
	for _, r := range readings {
		b.Observe(r, to, time.Time{})
	}
	now, done := b.Totals(to)
	return totals(now), totals(done)
}
