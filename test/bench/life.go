// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/logs"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
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
		s.stopQueue(ctx, kueue.HoldAndDrain)
		s.all(ctx, loneJobs, gone)
		s.all(ctx, loneJobs, released)
	})
	section := s.section("20 TrainJobs, stopped at once by their queue and admitted again")
	section.times("evicted to last pod gone", s.seen.between(evicted, gone))
	section.times("evicted to quota free", s.seen.between(evicted, released))
	s.seen.forget()
	again := s.count(ctx, func() { s.stopQueue(ctx, kueue.None); s.all(ctx, loneJobs, bound) })
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
	start := s.count(ctx, func() { s.stopQueue(ctx, kueue.None); s.all(ctx, n, bound) })
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

// scale measures a manager where many TrainJobs run and many more wait, and one that starts there.
func (s *site) scale(ctx context.Context, p *plan) {
	section := s.section("A large cluster: %d TrainJobs run and %d wait", p.running, p.waiting)
	memory := func(when string) {
		section.add("memory without program pages, MiB, "+when, s.used()[s.manager].anonMiB)
	}
	memory("no TrainJobs")
	s.SetQuota(ctx, s.Name("gpus"), strconv.Itoa(p.running))
	s.fill(ctx, p.running, p.running)
	memory("all run")
	s.fill(ctx, p.waiting, p.running)
	section.add(rowMemory, s.used()[s.manager].anonMiB)
	rest := s.count(ctx, func() { sleep(ctx, p.idle) })
	section.add("an hour in which nothing happens: CPU, s", rest.cpu(s.manager)/1000*3600/rest.seconds)
	section.add("the same: requests", rest.asked(managers)*3600/rest.seconds)
	s.startAgain(ctx, section)
}

// fill creates more TrainJobs, until so many run and all others wait.
func (s *site) fill(ctx context.Context, more, running int) {
	s.create(ctx, more, creators)
	s.suspended(ctx, s.made)
	s.all(ctx, running, bound)
	s.settled(ctx)
}

// startAgain starts another leader after a TrainJob has ended that nobody looked after: until the next one runs it has
// to find that out, and Kueue to admit one.
func (s *site) startAgain(ctx context.Context, section *section) {
	attempt.Succeed(s.Cluster.Control(ctx, "stop", s.manager, io.Discard))
	running := len(s.seen.times(started))
	var pods corev1.PodList
	attempt.Succeed(s.List(ctx, &pods, client.InNamespace(s.Namespace), client.Limit(1)))
	s.finish(ctx, client.MatchingLabels{jobsetapi.JobSetNameKey: pods.Items[0].Labels[jobsetapi.JobSetNameKey]})
	from := time.Now()
	attempt.Succeed(s.Cluster.Control(ctx, "start", s.manager, io.Discard))
	section.add("a new leader: to ready, s", time.Since(from).Seconds())
	s.all(ctx, running+1, started)
	section.add("to the start of the next TrainJob, s", s.seen.latestOf(started).Sub(from).Seconds())
	s.pids = attempt.Must(s.Cluster.PIDs())
	// It looks at all of them, and a look writes nothing that we would see.
	until(ctx, "a manager at rest", s.atRest(s.manager))
	used := s.used()[s.manager]
	section.add("CPU until it has looked at all, s", used.cpuSeconds)
	section.add("its memory without program pages, MiB", used.anonMiB)
}

// atRest reports whether a component has used little CPU since it was asked before.
func (s *site) atRest(component string) func() bool {
	const share = 0.05
	var last float64
	var asked time.Time
	var rested []bool
	return func() bool {
		if time.Since(asked) < time.Second {
			return false
		}
		all := s.used()
		used, took := all[component].cpuSeconds-last, time.Since(asked).Seconds()
		last, asked = all[component].cpuSeconds, time.Now()
		rested = append(rested, used < share*took)
		return len(rested) > 5 && !slices.Contains(rested[len(rested)-5:], false)
	}
}

type window struct {
	from     time.Time
	seconds  float64
	used     map[string]usage
	looks    float64
	requests logs.Counts
}

// count does something, waits until nothing changes any more, and returns what was used and asked for meanwhile.
func (s *site) count(ctx context.Context, do func()) *window {
	// What was asked before does not count.
	attempt.Must(s.log.Count(s.Namespace))
	before, looks := s.used(), s.looks(ctx)
	w := &window{from: time.Now()}
	do()
	w.seconds = time.Since(w.from).Seconds()
	s.settled(ctx)
	w.used, w.looks = s.used(), s.looks(ctx)-looks
	for name, u := range w.used {
		u.cpuSeconds -= before[name].cpuSeconds
		w.used[name] = u
	}
	w.requests = attempt.Must(s.log.Count(s.Namespace))
	return w
}

// and is this window with the reconciles and requests of another.
func (w *window) and(other *window) *window {
	both := &window{looks: w.looks + other.looks, requests: maps.Clone(w.requests)}
	for request, count := range other.requests {
		both.requests[request] += count
	}
	return both
}

func (w *window) cpu(components ...string) float64 {
	sum := 0.0
	for _, name := range components {
		sum += 1000 * w.used[name].cpuSeconds
	}
	return sum
}

// asked counts requests of Kueue and the manager that are of a kind.
func (w *window) asked(is func(logs.Request) bool) float64 {
	n := 0
	for request, count := range w.requests {
		if integrates(request.User) && is(request) {
			n += count
		}
	}
	return float64(n)
}

// integrates reports whether a component has a part in putting TrainJobs under quotas.
func integrates(component string) bool { return component == "kueue" || component == "kueue-trainer" }

// The kinds of requests. Events are written by whoever sees something, and kept for an hour.
func stored(r logs.Request) bool { return r.Write() && !r.DryRun && r.Resource != "events" }
func dryRun(r logs.Request) bool { return r.DryRun }
func read(r logs.Request) bool   { return !r.Write() }
func anything(logs.Request) bool { return true }
func wasted(r logs.Request) bool { return stored(r) && r.Outcome != logs.Done }
func managers(r logs.Request) bool {
	return r.User == "kueue-trainer" && r.Resource != "events"
}

// looks returns how many times kueue-trainer has reconciled a TrainJob; Kueue has no such integration.
func (s *site) looks(ctx context.Context) float64 {
	if s.manager != ours.manager {
		return 0
	}
	status, page, err := s.Cluster.AskManager(ctx, "metrics", "/metrics", s.token)
	attempt.Succeed(err)
	if status != http.StatusOK {
		attempt.Fail("the metrics of %s: %d: %s", s.manager, status, page)
	}
	sum := 0.0
	attempt.Succeed(world.EachSeries(page, "controller_runtime_reconcile_total", func(has labels.Set, value float64) {
		if strings.HasPrefix(has["controller"], "trainjob") {
			sum += value
		}
	}))
	return sum
}

// name says a kind of request as a row has it.
func name(r logs.Request) string {
	out := r.Verb + " " + r.Resource
	if r.DryRun {
		out += ", dry run"
	}
	if r.Outcome != logs.Done {
		out += fmt.Sprintf(", %s", r.Outcome)
	}
	return out
}

type usage struct {
	// cpuSeconds in user and kernel mode, of all threads.
	cpuSeconds float64
	// anonMiB is what it has in memory now without pages of files, such as its program, which the system can read again.
	anonMiB float64
}

func usageOf(pid int) usage {
	proc := attempt.Must(procfs.NewProc(pid))
	stat, status := attempt.Must(proc.Stat()), attempt.Must(proc.NewStatus())
	if status.VmRSS == 0 {
		attempt.Fail("process %d has no memory: it has ended", pid)
	}
	return usage{stat.CPUTime(), float64(status.RssAnon) / (1 << 20)}
}
