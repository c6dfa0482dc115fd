// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// shape is the way in which TrainJobs come.
type shape string

const (
	// stream: they are created while the queue is open.
	stream shape = "stream"
	// burst: they are created while the queue is on hold, which is then released.
	burst shape = "burst"
)

// jobsNamespace is where the TrainJobs of streams and bursts are.
const jobsNamespace = "bench"

// throughput measures how long n TrainJobs take until their pods are bound, and what the
// components use for it. What a growth series has in common with the bursts is not
// measured twice.
func (b *bench) throughput(ctx context.Context, c column, how shape, n int) error {
	if b.results.run(c.name, how, n) != nil {
		return nil
	}
	return b.onCluster(ctx, c, jobsNamespace, func(s *site) {
		run := &Run{Column: c.name, Shape: how, Jobs: n}
		measure := s.stream
		if how == burst {
			measure = s.burst
		}
		measure(ctx, run)
		b.results.Runs = append(b.results.Runs, run)
		b.say("%-10s %s of %d: created %.1fs, admitted %.1fs, started %.1fs, bound %.1fs; lag p50 %.0f ms, p99 %.0f ms; CPU: %s %.1fs, API server %.1fs",
			c.name, how, n, run.CreatedS, run.AdmittedS, run.StartedS, run.BoundS, run.Lag.P50Ms, run.Lag.P99Ms,
			c.integrators(), run.Used.cpu(c.integrators()...), run.Used.cpu("kube-apiserver"))
	})
}

// stream counts from the first TrainJob that is created.
func (s *site) stream(ctx context.Context, run *Run) {
	w := s.open()
	s.create(ctx, 0, run.Jobs, 1)
	run.CreatedS = time.Since(w.from).Seconds()
	s.reach(ctx, run, w)
	s.end(ctx, run)
}

// end lets all jobs succeed, which is the rest of their lives.
func (s *site) end(ctx context.Context, run *Run) {
	w := s.open()
	s.finish(ctx)
	s.all(ctx, run.Jobs, finished)
	run.FinishedS = s.seen.latestOf(finished).Sub(w.from).Seconds()
	run.UsedToFinish, run.RequestsToFinish = w.close(ctx)
}

// burst counts from the release of the queue; what creating costs is written down apart.
func (s *site) burst(ctx context.Context, run *Run) {
	s.hold(ctx)
	w := s.open()
	s.create(ctx, 0, run.Jobs, creators)
	run.CreatedS = time.Since(w.from).Seconds()
	s.suspended(ctx, run.Jobs)
	run.UsedToCreate, run.RequestsToCreate = w.close(ctx)
	w = s.open()
	s.stopQueue(ctx, kueue.None)
	s.reach(ctx, run, w)
}

// reach waits until all pods are bound and writes down how that came.
func (s *site) reach(ctx context.Context, run *Run, w *window) {
	s.all(ctx, run.Jobs, bound)
	since := func(m moment) float64 { return s.seen.latestOf(m).Sub(w.from).Seconds() }
	run.AdmittedS, run.StartedS, run.BoundS = since(admitted), since(started), since(bound)
	run.Lag = percentiles(s.seen.between(admitted, started))
	run.Starts = curve(s.seen.times(started), w.from)
	run.Admissions = curve(s.seen.times(admitted), w.from)
	run.Used, run.Requests = w.close(ctx)
}
