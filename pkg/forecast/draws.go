// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"math"
	"math/rand/v2"
	"time"
)

// Draws draws running times for one future. Jobs are to be drawn in the order of their submits.
type Draws struct {
	random    *rand.Rand
	survivals map[*Ran]survival
	runtimes  *Runtimes
	beliefs   map[string]*belief
}

// NewDraws returns those of a seed.
func NewDraws(runtimes *Runtimes, seed, future uint64) *Draws {
	return &Draws{random: rand.New(rand.NewPCG(seed, future)), survivals: map[*Ran]survival{}, runtimes: runtimes, beliefs: map[string]*belief{}}
}

// Rest returns how long a job runs on that is there; zero where nothing is known.
func (d *Draws) Rest(k Running) time.Duration { return d.draw(k, k.subject.Running) }

// Whole returns how long a job runs from its start.
func (d *Draws) Whole(k Running) time.Duration { return d.draw(k, 0) }

// draw draws how long a job runs on that has run for some time.
func (d *Draws) draw(k Running, after time.Duration) time.Duration {
	u := 1 - d.random.Float64() // Not zero. Drawn always, so that one job does not change the luck of others.
	limit := k.subject.Limit
	var total time.Duration
	switch {
	case k.Source == Reported && after > 0:
		return max(time.Second, *k.subject.Reported)
	case k.group != nil:
		total = d.like(&k, u, after)
	case k.Source == Limited:
		total = limit
	case k.Source == Assumed:
		total = k.assumed
		if after >= total { // It runs longer than was assumed: as long again, then.
			total = 2 * after
		}
	case k.Source == Reported:
		total = k.subject.Running + *k.subject.Reported
	default:
		return 0
	}
	if limit > 0 {
		total = min(total, limit)
	}
	return max(time.Second, total-after)
}

// like draws from the jobs that are like one, and near it.
func (d *Draws) like(k *Running, u float64, after time.Duration) time.Duration {
	s := d.survival(k.group.ran)
	b := d.beliefs[k.subject.Queue]
	if b == nil {
		b = newBelief(d.runtimes.queues[k.subject.Queue])
		d.beliefs[k.subject.Queue] = b
	}
	b.until(k.subject.Submitted)
	above := math.Inf(-1)
	if after > 0 {
		above = scoreOf(s.at(after))
	}
	return max(after, s.draw(longerThan(b.draw(u, above)), 0))
}

// survival weighs the jobs of a sample differently in each future, so that what few jobs tell is told with less certainty.
func (d *Draws) survival(sample []Ran) survival {
	s, found := d.survivals[&sample[0]]
	if !found {
		s = newSurvival(sample, func(int) float64 { return d.random.ExpFloat64() })
		d.survivals[&sample[0]] = s
	}
	return s
}
