// SPDX-License-Identifier: Apache-2.0

package forecast_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// ranFor is past jobs of a queue that ran for some hours each.
func ranFor(traits forecast.Traits, ended bool, hours ...float64) []forecast.Past {
	var past []forecast.Past
	for n, h := range hours {
		past = append(past, forecast.Past{
			Traits: traits, Ran: forecast.Ran{For: time.Duration(h * float64(time.Hour)), Ended: ended},
			Submitted: begin.Add(time.Duration(n-1000) * time.Minute),
		})
	}
	return past
}

// many is n times the same.
func many(n int, hours float64) []float64 { return slices.Repeat([]float64{hours}, n) }

// counted is a histogram with so many within an hour, in the hour after that, and later.
func counted(queue string, first, second, later float64) forecast.Histogram {
	return forecast.Histogram{Queue: queue, Buckets: []forecast.Bucket{
		{Seconds: 3600, Jobs: first}, {Seconds: 7200, Jobs: first + second}, {Seconds: math.Inf(1), Jobs: first + second + later},
	}}
}

// median is that of the rest of a job over many futures.
func median(r *forecast.Runtimes, s forecast.Subject) time.Duration {
	var all []time.Duration
	for future := range uint64(400) {
		all = append(all, forecast.NewDraws(r, 1, future).Rest(r.Of(s)))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func TestRuntimes(t *testing.T) {
	a := forecast.Traits{Runtime: "torch", Queue: "a", GPUs: 8}
	cases := map[string]struct {
		past     []forecast.Past
		measured []forecast.Histogram
		assume   time.Duration
		subject  forecast.Subject
		source   forecast.Source
		like     string
		// between are bounds of the median of what is left.
		between [2]time.Duration
	}{
		"what the trainer says goes before all": {
			past:    ranFor(a, true, many(40, 1)...),
			subject: forecast.Subject{Traits: a, Running: time.Hour, Reported: ptr.To(7 * time.Hour)},
			source:  forecast.Reported, between: [2]time.Duration{7 * time.Hour, 7 * time.Hour},
		},
		"a report that is overdue says nothing": {
			past:    ranFor(a, true, many(40, 2)...),
			subject: forecast.Subject{Traits: a, Running: 90 * time.Minute, Reported: ptr.To(time.Duration(0))},
			source:  forecast.Similar, like: "runtime torch, queue a, 2 to 8 GPUs", between: [2]time.Duration{30 * time.Minute, 30 * time.Minute},
		},
		"jobs that are like it": {
			past:    ranFor(a, true, many(40, 2)...),
			subject: forecast.Subject{Traits: a},
			source:  forecast.Similar, like: "runtime torch, queue a, 2 to 8 GPUs", between: [2]time.Duration{2 * time.Hour, 2 * time.Hour},
		},
		"of one that runs already, what is left": {
			past:    ranFor(a, true, many(40, 2)...),
			subject: forecast.Subject{Traits: a, Running: 90 * time.Minute},
			source:  forecast.Similar, like: "runtime torch, queue a, 2 to 8 GPUs", between: [2]time.Duration{30 * time.Minute, 30 * time.Minute},
		},
		"those that have run long are judged by those that did": {
			past:    ranFor(a, true, slices.Concat(many(40, 1), many(20, 10))...),
			subject: forecast.Subject{Traits: a, Running: 2 * time.Hour},
			source:  forecast.Similar, like: "runtime torch, queue a, 2 to 8 GPUs", between: [2]time.Duration{8 * time.Hour, 8 * time.Hour},
		},
		"those that still run count for as long as they have": {
			past:    slices.Concat(ranFor(a, true, many(30, 1)...), ranFor(a, false, many(60, 1.5)...), ranFor(a, true, many(30, 3)...)),
			subject: forecast.Subject{Traits: a},
			source:  forecast.Similar, like: "runtime torch, queue a, 2 to 8 GPUs", between: [2]time.Duration{3 * time.Hour, 3 * time.Hour},
		},
		"what has run longer than any runs on for about as long as it has": {
			past:    ranFor(a, true, many(40, 1)...),
			subject: forecast.Subject{Traits: a, Running: 100 * time.Hour},
			source:  forecast.Similar, like: "runtime torch, queue a, 2 to 8 GPUs", between: [2]time.Duration{time.Second, 100 * time.Hour},
		},
		"a quarter runs still, long after the last end: what runs beyond that is one of them": {
			past:    slices.Concat(ranFor(a, true, slices.Concat(many(15, 0.5), many(15, 3))...), ranFor(a, false, many(10, 75)...)),
			subject: forecast.Subject{Traits: a, Running: 4 * time.Hour},
			source:  forecast.Similar, like: "runtime torch, queue a, 2 to 8 GPUs", between: [2]time.Duration{75 * time.Hour, 1e6 * time.Hour},
		},
		"of those that run still, only what is seen of them counts": {
			past: func() []forecast.Past {
				past := ranFor(a, false, many(10, 75)...)
				for n := range past {
					past[n].Seen = 74 * time.Hour
				}
				return slices.Concat(ranFor(a, true, slices.Concat(many(15, 0.5), many(15, 3))...), past)
			}(),
			subject: forecast.Subject{Traits: a, Running: 4 * time.Hour},
			source:  forecast.Similar, like: "runtime torch, queue a, 2 to 8 GPUs", between: [2]time.Duration{time.Hour, 10 * time.Hour},
		},
		"too few of its kind: the runtime": {
			past:    slices.Concat(ranFor(a, true, many(3, 1)...), ranFor(forecast.Traits{Runtime: "torch", Queue: "b"}, true, many(40, 4)...)),
			subject: forecast.Subject{Traits: a},
			source:  forecast.Similar, like: "runtime torch", between: [2]time.Duration{4 * time.Hour, 4 * time.Hour},
		},
		"no longer than its limit": {
			past:    ranFor(a, true, many(40, 4)...),
			subject: forecast.Subject{Traits: a, Limit: 3 * time.Hour},
			source:  forecast.Similar, like: "runtime torch, queue a, 2 to 8 GPUs", between: [2]time.Duration{3 * time.Hour, 3 * time.Hour},
		},
		"of those that started before ends are known, short ones are gone": {
			past: func() (past []forecast.Past) {
				past = slices.Concat(ranFor(a, true, many(40, 1)...), ranFor(a, true, many(10, 10)...))
				for _, p := range ranFor(a, true, many(400, 10)...) {
					p.Seen = 9 * time.Hour
					past = append(past, p)
				}
				return past
			}(),
			subject: forecast.Subject{Traits: a},
			source:  forecast.Similar, like: "runtime torch, queue a, 2 to 8 GPUs", between: [2]time.Duration{time.Hour, time.Hour},
		},
		"those of its queue that Prometheus has, where jobs like it are of other queues": {
			past:     ranFor(forecast.Traits{Queue: "b"}, true, many(40, 30)...),
			measured: []forecast.Histogram{counted("a", 0, 40, 0)},
			subject:  forecast.Subject{Traits: a, Limit: 20 * time.Hour},
			source:   forecast.Measured, like: "queue a", between: [2]time.Duration{time.Hour, 2 * time.Hour},
		},
		"jobs of its queue that are known one by one go before those": {
			past:     ranFor(forecast.Traits{Queue: "a"}, true, many(40, 30)...),
			measured: []forecast.Histogram{counted("a", 0, 40, 0)},
			subject:  forecast.Subject{Traits: a},
			source:   forecast.Similar, like: "queue a", between: [2]time.Duration{30 * time.Hour, 30 * time.Hour},
		},
		"Prometheus has too few of its queue: those of all": {
			measured: []forecast.Histogram{counted("a", 19, 0, 0), counted("b", 0, 60, 0)},
			subject:  forecast.Subject{Traits: a},
			source:   forecast.Measured, like: "all queues", between: [2]time.Duration{time.Hour, 2 * time.Hour},
		},
		"those of all where the manager puts queues together": {
			measured: []forecast.Histogram{counted("", 0, 20, 0)},
			subject:  forecast.Subject{Traits: a},
			source:   forecast.Measured, like: "all queues", between: [2]time.Duration{time.Hour, 2 * time.Hour},
		},
		"Prometheus has too few of all, however many run": {
			past:     ranFor(a, false, many(40, 1)...),
			measured: []forecast.Histogram{counted("a", 0, 19.4, 0)},
			subject:  forecast.Subject{Traits: a, Limit: 3 * time.Hour},
			source:   forecast.Limited, between: [2]time.Duration{3 * time.Hour, 3 * time.Hour},
		},
		"those that still run count beside those that Prometheus has": {
			past:     ranFor(a, false, many(80, 3)...),
			measured: []forecast.Histogram{counted("a", 0, 40, 0)},
			subject:  forecast.Subject{Traits: a},
			source:   forecast.Measured, like: "queue a", between: [2]time.Duration{3 * time.Hour, 1e6 * time.Hour},
		},
		"they do where the cluster has none that has ended": {
			past: func() []forecast.Past {
				past := ranFor(a, false, many(80, 20)...)
				for n := range past {
					past[n].Seen = past[n].For - time.Second
				}
				return past
			}(),
			measured: []forecast.Histogram{counted("a", 0, 40, 0)},
			subject:  forecast.Subject{Traits: a},
			source:   forecast.Measured, like: "queue a", between: [2]time.Duration{3 * time.Hour, 1e6 * time.Hour},
		},
		"what ran longer than the last bound ran for longer than that": {
			measured: []forecast.Histogram{counted("a", 40, 40, 200)},
			subject:  forecast.Subject{Traits: a},
			source:   forecast.Measured, like: "queue a", between: [2]time.Duration{2 * time.Hour, 1000 * time.Hour},
		},
		"of those that Prometheus has, one that runs is judged by those that ran as long": {
			measured: []forecast.Histogram{counted("a", 200, 40, 0)},
			subject:  forecast.Subject{Traits: a, Running: time.Hour},
			source:   forecast.Measured, like: "queue a", between: [2]time.Duration{20 * time.Minute, 30 * time.Minute},
		},
		"a limit alone": {
			subject: forecast.Subject{Traits: a, Limit: 3 * time.Hour, Running: time.Hour},
			source:  forecast.Limited, between: [2]time.Duration{2 * time.Hour, 2 * time.Hour},
		},
		"what was assumed": {
			assume: 4 * time.Hour, subject: forecast.Subject{Traits: a, Running: time.Hour},
			source: forecast.Assumed, between: [2]time.Duration{3 * time.Hour, 3 * time.Hour},
		},
		"unknown stays unknown": {
			past: ranFor(a, true, many(3, 1)...), subject: forecast.Subject{Traits: a}, source: forecast.Unknown,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := forecast.NewRuntimes(tc.past, tc.assume, tc.measured...)
			known := r.Of(tc.subject)
			expect.Same(t, "Unexpected source", tc.source, known.Source)
			expect.Same(t, "Unexpected jobs", tc.like, known.Like)
			got := median(r, tc.subject)
			expect.That(t, got >= tc.between[0] && got <= tc.between[1], "%s is left, and not between %s and %s", got, tc.between[0], tc.between[1])
		})
	}
}

// Within a bucket nothing is known, and times are alike by their logarithms. How many there are makes no difference.
func TestBucketsAreSpreadByLogarithms(t *testing.T) {
	for _, jobs := range []float64{1000, 100_000} {
		r := forecast.NewRuntimes(nil, 0, forecast.Histogram{Queue: "a", Buckets: []forecast.Bucket{
			{Seconds: 3600}, {Seconds: 4 * 3600, Jobs: jobs}, {Seconds: 16 * 3600, Jobs: 1.5 * jobs},
		}})
		var all []float64
		for future := range uint64(3000) {
			all = append(all, forecast.NewDraws(r, 1, future).Rest(r.Of(forecast.Subject{Traits: forecast.Traits{Queue: "a"}})).Hours())
		}
		slices.Sort(all)
		for share, want := range map[float64]float64{1. / 6: math.Pow(4, 0.25), 1. / 3: 2, 2. / 3: 4, 5. / 6: 8} {
			got := all[int(share*float64(len(all)))]
			expect.That(t, got > 0.9*want && got < 1.1*want, "%.2f of %.0f jobs run for up to %.1f h, want %.1f", share, jobs, got, want)
		}
	}
}

// Jobs of one experiment run for like times: what all of them take is as uncertain as what one takes.
func TestNeighboursRunForLikeTimes(t *testing.T) {
	a := forecast.Traits{Queue: "a", GPUs: 1}
	random := rand.New(rand.NewPCG(1, 1))
	var alike, mixed []float64
	for range 40 {
		hours := 1 + 9*random.Float64()
		alike = append(alike, many(20, hours)...)
		for range 20 {
			mixed = append(mixed, 1+9*random.Float64())
		}
	}
	spread := func(hours []float64) time.Duration {
		r := forecast.NewRuntimes(ranFor(a, true, hours...), 0)
		var sums []time.Duration
		for future := range uint64(200) {
			draws, sum := forecast.NewDraws(r, 1, future), time.Duration(0)
			for n := range 20 {
				sum += draws.Rest(r.Of(forecast.Subject{Traits: a, Submitted: begin.Add(time.Duration(n) * time.Minute)}))
			}
			sums = append(sums, sum)
		}
		slices.Sort(sums)
		return sums[180] - sums[20]
	}
	together, alone := spread(alike), spread(mixed)
	expect.That(t, together > 2*alone, "the sum of twenty that are alike spreads by %s, of others by %s", together, alone)
}

// One that has run as long as those near it which still run is one of them: they end at about the same time, also where
// all were submitted in the same second.
func TestExperimentsEndTogether(t *testing.T) {
	for _, gap := range []time.Duration{time.Second, 0} {
		t.Run(gap.String()+" apart", func(t *testing.T) { testExperimentsEndTogether(t, gap) })
	}
}

func testExperimentsEndTogether(t *testing.T, gap time.Duration) {
	a := forecast.Traits{Queue: "a", GPUs: 1}
	var past []forecast.Past
	for experiment := range 20 {
		for n := range 10 {
			past = append(past, forecast.Past{
				Traits: a, Ran: forecast.Ran{For: time.Duration(1+experiment) * time.Hour, Ended: true},
				Submitted: begin.Add(time.Duration(experiment-40)*time.Hour + time.Duration(n)*gap),
			})
		}
	}
	var subjects []forecast.Subject
	for n := range 10 {
		s := forecast.Subject{Traits: a, Submitted: begin.Add(time.Duration(n) * gap), Job: types.UID(strconv.Itoa(n)), Running: 3 * time.Hour}
		past = append(past, forecast.Past{Traits: a, Ran: forecast.Ran{For: s.Running}, Submitted: s.Submitted, Job: s.Job})
		subjects = append(subjects, s)
	}
	r := forecast.NewRuntimes(past, 0)
	alike := 0
	for future := range uint64(100) {
		draws := forecast.NewDraws(r, 1, future)
		var ends []time.Duration
		for _, s := range subjects {
			ends = append(ends, draws.Rest(r.Of(s)))
		}
		slices.Sort(ends)
		if ends[7] <= ends[2]+3*time.Hour {
			alike++
		}
	}
	expect.That(t, alike > 50, "in %d of 100 futures most of them end within three hours", alike)
}

func TestExperimentsGoToQueues(t *testing.T) {
	cases := map[string]struct {
		// of is the hours that the jobs of an experiment run for in a queue.
		of      func(experiment int, queue string) float64
		between [2]time.Duration
	}{
		"to several, and what runs elsewhere tells": {
			of:      func(experiment int, _ string) float64 { return float64(1 + experiment) },
			between: [2]time.Duration{18 * time.Hour, 22 * time.Hour},
		},
		"to one each, and what runs elsewhere tells nothing": {
			of: func(experiment int, queue string) float64 {
				if queue == "a" {
					return 1
				}
				return float64(2 + experiment)
			},
			between: [2]time.Duration{time.Hour / 2, 2 * time.Hour},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var past []forecast.Past
			for experiment := range 20 {
				for n := range 10 {
					queue := []string{"a", "b", "b"}[n%3]
					past = append(past, forecast.Past{
						Traits: forecast.Traits{Queue: queue, GPUs: 1}, Ran: forecast.Ran{For: time.Duration(tc.of(experiment, queue) * float64(time.Hour)), Ended: true},
						Submitted: begin.Add(time.Duration(experiment-20)*time.Hour + time.Duration(n)*time.Second),
					})
				}
			}
			last := past[len(past)-1].Submitted.Add(time.Second)
			got := median(forecast.NewRuntimes(past, 0), forecast.Subject{Traits: forecast.Traits{Queue: "a", GPUs: 1}, Submitted: last})
			expect.That(t, got >= tc.between[0] && got <= tc.between[1], "it runs for %s, and not between %s and %s", got, tc.between[0], tc.between[1])
		})
	}
}
