// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
)

const (
	// auditedNamespace is the one whose requests are logged with their bodies.
	auditedNamespace = "audited"
	// requestJobs is the number of TrainJobs that requests are counted of.
	requestJobs = 20
)

// requests counts the API requests of TrainJobs in the events of their lives.
func (b *bench) requests(ctx context.Context, c column, n int) error {
	return b.onCluster(ctx, c, auditedNamespace, func(s *site) {
		for _, step := range []struct {
			name string
			do   func(context.Context, int)
			// from and to are the moments between which its time is taken.
			from, to moment
		}{
			{"start", s.startOneByOne, admitted, started},
			{name: "idle", do: func(ctx context.Context, _ int) { sleep(ctx, b.idle) }},
			{name: "touch", do: s.touch},
			{name: "restart", do: func(ctx context.Context, _ int) { s.restart(ctx, c) }},
			{"eviction", s.evict, evicted, gone},
			{"re-admission", s.readmit, admitted, started},
			{name: "finish", do: s.finishAll},
		} {
			w := s.open()
			step.do(ctx, n)
			count := &Requests{Column: c.name, Step: step.name, Jobs: n, Seconds: time.Since(w.from).Seconds()}
			count.Used, count.Requests = w.close(ctx)
			if step.from != "" {
				took := percentiles(s.seen.between(step.from, step.to))
				count.Took = &took
			}
			b.results.Requests = append(b.results.Requests, count)
			b.say("%-10s %s of %d: %.1f writes each, %.1f dry runs", c.name, step.name, n,
				perJob(count.Requests, n, c.integrators(), stored), perJob(count.Requests, n, c.integrators(), dryRuns))
		}
	})
}

// startOneByOne lets no job disturb another.
func (s *site) startOneByOne(ctx context.Context, n int) {
	for i := range n {
		s.create(ctx, i, i+1, 1)
		s.all(ctx, i+1, bound)
	}
}

// touch brings every job to its reconciler once, by a change that means nothing: what a
// resync of the caches does.
func (s *site) touch(ctx context.Context, _ int) {
	var jobs trainer.TrainJobList
	attempt.Succeed(s.Client.List(ctx, &jobs, client.InNamespace(s.namespace)))
	for i := range jobs.Items {
		attempt.Succeed(s.Client.Patch(ctx, &jobs.Items[i], client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"annotations":{"bench/touched":"yes"}}}`))))
	}
}

// restart starts the integration again: all jobs are looked at by a process that knows
// nothing of them.
func (s *site) restart(ctx context.Context, c column) {
	attempt.Succeed(s.Control(ctx, "restart", c.manager(), io.Discard))
	s.pids = attempt.Must(s.PIDs())
	// It is healthy before it has looked at all jobs.
	sleep(ctx, 2*quiet)
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	attempt.Succeed(ctx.Err())
}

// evict stops all jobs through their queue.
func (s *site) evict(ctx context.Context, n int) {
	s.seen.forget()
	s.stopQueue(ctx, kueue.HoldAndDrain)
	s.all(ctx, n, gone)
}

func (s *site) readmit(ctx context.Context, n int) {
	s.seen.forget()
	s.stopQueue(ctx, kueue.None)
	s.all(ctx, n, bound)
}

func (s *site) finishAll(ctx context.Context, n int) {
	s.finish(ctx)
	s.all(ctx, n, finished)
}
