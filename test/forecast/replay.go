// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// life is what became of a job of the trace.
type life struct {
	forecast.Job
	limit        time.Duration
	started, end time.Time
	// admitted is its Workload with quota.
	admitted *kueue.Workload
}

func (l *life) traits() forecast.Traits {
	podSet := l.Workload.Spec.PodSets[0]
	each := podSet.Template.Spec.Containers[0].Resources.Requests[kit.GPU]
	return forecast.Traits{Queue: string(l.Workload.Spec.QueueName), GPUs: int64(podSet.Count) * each.Value()}
}

// replay is the trace as it went, by the simulation, in one virtual cluster.
type replay struct {
	world *scheduler.World
	// lives are in the order of arrival.
	lives []*life
}

// horizon of the whole trace: the last of its jobs end long after the last has come.
const horizon = 90 * 24 * time.Hour

// replays plays each virtual cluster, which share nothing; the first are those with the most jobs.
func replays(ctx context.Context, world *scheduler.World, jobs []forecast.Job) (all []*replay) {
	for n, cq := range world.ClusterQueues {
		part := *world
		part.ClusterQueues, part.LocalQueues = world.ClusterQueues[n:n+1], world.LocalQueues[n:n+1]
		r := &replay{world: &part}
		byKey := map[client.ObjectKey]*life{}
		own := kueuelib.Pick(jobs, func(job *forecast.Job) bool { return string(job.Workload.Spec.QueueName) == cq.Name })
		for _, job := range own {
			l := &life{Job: job, limit: limitOf(job)}
			r.lives = append(r.lives, l)
			byKey[client.ObjectKeyFromObject(job.Workload)] = l
		}
		attempt.Succeed(forecast.Play(ctx, r.world, own, forecast.Settings{Begin: begin, Horizon: horizon}, func(e forecast.Event) {
			switch l := byKey[e.Job]; e.Kind {
			case forecast.Started:
				l.started, l.admitted = e.At, e.Workload
			case forecast.Ended:
				l.end = e.At
			}
		}))
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b *replay) int {
		return cmp.Or(cmp.Compare(len(b.lives), len(a.lives)), cmp.Compare(a.world.ClusterQueues[0].Name, b.world.ClusterQueues[0].Name))
	})
	return all
}

// limitOf is a time limit as users give them: round, and mostly far too long.
func limitOf(job forecast.Job) time.Duration {
	random := rand.New(rand.NewPCG(uint64(job.Arrives.UnixNano()), 1))
	wanted := time.Duration(float64(job.Runs) * (1.1 + random.ExpFloat64()*3))
	for _, hours := range []time.Duration{1, 2, 4, 8, 12, 24, 48, 72, 168, 336} {
		if wanted <= hours*time.Hour {
			return hours * time.Hour
		}
	}
	return max(wanted, job.Runs)
}

// moment is a submit of the trace, of a job that waits.
type moment struct {
	*replay
	*life
	waiting, running []*life
}

func (r *replay) at(l *life) *moment {
	m := &moment{replay: r, life: l}
	for _, other := range r.lives {
		switch now := l.Arrives; {
		case other.Arrives.After(now):
			return m
		case other.started.After(now):
			m.waiting = append(m.waiting, other)
		case other.end.After(now):
			m.running = append(m.running, other)
		}
	}
	return m
}

// past is what is known of running times at a moment, in all virtual clusters.
func past(all []*replay, now time.Time, limits bool) []forecast.Past {
	var known []forecast.Past
	for _, r := range all {
		for _, l := range r.lives {
			if l.Arrives.After(now) {
				break
			}
			if l.started.After(now) {
				continue
			}
			p := forecast.Past{Traits: l.traits(), Submitted: l.Arrives, Job: l.Workload.UID, Ran: forecast.Ran{For: now.Sub(l.started)}}
			if !l.end.After(now) {
				p.Ran = forecast.Ran{For: l.Runs, Ended: true}
			}
			if limits {
				p.Limit = l.limit
			}
			known = append(known, p)
		}
	}
	return known
}

// forecasted is a moment's start, and what was said of it.
type forecasted struct {
	Wait           time.Duration
	Band           forecast.Band
	Recent, Single time.Duration
	Queued         int
	Took           time.Duration
}

// window is how far back arrivals are looked at for those to come, and ahead how far is forecasted.
const window, ahead = 3 * 24 * time.Hour, 7 * 24 * time.Hour

func (m *moment) forecast(ctx context.Context, all []*replay, futures int, limits bool) forecasted {
	now := m.Arrives
	began := time.Now()
	runtimes := forecast.NewRuntimes(past(all, now, limits), 0)
	q := &forecast.Question{
		World: m.world, Runtimes: runtimes, Futures: futures, Seed: uint64(now.UnixNano()),
		Settings: forecast.Settings{Begin: now, Horizon: ahead, Until: []client.ObjectKey{client.ObjectKeyFromObject(m.Workload)}},
	}
	there := slices.Concat(m.running, m.waiting)
	slices.SortFunc(there, func(a, b *life) int { return a.Arrives.Compare(b.Arrives) })
	for _, l := range there {
		q.Entrants = append(q.Entrants, l.entrant(runtimes, now, limits))
	}
	within := min(window, now.Sub(begin))
	for _, l := range m.lives {
		if l.Arrives.Before(now) && l.Arrives.After(now.Add(-within)) {
			e := l.entrant(runtimes, l.Arrives, limits)
			e.Workload = l.Workload
			q.Arrivals = append(q.Arrivals, forecast.Arrival{Entrant: e, Within: within})
		}
	}
	band := attempt.Must(forecast.Draw(ctx, q)).Band(q.Until[0])
	out := forecasted{Wait: m.started.Sub(now), Band: band, Queued: len(m.waiting), Took: time.Since(began), Recent: m.recent()}
	out.Single = m.single(ctx, q, limits)
	return out
}

func (l *life) entrant(runtimes *forecast.Runtimes, now time.Time, limits bool) forecast.Entrant {
	subject := forecast.Subject{Traits: l.traits(), Submitted: l.Arrives, Job: l.Workload.UID}
	if limits {
		subject.Limit = l.limit
	}
	e := forecast.Entrant{Workload: l.Workload}
	if !l.started.After(now) {
		e.Workload, subject.Running = l.admitted, now.Sub(l.started)
	}
	e.Running = runtimes.Of(subject)
	return e
}

// recent is the naive forecast by the mean of the waits of those who started in the last hour; of the last one where nobody did.
func (m *moment) recent() time.Duration {
	var sum, last time.Duration
	var latest time.Time
	n := time.Duration(0)
	for _, l := range m.lives {
		if l.started.After(m.Arrives) {
			continue
		}
		wait := l.started.Sub(l.Arrives)
		if l.started.After(latest) {
			latest, last = l.started, wait
		}
		if l.started.After(m.Arrives.Add(-time.Hour)) {
			sum, n = sum+wait, n+1
		}
	}
	if n == 0 {
		return last
	}
	return sum / n
}

// single is the naive forecast by one future: jobs run for the mean of those that have ended, or for their limit, and nobody comes.
func (m *moment) single(ctx context.Context, q *forecast.Question, limits bool) time.Duration {
	var sum time.Duration
	n := time.Duration(0)
	for _, l := range m.lives {
		if !l.end.After(m.Arrives) {
			sum, n = sum+l.Runs, n+1
		}
	}
	mean := sum / max(n, 1)
	var jobs []forecast.Job
	for _, l := range m.running {
		jobs = append(jobs, forecast.Job{Workload: l.admitted, Runs: max(time.Minute, l.expected(mean, limits)-m.Arrives.Sub(l.started))})
	}
	for _, l := range m.waiting {
		jobs = append(jobs, forecast.Job{Workload: l.Workload, Runs: max(time.Minute, l.expected(mean, limits))})
	}
	starts := q.Horizon
	attempt.Succeed(forecast.Play(ctx, m.world, jobs, q.Settings, func(e forecast.Event) {
		if e.Kind == forecast.Started && e.Job == q.Until[0] {
			starts = e.At.Sub(q.Begin)
		}
	}))
	return starts
}

func (l *life) expected(mean time.Duration, limits bool) time.Duration {
	if limits {
		return l.limit
	}
	return mean
}

// waits draws submits of jobs that waited for longer than a minute, after the first day, whose queue was no longer
// than some length.
func waits(all []*replay, sample, longest int, seed uint64) []*moment {
	var candidates []*moment
	for _, r := range all {
		for _, l := range r.lives {
			if !l.started.IsZero() && l.started.Sub(l.Arrives) > time.Minute && l.Arrives.Sub(begin) > 24*time.Hour {
				candidates = append(candidates, &moment{replay: r, life: l})
			}
		}
	}
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(candidates), func(i, j int) { candidates[i], candidates[j] = candidates[j], candidates[i] })
	var drawn []*moment
	for _, c := range candidates {
		if len(drawn) == sample {
			break
		}
		if m := c.at(c.life); len(m.waiting) <= longest {
			drawn = append(drawn, m)
		}
	}
	return drawn
}

// check makes a forecast of each moment. Draw uses all cores, so they come one after the other.
func check(ctx context.Context, all []*replay, moments []*moment, futures int, limits bool, kept *kept, tell func(forecasted)) {
	for _, m := range moments {
		of := fmt.Sprintf("%s, limits %t, %d futures", m.Workload.Name, limits, futures)
		tell(kept.forecast(of, func() forecasted { return m.forecast(ctx, all, futures, limits) }))
	}
}
