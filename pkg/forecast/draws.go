// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"math/rand/v2"
	"time"
)

// Draws draws running times for one future. Jobs are to be drawn in the order of their submits.
type Draws struct {
	random    *rand.Rand
	survivals map[*group]survival
	runtimes  *Runtimes
	relatives map[family]*relatives
}

// NewDraws returns those of a seed.
func NewDraws(runtimes *Runtimes, seed, future uint64) *Draws {
	return &Draws{random: rand.New(rand.NewPCG(seed, future)), survivals: map[*group]survival{}, runtimes: runtimes, relatives: map[family]*relatives{}}
}

// Rest returns how long a job runs on, or all in all where it has not started; zero where nothing is known.
func (d *Draws) Rest(k Running) time.Duration {
	after, limit := k.subject.Running, k.subject.limit()
	var total time.Duration
	switch {
	case k.group != nil:
		total = d.like(&k, after)
	case k.Source == Limited:
		total = limit
	case k.Source == Assumed:
		total = d.runtimes.assume
		if after >= total { // It runs longer than was assumed: as long again, then.
			total = 2 * after
		}
	case k.Source == Reported:
		total = after + *k.subject.Reported
	default:
		return 0
	}
	if limit > 0 {
		total = min(total, limit)
	}
	return max(time.Second, total-after)
}

// like draws from the jobs that are near a job and like it, or else of its group.
func (d *Draws) like(k *Running, after time.Duration) time.Duration {
	s := &k.subject
	r := d.of(s)
	if n := r.past.find(s); n >= 0 && after > 0 {
		return max(after, r.totals[n])
	}
	last := s.Submitted.Add(levels[len(levels)-1].within)
	total := d.longer(r, k.group, r.around(s.Submitted, last), after)
	if !s.Submitted.IsZero() && (len(r.later) == 0 || !s.Submitted.Before(r.later[len(r.later)-1].Submitted)) {
		r.later = append(r.later, Past{Submitted: s.Submitted, Ran: Ran{For: total}})
	}
	return total
}

// of returns the kin of a job in this future, with how long those run that run now. Each is judged by those who came
// before it: of those after it, the ones that have ended already are the short ones.
func (d *Draws) of(s *Subject) *relatives {
	f := d.runtimes.familyOf(s.Traits, s.Limit)
	if r := d.relatives[f]; r != nil {
		return r
	}
	r := &relatives{past: d.runtimes.kin[f]}
	d.relatives[f] = r
	r.totals = make([]time.Duration, len(r.past))
	for n, m := range r.past {
		r.totals[n] = m.For
		if m.Ended {
			continue
		}
		if g := d.runtimes.Of(Subject{Traits: s.Traits, Limit: m.Limit}).group; g != nil {
			r.totals[n] = d.longer(r, g, r.before(n), m.For)
		}
	}
	return r
}

// longer draws until it finds a time that is longer than a job has run.
func (d *Draws) longer(r *relatives, g *group, near near, after time.Duration) time.Duration {
	const often = 300 // Then nobody near has run as long.
	s := d.survival(g)
	for range often {
		total, found := r.like(d.random, &d.runtimes.levels, &near)
		if !found {
			total = s.draw(1-d.random.Float64(), 0)
		}
		if total > after {
			return total
		}
	}
	return s.draw(1-d.random.Float64(), after)
}

// survival weighs the jobs of a group differently in each future, so that what few jobs tell is told with less certainty.
func (d *Draws) survival(g *group) survival {
	s, found := d.survivals[g]
	if !found {
		s = newSurvival(g.ran, func(int) float64 { return d.random.ExpFloat64() })
		d.survivals[g] = s
	}
	return s
}
