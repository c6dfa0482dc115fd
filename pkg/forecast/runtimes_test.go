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

// seen has so much of past jobs be known.
func seen(past []forecast.Past, of func(forecast.Past) time.Duration) []forecast.Past {
	for n := range past {
		past[n].Seen = of(past[n])
	}
	return past
}

// estimate is what is known of jobs that ran, and what comes of it for one of queue a.
type estimate struct {
	past     []forecast.Past
	measured []forecast.Histogram
	assume   time.Duration
	subject  forecast.Subject
	source   forecast.Source
	like     string
	// between are bounds of the median of what is left.
	between [2]time.Duration
}

// of says by what and whom it is estimated, and how many hours are left.
func (e estimate) of(source forecast.Source, like string, least, most float64) estimate {
	e.subject.Traits = forecast.Traits{Runtime: "torch", Queue: "a", GPUs: 8}
	e.source, e.like, e.between = source, like, [2]time.Duration{time.Duration(least * float64(time.Hour)), time.Duration(most * float64(time.Hour))}
	return e
}

// similar is by jobs that are like it in all.
func (e estimate) similar(least, most float64) estimate {
	return e.of(forecast.Similar, "runtime torch, queue a, 2 to 8 GPUs", least, most)
}

func TestRuntimes(t *testing.T) {
	a := forecast.Traits{Runtime: "torch", Queue: "a", GPUs: 8}
	ran := func(hours ...float64) []forecast.Past { return ranFor(a, true, hours...) }
	still := func(hours ...float64) []forecast.Past { return ranFor(a, false, hours...) }
	runs := func(hours float64) forecast.Subject {
		return forecast.Subject{Running: time.Duration(hours * float64(time.Hour))}
	}
	told := func(running, left float64) forecast.Subject {
		s := runs(running)
		s.Reported = ptr.To(time.Duration(left * float64(time.Hour)))
		return s
	}
	within := func(hours float64) func(forecast.Past) time.Duration {
		return func(forecast.Past) time.Duration { return time.Duration(hours * float64(time.Hour)) }
	}
	counts := func(all ...forecast.Histogram) []forecast.Histogram { return all }
	limit := func(hours int) forecast.Subject { return forecast.Subject{Limit: time.Duration(hours) * time.Hour} }
	limited := told(1, 7)
	limited.Limit = 3 * time.Hour
	quarter := ran(slices.Concat(many(15, 0.5), many(15, 3))...)
	expect.Rows(t, map[string]estimate{
		"what the trainer says goes before all":                                               estimate{past: ran(many(40, 1)...), subject: told(1, 7)}.of(forecast.Reported, "", 7, 7),
		"a limit ends what its trainer would run on":                                          estimate{subject: limited}.of(forecast.Reported, "", 2, 2),
		"a report that is overdue says nothing":                                               estimate{past: ran(many(40, 2)...), subject: told(1.5, 0)}.similar(0.5, 0.5),
		"jobs that are like it":                                                               estimate{past: ran(many(40, 2)...)}.similar(2, 2),
		"of one that runs already, what is left":                                              estimate{past: ran(many(40, 2)...), subject: runs(1.5)}.similar(0.5, 0.5),
		"those that have run long are judged by those that did":                               estimate{past: ran(slices.Concat(many(40, 1), many(20, 10))...), subject: runs(2)}.similar(8, 8),
		"those that still run count for as long as they have":                                 estimate{past: slices.Concat(ran(many(30, 1)...), still(many(60, 1.5)...), ran(many(30, 3)...))}.similar(3, 3),
		"what has run longer than any runs on for about as long as it has":                    estimate{past: ran(many(40, 1)...), subject: runs(100)}.similar(30, 50),
		"a quarter runs still, long after the last end: what runs beyond that is one of them": estimate{past: slices.Concat(quarter, still(many(10, 75)...)), subject: runs(4)}.similar(75, 1e6),
		"of those that run still, only what is seen of them counts":                           estimate{past: slices.Concat(quarter, seen(still(many(10, 75)...), within(74))), subject: runs(4)}.similar(1, 10),
		"too few of its kind: the runtime": estimate{past: slices.Concat(ran(many(3, 1)...), ranFor(forecast.Traits{Runtime: "torch", Queue: "b"}, true, many(40, 4)...))}.
			of(forecast.Similar, "runtime torch", 4, 4),
		"no longer than its limit": estimate{past: ran(many(40, 4)...), subject: limit(3)}.similar(3, 3),
		"of those that started before ends are known, short ones are gone": estimate{
			past: slices.Concat(ran(many(40, 1)...), ran(many(10, 10)...), seen(ran(many(400, 10)...), within(9)))}.similar(1, 1),
		"those of its queue that Prometheus has, where jobs like it are of other queues": estimate{
			past: ranFor(forecast.Traits{Queue: "b"}, true, many(40, 30)...), measured: counts(counted("a", 0, 40, 0)), subject: limit(20)}.of(forecast.Measured, "queue a", 1, 2),
		"jobs of its queue that are known one by one go before those": estimate{
			past: ranFor(forecast.Traits{Queue: "a"}, true, many(40, 30)...), measured: counts(counted("a", 0, 40, 0))}.of(forecast.Similar, "queue a", 30, 30),
		"Prometheus has too few of its queue: those of all":           estimate{measured: counts(counted("a", 19, 0, 0), counted("b", 0, 60, 0))}.of(forecast.Measured, "all queues", 1, 2),
		"those of all where the manager puts queues together":         estimate{measured: counts(counted("", 0, 20, 0))}.of(forecast.Measured, "all queues", 1, 2),
		"Prometheus has too few of all, however many run":             estimate{past: still(many(40, 1)...), measured: counts(counted("a", 0, 19.4, 0)), subject: limit(3)}.of(forecast.Limited, "", 3, 3),
		"those that still run count beside those that Prometheus has": estimate{past: still(many(80, 3)...), measured: counts(counted("a", 0, 40, 0))}.of(forecast.Measured, "queue a", 3, 1e6),
		"they do where the cluster has none that has ended": estimate{
			past: seen(still(many(80, 20)...), func(p forecast.Past) time.Duration { return p.For - time.Second }), measured: counts(counted("a", 0, 40, 0)),
		}.of(forecast.Measured, "queue a", 3, 1e6),
		"what ran longer than the last bound ran for longer than that":                    estimate{measured: counts(counted("a", 40, 40, 200))}.of(forecast.Measured, "queue a", 2, 1000),
		"of those that Prometheus has, one that runs is judged by those that ran as long": estimate{measured: counts(counted("a", 200, 40, 0)), subject: runs(1)}.of(forecast.Measured, "queue a", 1./3, 0.5),
		"a limit alone":         estimate{subject: forecast.Subject{Limit: 3 * time.Hour, Running: time.Hour}}.of(forecast.Limited, "", 2, 2),
		"what was assumed":      estimate{assume: 4 * time.Hour, subject: runs(1)}.of(forecast.Assumed, "", 3, 3),
		"unknown stays unknown": estimate{past: ran(many(3, 1)...)}.of(forecast.Unknown, "", 0, 0),
	}, func(t *testing.T, tc estimate) {
		r := forecast.NewRuntimes(tc.past, tc.assume, tc.measured...)
		known := r.Of(tc.subject)
		expect.Same(t, "Unexpected source", tc.source, known.Source)
		expect.Same(t, "Unexpected jobs", tc.like, known.Like)
		got := median(r, tc.subject)
		expect.That(t, got >= tc.between[0] && got <= tc.between[1], "%s is left, and not between %s and %s", got, tc.between[0], tc.between[1])
	})
}

// What is learned of the same past is the same, in whatever order its families come: here nobody is near another, and how much
// that is doubted makes a difference for the last digits alone.
func TestRuntimesAreTheSameAgain(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 0))
	var past []forecast.Past
	for range 120 {
		past = append(past, forecast.Past{
			Traits: forecast.Traits{Queue: "a", GPUs: random.Int64N(8)}, Ran: forecast.Ran{For: time.Duration(random.ExpFloat64() * float64(time.Hour)), Ended: true},
			Submitted: begin.Add(-time.Duration(random.IntN(50000)) * time.Minute),
		})
	}
	drawn := func() (all []time.Duration) {
		r := forecast.NewRuntimes(past, 0)
		draws := forecast.NewDraws(r, 1, 1)
		for n := range 30 {
			all = append(all, draws.Rest(r.Of(forecast.Subject{Traits: forecast.Traits{Queue: "a", GPUs: int64(n % 8)}, Submitted: begin.Add(time.Duration(n) * time.Minute)})))
		}
		return all
	}
	first := drawn()
	for range 100 {
		expect.Same(t, "Unexpected running times", first, drawn())
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

// Every third job of an experiment is in another queue, or has another time limit, than the others; the last one has the
// others alone.
func TestExperimentsGoAcrossFamilies(t *testing.T) {
	type row struct {
		others forecast.Past
		// of is the hours that the jobs of an experiment run for, those of the others or not.
		of      func(experiment int, other bool) float64
		between [2]time.Duration
	}
	together := func(experiment int, _ bool) float64 { return float64(1 + experiment) }
	apart := func(experiment int, other bool) float64 {
		if other {
			return float64(2 + experiment)
		}
		return 1
	}
	this := forecast.Past{Traits: forecast.Traits{Queue: "a", GPUs: 1}, Limit: 48 * time.Hour}
	ofQueue, ofLimit := this, this
	ofQueue.Queue, ofLimit.Limit = "b", 96*time.Hour
	expect.Rows(t, map[string]row{
		"to several queues, and what runs elsewhere tells":            {ofQueue, together, [2]time.Duration{18 * time.Hour, 22 * time.Hour}},
		"to one queue each, and what runs elsewhere tells nothing":    {ofQueue, apart, [2]time.Duration{time.Hour / 2, 2 * time.Hour}},
		"with several limits, and what has another one tells":         {ofLimit, together, [2]time.Duration{18 * time.Hour, 22 * time.Hour}},
		"with one limit each, and what has another one tells nothing": {ofLimit, apart, [2]time.Duration{time.Hour / 2, 2 * time.Hour}},
	}, func(t *testing.T, tc row) {
		var past []forecast.Past
		for experiment := range 20 {
			for n := range 10 {
				p, other := this, n%3 > 0 || experiment == 19
				if other {
					p = tc.others
				}
				p.Ran = forecast.Ran{For: time.Duration(tc.of(experiment, other) * float64(time.Hour)), Ended: true}
				p.Submitted = begin.Add(time.Duration(experiment-20)*time.Hour + time.Duration(n)*time.Second)
				past = append(past, p)
			}
		}
		last := past[len(past)-1].Submitted.Add(time.Second)
		got := median(forecast.NewRuntimes(past, 0), forecast.Subject{Traits: this.Traits, Limit: this.Limit, Submitted: last})
		expect.That(t, got >= tc.between[0] && got <= tc.between[1], "it runs for %s, and not between %s and %s", got, tc.between[0], tc.between[1])
	})
}
