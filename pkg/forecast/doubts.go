// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"math"
	"time"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// evidence is how likely what an ended job ran is by those who came before it: by each level, and by all jobs.
type evidence struct {
	near, count [len(levels)]float64
	all         float64
}

// learnDoubts sets how much to doubt that jobs near each other are alike, as it makes the most likely what has ended.
func (r *Runtimes) learnDoubts(families []family) {
	seen := r.evidence(families)
	if len(seen) < enough {
		return
	}
	best := likelihood(seen, &r.levels)
	for range 2 {
		for l := range levels {
			for _, factor := range []float64{0.25, 1, 4, 16, 64, 1e6} {
				tried := r.levels
				tried[l].doubt = levels[l].doubt * factor
				if now := likelihood(seen, &tried); now > best {
					best, r.levels = now, tried
				}
			}
		}
	}
}

// evidence is that of the latest jobs of each kin.
func (r *Runtimes) evidence(families []family) []evidence {
	const latest = 300
	var all []evidence
	for _, f := range families { // In one order, in which sums are always the same.
		k := r.kin[f]
		mean, deviation := logarithms(k)
		relatives := relatives{past: k}
		for n := len(k) - 1; n > 0 && n >= len(k)-latest; n-- {
			m := k[n]
			if !m.Ended || deviation == 0 {
				continue
			}
			e := evidence{all: normal(logOf(m.For), mean, deviation)}
			for l, near := range relatives.before(n) {
				e.near[l], e.count[l] = near.past.density(k, l, logOf(m.For))
			}
			all = append(all, e)
		}
	}
	return all
}

// density is that of the running times of the ended jobs of a span, times how many they are.
func (s span) density(k kin, l int, at float64) (sum, count float64) {
	const most = 200
	for n := max(s.first, s.next-most); n < s.next; n++ {
		if m := &k[n]; m.Ended {
			sum += normal(at, logOf(m.For), levels[l].spread)
			count++
		}
	}
	return sum, count
}

func likelihood(seen []evidence, levels *[len(levels)]level) float64 {
	var sum float64
	for _, e := range seen {
		density := e.all
		for l := len(levels) - 1; l >= 0; l-- {
			density = (e.near[l] + levels[l].doubt*density) / (e.count[l] + levels[l].doubt)
		}
		sum += math.Log(max(density, math.SmallestNonzeroFloat64))
	}
	return sum
}

func logarithms(k kin) (mean, deviation float64) {
	ended := kueuelib.Pick(k, func(p *Past) bool { return p.Ended })
	var sum, square float64
	for _, m := range ended {
		sum += logOf(m.For)
		square += logOf(m.For) * logOf(m.For)
	}
	mean = sum / float64(len(ended))
	return mean, math.Sqrt(max(0, square/float64(len(ended))-mean*mean))
}

func logOf(d time.Duration) float64 { return math.Log(max(1, d.Seconds())) }

func normal(at, mean, deviation float64) float64 {
	x := (at - mean) / deviation
	return math.Exp(-x*x/2) / (deviation * math.Sqrt(2*math.Pi))
}
