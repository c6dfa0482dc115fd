// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"cmp"
	"math"
	"slices"
	"time"
)

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
		r.measured[like] = &group{like: like, ran: thinned(of), known: ended(of) >= enough}
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
