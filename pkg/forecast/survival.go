// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Ran is how long a job has run. One that has not Ended runs still, or was stopped: it would have run longer.
type Ran struct {
	For   time.Duration
	Ended bool
	// Seen is how long it had run when it would have been seen to end for the first time: of those that had ended
	// before, nothing is left. Zero is from its start.
	Seen time.Duration
}

// seen is when it counts first: at its end at the latest.
func (r *Ran) seen() time.Duration { return min(r.Seen, r.For-1) }

// survival is the share of jobs that run longer than a time, after Kaplan and Meier: jobs that have not ended
// count until the time that is known of them. Leaving them out would have all jobs end too early, since it is the
// long ones that have not ended yet. One counts from when it would have been seen to end, or those would be too many
// that ran for long enough to be there still. Beyond the last end it goes on as the longest of them do, by a power of time.
type survival struct {
	times []time.Duration
	left  []float64
	// tail is the exponent of that power.
	tail float64
}

// newSurvival weighs each of ran, which are sorted by time.
func newSurvival(ran []Ran, weight func(int) float64) survival {
	weights := make([]float64, len(ran))
	order := make([]int, len(ran))
	for n := range ran {
		weights[n], order[n] = weight(n), n
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ran[a].seen(), ran[b].seen()) })
	s, left, atRisk := survival{}, 1.0, 0.0
	for n := 0; n < len(ran); {
		var ended, gone float64
		at := ran[n].For
		for ; len(order) > 0 && ran[order[0]].seen() < at; order = order[1:] {
			atRisk += weights[order[0]]
		}
		for ; n < len(ran) && ran[n].For == at; n++ {
			gone += weights[n]
			if ran[n].Ended {
				ended += weights[n]
			}
		}
		if ended > 0 && (ended < atRisk || len(order) == 0) { // Where all seen so far have ended, others are seen later.
			left *= max(0, 1-ended/atRisk)
			s.times, s.left = append(s.times, at), append(s.left, left)
		}
		atRisk -= gone
	}
	s.tail = tailOf(ran, weights)
	return s
}

// longest is the part of the jobs by which those are judged that run longer than any that has ended.
const longest = 0.2

// unknown is the exponent of a tail of which nothing is known: of those that have run for some time, half then run on for
// at least four tenths of it.
const unknown = 2

// tailOf is the exponent that fits best to the longest jobs, or to all that ran on beyond the last end where these are
// more; unknown where they tell nothing.
func tailOf(ran []Ran, weights []float64) float64 {
	last := len(ran) - 1
	for last >= 0 && !ran[last].Ended {
		last--
	}
	from := int(float64(len(ran)) * (1 - longest))
	first := from
	if last < from {
		from, first = max(0, last), last+1
	}
	var ended, sum float64
	for n := first; n < len(ran); n++ {
		if ran[from].For > 0 {
			sum += weights[n] * math.Log(float64(ran[n].For)/float64(max(ran[from].For, ran[n].seen())))
		}
		if ran[n].Ended {
			ended += weights[n]
		}
	}
	const few = 0.5 // As if half a job had been seen that tells nothing.
	return (ended + few) / (sum + few/unknown)
}

// at returns the share that runs longer than t.
func (s survival) at(t time.Duration) float64 {
	n, found := slices.BinarySearch(s.times, t)
	if found {
		n++
	}
	switch {
	case n == 0:
		return 1
	case n < len(s.times) || s.left[n-1] == 0:
		return s.left[n-1]
	}
	return s.left[n-1] * math.Pow(float64(s.times[n-1])/float64(t), s.tail)
}

// draw returns how long a job runs that has run for some time, all in all: the time that a share u of such jobs
// runs longer than.
func (s survival) draw(u float64, after time.Duration) time.Duration {
	last := len(s.times) - 1
	left := s.at(after)
	if last < 0 || left <= 0 || after >= s.times[last] {
		// That others have all ended at about one time says nothing of one that has not.
		return power(max(after, time.Minute), u, min(s.tail, unknown))
	}
	n, _ := slices.BinarySearchFunc(s.left, u*left, func(a, b float64) int { return cmp.Compare(b, a) })
	if n <= last {
		return max(s.times[n], after)
	}
	return power(s.times[last], u*left/s.left[last], s.tail)
}

// power draws from a tail that begins at a time.
func power(from time.Duration, u, tail float64) time.Duration {
	const century = 100 * 365 * 24 * time.Hour
	return time.Duration(min(float64(from)*math.Pow(u, -1/tail), float64(century)))
}

// Histogram is how long the jobs of a queue ran that have ended, where they are not known one by one.
type Histogram struct {
	// Queue is that of Traits; empty where queues are not told apart.
	Queue string
	// Buckets are sorted by their bounds; the last one has them all.
	Buckets []Bucket
}

// Bucket counts the jobs that ran for no longer than a time.
type Bucket struct {
	// Seconds are infinite in the last one.
	Seconds, Jobs float64
}

// ran spreads the jobs of each bucket evenly by the logarithm of their times. Of those of the last one it is known only
// that they ran for longer than the bound before.
func (h *Histogram) ran() []Ran {
	var all []Ran
	from := Bucket{Seconds: 1}
	for _, b := range h.Buckets {
		jobs := int(math.Round(b.Jobs) - math.Round(from.Jobs))
		for n := range jobs {
			r := Ran{For: time.Duration(from.Seconds * float64(time.Second))}
			if !math.IsInf(b.Seconds, 1) {
				share := (float64(n) + 0.5) / float64(jobs)
				r.For, r.Ended = time.Duration(float64(r.For)*math.Pow(b.Seconds/from.Seconds, share)), true
			}
			all = append(all, r)
		}
		from = b
	}
	return all
}

// Month is how far back histograms go.
const Month = 30 * 24 * time.Hour

// learnMeasured makes groups of what histograms have. Those that run now count, too, since it is the long ones that have not
// ended; from when a histogram would have seen them end, which has more than what the cluster still has.
func (r *Runtimes) learnMeasured(past []Past, histograms []Histogram) {
	ran := map[string][]Ran{}
	add := func(queue string, more ...Ran) {
		for _, like := range []string{ofQueue(queue), allQueues} {
			ran[like] = append(ran[like], more...)
		}
	}
	for n := range histograms {
		add(histograms[n].Queue, histograms[n].ran()...)
	}
	for n := range past {
		if !past[n].Ended {
			ran := past[n].Ran
			ran.Seen = max(0, ran.For-Month)
			add(past[n].Queue, ran)
		}
	}
	for like, of := range ran {
		slices.SortStableFunc(of, func(a, b Ran) int { return cmp.Compare(a.For, b.For) })
		if tells(of) {
			r.measured[like] = &group{thinned(of)}
		}
	}
}

// thinned keeps an even sample of those of a month, which may be many: each future sorts its own copy.
func thinned(ran []Ran) []Ran {
	const most = 2000
	every := len(ran)/most + 1
	var kept []Ran
	for n := every / 2; n < len(ran); n += every {
		kept = append(kept, ran[n])
	}
	return kept
}
