// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/logs"
)

// loneJobs and loadJobs are the TrainJobs that come one after the other, each on a cluster at rest, and one a second.
const (
	loneJobs = 20
	loadJobs = 60
)

// life measures what TrainJobs need and how soon they start: alone, one a second, and all at once.
func (s *site) life(ctx context.Context, p *plan) {
	s.alone(ctx, p.idle)
	s.clear(ctx)
	s.burst(ctx, p.jobs)
	s.clear(ctx)
	s.load(ctx)
}

// alone lets no TrainJob disturb another, stops them all once, and lets them end.
func (s *site) alone(ctx context.Context, idle time.Duration) {
	start := s.count(ctx, func() {
		for n := range loneJobs {
			s.create(ctx, 1, 1)
			s.all(ctx, n+1, bound)
			s.settled(ctx)
		}
	})
	lone := s.section("A TrainJob alone on a cluster at rest")
	lone.times("created to admitted", s.seen.between(created, admitted))
	lone.times("admitted to the Job of its first pod running", s.seen.between(admitted, placed))
	lone.times("admitted to TrainJob resumed", s.seen.between(admitted, started))

	rest := s.count(ctx, func() { sleep(ctx, idle) })
	large := s.section("An hour in which nothing happens, beside 20 that run")
	large.add("requests of Kueue and manager", rest.asked(anything)*3600/rest.seconds)
	large.add("CPU of Kueue and manager, s", rest.cpu("kueue", "kueue-trainer")/1000*3600/rest.seconds)

	s.evict(ctx)
	end := s.count(ctx, func() { s.finish(ctx); s.all(ctx, loneJobs, finished) })
	s.undisturbed(start.and(end))
}

// evict stops all TrainJobs through their queue, and lets them start again.
func (s *site) evict(ctx context.Context) {
	s.seen.forget()
	stop := s.count(ctx, func() {
		s.StopQueue(ctx, kueue.HoldAndDrain)
		s.all(ctx, loneJobs, gone)
		s.all(ctx, loneJobs, released)
	})
	section := s.section("20 TrainJobs, stopped at once by their queue and admitted again")
	section.times("evicted to last pod gone", s.seen.between(evicted, gone))
	section.times("evicted to quota free", s.seen.between(evicted, released))
	s.seen.forget()
	again := s.count(ctx, func() { s.StopQueue(ctx, kueue.None); s.all(ctx, loneJobs, bound) })
	section.times("admitted again to TrainJob resumed", s.seen.between(admitted, started))
	both := stop.and(again)
	section.add("writes each, to stop and start again", both.asked(stored)/loneJobs)
	section.add("dry runs each", both.asked(dryRun)/loneJobs)
}

// undisturbed tells what the whole life of a TrainJob costs in requests, from start to end.
func (s *site) undisturbed(whole *window) {
	sums, kinds := s.section("Requests of Kueue and manager for a whole life"), s.section("The same, one by one")
	each := func(is func(logs.Request) bool) float64 { return whole.asked(is) / loneJobs }
	sums.add("writes", each(stored))
	sums.add("of these in vain", each(wasted))
	sums.add("dry runs", each(dryRun))
	sums.add("reads", each(read))
	if s.manager == ours.manager {
		sums.add(rowRequests, each(managers))
		sums.add(rowLooks, whole.looks/loneJobs)
	}
	named := map[string]bool{}
	for request := range whole.requests {
		if what := name(request); integrates(request.User) && request.Resource != "events" && !named[what] {
			named[what] = true
			kinds.add(what, each(func(r logs.Request) bool { return name(r) == what }))
		}
	}
}

// burst creates TrainJobs while their queue is on hold, releases it, and lets them end.
func (s *site) burst(ctx context.Context, n int) {
	s.hold(ctx)
	create := s.count(ctx, func() { s.create(ctx, n, creators); s.suspended(ctx, n) })
	start := s.count(ctx, func() { s.StopQueue(ctx, kueue.None); s.all(ctx, n, bound) })
	end := s.count(ctx, func() { s.finish(ctx); s.all(ctx, n, finished) })

	burst := s.section("A queue of %d, released", n)
	burst.add("to last TrainJob admitted, s", s.seen.latestOf(admitted).Sub(start.from).Seconds())
	burst.add("to last TrainJob resumed, s", s.seen.latestOf(started).Sub(start.from).Seconds())
	burst.times("admitted to TrainJob resumed", s.seen.between(admitted, started))

	cpu := s.section("CPU of the same, for each TrainJob, ms")
	for _, phase := range []struct {
		name string
		*window
	}{{"create", create}, {"start", start}, {"end", end}} {
		for _, component := range []string{"kueue", "kueue-trainer", "jobset", "trainer", "kube-apiserver"} {
			cpu.add(cpuRow(phase.name, component), phase.cpu(component)/float64(n))
		}
	}
	cpu.add(rowWhole, (create.cpu("kueue", "kueue-trainer")+start.cpu("kueue", "kueue-trainer")+end.cpu("kueue", "kueue-trainer"))/float64(n))
	memory := s.section("Memory without program pages after %d, MiB", n)
	for _, component := range []string{"kueue", "kueue-trainer"} {
		memory.add(component, s.used()[component].anonMiB)
	}
}

// load creates a TrainJob a second, which two cores keep up with.
func (s *site) load(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for range loadJobs {
		<-ticker.C
		s.create(ctx, 1, 1)
	}
	s.all(ctx, loadJobs, bound)
	load := s.section("One TrainJob a second for a minute")
	load.times("admitted to TrainJob resumed", s.seen.between(admitted, started))
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
