// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// neighbours are the jobs of a queue that have ended, in the order of their submits. Those that were submitted one
// after the other run for like times, since they are often parts of one experiment: were each drawn alone, what all
// of a queue take would come out far too certain.
//
// Each running time has a score, which is normal over all jobs: the part that it shares with its neighbours, and one
// of its own. The shared part fades from one submit to the next.
type neighbours struct {
	ended []scored
	// shared is the part of the variance that neighbours share, persistence what is left of it at the next submit.
	shared, persistence float64
}

type scored struct {
	submitted time.Time
	score     float64
}

// far is the distance in submits at which it is seen how fast what neighbours share fades.
const far = 20

func (r *Runtimes) learnNeighbours(past []Past) {
	survivals := map[*Ran]survival{}
	for _, p := range past {
		if !p.Ended || p.Submitted.IsZero() {
			continue
		}
		known := r.Of(Subject{Traits: p.Traits, Limit: p.Limit})
		if known.group == nil {
			continue
		}
		sample := known.group.ran
		s, found := survivals[&sample[0]]
		if !found {
			s = newSurvival(sample, func(int) float64 { return 1 })
			survivals[&sample[0]] = s
		}
		q := r.queues[p.Queue]
		if q == nil {
			q = &neighbours{}
			r.queues[p.Queue] = q
		}
		q.ended = append(q.ended, scored{p.Submitted, scoreOf((s.at(p.For-1) + s.at(p.For)) / 2)})
	}
	for _, q := range r.queues {
		slices.SortStableFunc(q.ended, func(a, b scored) int { return cmp.Compare(a.submitted.UnixNano(), b.submitted.UnixNano()) })
		near, distant := q.correlation(1), q.correlation(far)
		if near > 0 && len(q.ended) >= 2*far {
			q.persistence = min(0.98, max(0.2, math.Pow(max(distant, 0.001)/near, 1.0/(far-1))))
			q.shared = min(0.95, near/q.persistence)
		}
	}
}

// correlation is that of scores some submits apart.
func (q *neighbours) correlation(apart int) float64 {
	var product, square float64
	for n := range q.ended {
		square += q.ended[n].score * q.ended[n].score
		if n >= apart {
			product += q.ended[n].score * q.ended[n-apart].score
		}
	}
	if square == 0 {
		return 0
	}
	return product / square
}

// scoreOf is the normal score of the time that a share of jobs runs longer than.
func scoreOf(longer float64) float64 {
	const most = 1e-6
	return math.Sqrt2 * math.Erfinv(1-2*min(1-most, max(most, longer)))
}

// longerThan is the share of a normal distribution above a score.
func longerThan(score float64) float64 { return math.Erfc(score/math.Sqrt2) / 2 }

// belief is what is thought, in one future, of the part that the next job shares with its neighbours.
type belief struct {
	*neighbours
	next           int
	mean, variance float64
}

func newBelief(q *neighbours) *belief {
	if q == nil {
		q = &neighbours{}
	}
	// What is long ago says nothing any more.
	const recent = 300
	return &belief{neighbours: q, next: max(0, len(q.ended)-recent), variance: 1}
}

// until goes on to a submit, by what has ended of those before.
func (b *belief) until(submitted time.Time) {
	for b.next < len(b.ended) && (submitted.IsZero() || b.ended[b.next].submitted.Before(submitted)) {
		b.fade()
		b.learn(b.ended[b.next].score)
		b.next++
	}
	b.fade()
}

func (b *belief) fade() {
	b.mean *= b.persistence
	b.variance = b.persistence*b.persistence*b.variance + 1 - b.persistence*b.persistence
}

// expected is the distribution of the next score.
func (b *belief) expected() (mean, deviation float64) {
	return math.Sqrt(b.shared) * b.mean, math.Sqrt(b.shared*b.variance + 1 - b.shared)
}

// learn is the update of Kalman's filter.
func (b *belief) learn(score float64) {
	mean, deviation := b.expected()
	gain := b.variance * math.Sqrt(b.shared) / (deviation * deviation)
	b.mean += gain * (score - mean)
	b.variance *= 1 - gain*math.Sqrt(b.shared)
}

// draw draws the next score, which is above some, and believes it.
func (b *belief) draw(u, above float64) float64 {
	mean, deviation := b.expected()
	score := mean + deviation*scoreOf(u*longerThan((above-mean)/deviation))
	score = max(score, above)
	b.learn(score)
	return score
}
