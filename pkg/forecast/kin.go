// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// level is how near to each other jobs were submitted. The nearer, the more likely they are parts of one experiment.
type level struct {
	within time.Duration
	// doubt is how many jobs of this level weigh as much as to look at the next level instead.
	doubt float64
	// spread is the deviation of the logarithms of running times of one experiment.
	spread float64
}

// levels are tried one after the other; who is like nobody near is like one of its group, whenever that was.
var levels = [...]level{{2 * time.Minute, 1, 0.02}, {20 * time.Minute, 5, 0.1}, {24 * time.Hour, 2, 0.5}}

// kin are jobs that may be parts of the same experiments, in the order of their submits.
type kin []Past

// family is what kin have in common.
type family struct {
	Traits
	limit time.Duration
}

type span struct{ first, next int }

func (s span) count() int { return max(0, s.next-s.first) }

// between are those that were submitted from a time until another.
func (k kin) between(from, until time.Time) span {
	at := func(p Past, t time.Time) int { return p.Submitted.Compare(t) }
	first, _ := slices.BinarySearchFunc(k, from, at)
	next, _ := slices.BinarySearchFunc(k, until, at)
	return span{first, next}
}

// find returns where a job is; negative where it is not.
func (k kin) find(s *Subject) int {
	same := k.between(s.Submitted, s.Submitted.Add(1))
	for n := same.first; n < same.next; n++ {
		if s.Job != "" && k[n].Job == s.Job {
			return n
		}
	}
	return -1
}

// learnKin finds who may be kin, and how alike they are.
func (r *Runtimes) learnKin(past []Past) {
	inOrder := kueuelib.Pick(past, func(p *Past) bool { return !p.Submitted.IsZero() })
	slices.SortStableFunc(inOrder, func(a, b Past) int {
		// Of one second those that have ended come first, then those that have run longest: they tell most of the others.
		return cmp.Or(a.Submitted.Compare(b.Submitted), running(&a)-running(&b), cmp.Compare(b.For, a.For))
	})
	r.levels, r.kin = levels, map[family]kin{}
	r.acrossQueues = across(inOrder, func(f *family) { f.Queue = "" })
	r.acrossLimits = across(inOrder, func(f *family) { f.limit = 0 })
	var families []family
	for _, p := range inOrder {
		f := r.familyOf(p.Traits, p.Limit)
		if r.kin[f] == nil {
			families = append(families, f)
		}
		r.kin[f] = append(r.kin[f], p)
	}
	r.learnDoubts(families)
}

// running is 1 for a job that has not ended.
func running(p *Past) int {
	if p.Ended {
		return 0
	}
	return 1
}

// familyOf names those that may be parts of the experiments of a job.
func (r *Runtimes) familyOf(t Traits, limit time.Duration) family {
	f := family{t, limit}
	if r.acrossQueues {
		f.Queue = ""
	}
	if r.acrossLimits {
		f.limit = 0
	}
	return f
}

// across reports whether experiments go across families, which widen makes one: jobs that come next to each other in
// different ones are about as often like each other as in the same one.
func across(inOrder []Past, widen func(*family)) bool {
	last := map[family]*Past{}
	var same, other struct{ alike, all float64 }
	for n := range inOrder {
		p := &inOrder[n]
		if !p.Ended {
			continue
		}
		f := family{p.Traits, p.Limit}
		wide := f
		widen(&wide)
		if before := last[wide]; before != nil {
			count := &other
			if f == (family{before.Traits, before.Limit}) {
				count = &same
			}
			count.all++
			if (before.For - p.For).Abs() <= max(before.For, p.For)/10 {
				count.alike++
			}
		}
		last[wide] = p
	}
	return other.all >= enough && other.alike*same.all > same.alike*other.all/2
}

// relatives are kin in one future.
type relatives struct {
	// past have ended or run; totals are how long all of them run.
	past   kin
	totals []time.Duration
	// later are who was drawn since.
	later kin
}

type near [len(levels)]struct{ past, later span }

// before finds those in front of the past one at a place: many may have been submitted in its second.
func (r *relatives) before(place int) (n near) {
	for l, level := range levels {
		first := r.past.between(r.past[place].Submitted.Add(-level.within), r.past[place].Submitted).first
		n[l].past = span{first, place}
	}
	return n
}

// around finds those that were submitted until a time.
func (r *relatives) around(submitted, until time.Time) (n near) {
	for l, level := range levels {
		from, to := submitted.Add(-level.within), submitted.Add(level.within)
		if to.After(until) {
			to = until
		}
		n[l].past, n[l].later = r.past.between(from, to), r.later.between(from, to)
	}
	return n
}

// like draws a job near another that is like it, and returns how long it runs; false where none is.
func (r *relatives) like(random *rand.Rand, levels *[len(levels)]level, n *near) (time.Duration, bool) {
	for l, level := range levels {
		past, later := n[l].past, n[l].later
		at := random.Float64() * (float64(past.count()+later.count()) + level.doubt)
		var like time.Duration
		switch place := int(at); {
		case place < past.count():
			like = r.totals[past.first+place]
		case place < past.count()+later.count():
			like = r.later[later.first+place-past.count()].For
		default:
			continue
		}
		return time.Duration(float64(like) * math.Exp(level.spread*random.NormFloat64())), true
	}
	return 0, false
}
