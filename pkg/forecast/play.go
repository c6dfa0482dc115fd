// SPDX-License-Identifier: Apache-2.0

// Package forecast tells when Workloads will start, by Kueue's own scheduler on a virtual clock.
//
// play.go plays one future: who starts, is preempted and ends, when. runtimes.go and survival.go say what is known of how
// long jobs run, futures.go draws many futures from that, and band.go makes an answer of them.
package forecast

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// Job is a Workload and what becomes of it.
type Job struct {
	// Workload as it is at the begin of the play: with quota, or waiting.
	Workload *kueue.Workload
	// Arrives is when it queues; zero for one that is there already. One with quota that stops queues no sooner again.
	Arrives time.Time
	// Runs is how long it runs from a start to its end; of one that runs already, how long it runs on. Zero runs for ever.
	Runs time.Duration
	// Again is how long it runs when it was preempted and starts again; zero is as long as Runs. A time limit of the
	// Workload may end it before.
	Again time.Duration
}

// Settings are what a play goes by, beside the world and the jobs.
type Settings struct {
	// Begin is the time at which all is as it was given.
	Begin time.Time
	// Horizon is how long is played.
	Horizon time.Duration
	// Stopping is how long the pods of an evicted job take to end. It keeps its quota until then.
	Stopping time.Duration
	// Checks is how long admission checks take.
	Checks time.Duration
	// Until ends the play when all of these have started; empty plays on to the horizon.
	Until []client.ObjectKey
}

// Kind is of an Event.
type Kind string

// The kinds.
const (
	// Queued: it has come, or come back after it was preempted.
	Queued Kind = "Queued"
	// Started: Kueue has admitted it.
	Started Kind = "Started"
	// Preempted: Kueue has evicted it.
	Preempted Kind = "Preempted"
	// Ended: it has run as long as it runs, or was stopped and cannot come back.
	Ended Kind = "Ended"
	// LeftOut: Kueue takes it neither to its queues nor to its cache. Nothing more happens to it.
	LeftOut Kind = "LeftOut"
)

// Event is what happened to a job.
type Event struct {
	At   time.Time
	Kind Kind
	Job  client.ObjectKey
	// Workload is as Kueue left it, with its admission where it has one. It is not to be changed.
	Workload *kueue.Workload
	// After is the job whose end or stop was the last thing before a start.
	After client.ObjectKey
}

// Play plays one future and tells each Event, in the order of time. The same input tells the same.
func Play(ctx context.Context, world *scheduler.World, jobs []Job, settings Settings, tell func(Event)) (err error) {
	defer recovered(&err)
	p, err := newPlay(ctx, world, settings, tell)
	if err != nil {
		return err
	}
	apart := scheduler.Apart(kueuelib.Map(jobs, func(job *Job) *kueue.Workload { return job.Workload }))
	for n, job := range jobs {
		job.Workload = apart[n]
		if err := p.begin(ctx, &job); err != nil {
			return err
		}
	}
	return p.run(ctx)
}

// recovered makes an error of a panic, of Kueue's code or ours: the rest of a command goes without a forecast.
func recovered(err *error) {
	if reason := recover(); reason != nil {
		*err = fmt.Errorf("playing a future panicked: %v", reason)
	}
}

func newPlay(ctx context.Context, world *scheduler.World, settings Settings, tell func(Event)) (*play, error) {
	player, err := scheduler.NewPlayer(ctx, world, settings.Begin)
	if err != nil {
		return nil, err
	}
	return &play{Player: player, Settings: settings, now: settings.Begin, tell: tell, jobs: map[client.ObjectKey]*state{}, until: sets.New(settings.Until...)}, nil
}

type play struct {
	*scheduler.Player
	Settings
	now   time.Time
	tell  func(Event)
	jobs  map[client.ObjectKey]*state
	due   []*appointment // In the order of time.
	freed client.ObjectKey
	until sets.Set[client.ObjectKey]
}

// appointment is what will happen to a job unless it starts or stops before.
type appointment struct {
	when  time.Time
	key   client.ObjectKey
	round int
	what  func(context.Context, client.ObjectKey)
}

type state struct {
	*Job
	// round counts starts and stops: what was due before is not any more.
	round int
	// stopped is set for one that has been preempted.
	stopped bool
	// ends is when it will have run as long as it runs; zero where it does not run, or for ever.
	ends time.Time
}

func (p *play) begin(ctx context.Context, job *Job) error {
	key := client.ObjectKeyFromObject(job.Workload)
	if p.jobs[key] != nil {
		return fmt.Errorf("Workload %s is there twice", key)
	}
	p.jobs[key] = &state{Job: job}
	if job.Arrives.After(p.Begin) && !kueuelib.HasQuotaReservation(job.Workload) {
		p.at(job.Arrives, key, p.arrive)
		return nil
	}
	if p.Add(ctx, job.Workload) != nil {
		p.leaveOut(key)
		return nil
	}
	if !kueuelib.IsActive(job.Workload) { // Its pods stop, and it does not queue again.
		p.at(p.now.Add(p.Stopping), key, p.end)
		return nil
	}
	switch scheduler.HowIs(job.Workload) {
	case scheduler.Admitted:
		p.endLater(key, job.Runs)
	case scheduler.Evicted:
		p.endLater(key, job.Runs)
		p.stopLater(key)
	case scheduler.Reserved:
		p.at(p.now.Add(p.Checks), key, p.check)
	}
	return nil
}

// alone plays a Workload without others, which then is gone again.
func (p *play) alone(ctx context.Context, wl *kueue.Workload) error {
	key := client.ObjectKeyFromObject(wl)
	p.Until, p.until = []client.ObjectKey{key}, sets.New(key)
	if err := p.begin(ctx, &Job{Workload: wl}); err != nil {
		return err
	}
	defer p.Remove(ctx, key)
	return p.run(ctx)
}

// at has something happen to a job, behind what happens at the same time.
func (p *play) at(when time.Time, key client.ObjectKey, what func(context.Context, client.ObjectKey)) {
	place, _ := slices.BinarySearchFunc(p.due, when, func(a *appointment, when time.Time) int { return cmp.Or(a.when.Compare(when), -1) })
	p.due = slices.Insert(p.due, place, &appointment{when: when, key: key, round: p.jobs[key].round, what: what})
}

func (p *play) endLater(key client.ObjectKey, runs time.Duration) {
	if runs > 0 {
		p.jobs[key].ends = p.now.Add(runs)
		p.at(p.jobs[key].ends, key, p.end)
	}
}

// stopLater has an evicted job stop, or end where it does before its pods are stopped.
func (p *play) stopLater(key client.ObjectKey) {
	stopped := p.now.Add(p.Stopping)
	if ends := p.jobs[key].ends; !ends.IsZero() && ends.Before(stopped) {
		p.at(ends, key, p.end)
		return
	}
	p.at(stopped, key, p.stop)
}

// run goes from one time at which something happens to the next.
func (p *play) run(ctx context.Context) error {
	end := p.Begin.Add(p.Horizon)
	for ctx.Err() == nil {
		p.moved(p.Settle(ctx))
		next := p.next()
		if ctx.Err() != nil {
			break // What was cut off is no answer.
		}
		if next.IsZero() || next.After(end) || len(p.Until) > 0 && len(p.until) == 0 {
			return nil
		}
		p.now = next
		p.SetTime(ctx, next)
		for len(p.due) > 0 && !p.due[0].when.After(next) {
			a := p.due[0]
			p.due = p.due[1:]
			if p.jobs[a.key].round == a.round {
				a.what(ctx, a.key)
			}
		}
	}
	return ctx.Err()
}

func (p *play) next() time.Time {
	next := p.Wakes()
	if len(p.due) > 0 && (next.IsZero() || p.due[0].when.Before(next)) {
		next = p.due[0].when
	}
	return next
}

func (p *play) moved(all []scheduler.Moved) {
	for _, m := range all {
		key := client.ObjectKeyFromObject(m.Workload)
		s := p.jobs[key]
		s.round++
		switch m.Move {
		case scheduler.Admitted:
			p.say(Started, key, m.Workload)
			delete(p.until, key)
			runs := s.Runs
			if s.stopped && s.Again > 0 {
				runs = s.Again
			}
			p.endLater(key, withinLimit(m.Workload, runs))
		case scheduler.Reserved:
			p.at(p.now.Add(p.Checks), key, p.check)
		case scheduler.Evicted:
			p.say(Preempted, key, m.Workload)
			p.stopLater(key)
		}
	}
}

// withinLimit is how long a Workload runs that starts: until its time limit at the latest, which Kueue counts over all its runs.
func withinLimit(wl *kueue.Workload, runs time.Duration) time.Duration {
	limit := wl.Spec.MaximumExecutionTimeSeconds
	if limit == nil {
		return runs
	}
	left := time.Duration(*limit-ptr.Deref(wl.Status.AccumulatedPastExecutionTimeSeconds, 0)) * time.Second
	return min(runs, max(time.Second, left))
}

func (p *play) arrive(ctx context.Context, key client.ObjectKey) {
	wl := p.jobs[key].Workload
	if p.Add(ctx, wl) != nil {
		p.leaveOut(key)
		return
	}
	p.say(Queued, key, wl)
}

func (p *play) leaveOut(key client.ObjectKey) {
	p.say(LeftOut, key, p.jobs[key].Workload)
	delete(p.until, key)
}

func (p *play) end(ctx context.Context, key client.ObjectKey) {
	p.jobs[key].round++
	p.say(Ended, key, p.jobs[key].Workload)
	p.freed = key
	p.Remove(ctx, key)
}

func (p *play) stop(ctx context.Context, key client.ObjectKey) {
	s := p.jobs[key]
	s.round++
	s.stopped, s.ends = true, time.Time{}
	p.freed = key
	after, err := p.Stopped(ctx, key)
	switch {
	case !kueuelib.IsActive(s.Workload) || err != nil: // Its queue is gone, or stopped, or leads elsewhere.
		p.end(ctx, key)
	case s.Arrives.After(p.now):
		p.Remove(ctx, key)
		s.Workload = after
		p.at(s.Arrives, key, p.arrive)
	default:
		p.say(Queued, key, s.Workload)
	}
}

// check has admission checks be ready. Who then finds no place below a topology for as long again gets nodes of its own.
func (p *play) check(ctx context.Context, key client.ObjectKey) {
	p.at(p.now.Add(p.Checks), key, func(ctx context.Context, key client.ObjectKey) { p.moved(p.NodesMade(ctx, key)) })
	p.moved(p.ChecksReady(ctx, key))
}

func (p *play) say(kind Kind, key client.ObjectKey, wl *kueue.Workload) {
	p.tell(Event{At: p.now, Kind: kind, Job: key, Workload: wl, After: p.freed})
}
