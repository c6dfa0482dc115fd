// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

const (
	// auditedNamespace is the one whose requests are logged with their bodies.
	auditedNamespace = "audited"
	// requestJobs is the number of TrainJobs that requests are counted of.
	requestJobs = 20
)

// requests counts the API requests of TrainJobs in the events of their lives.
func (b *bench) requests(ctx context.Context, c column, n int) error {
	return b.onCluster(ctx, c, auditedNamespace, func(s *site) error {
		for _, step := range []struct {
			name string
			do   func(context.Context, int) error
			// from and to are the moments between which its time is taken.
			from, to moment
		}{
			{"start", s.startOneByOne, admitted, started},
			{name: "idle", do: func(ctx context.Context, _ int) error { return sleep(ctx, b.idle, nil) }},
			{name: "touch", do: s.touch},
			{name: "restart", do: func(ctx context.Context, _ int) error { return s.restart(ctx, c) }},
			{"eviction", s.evict, evicted, gone},
			{"re-admission", s.readmit, admitted, started},
			{name: "finish", do: s.finishAll},
		} {
			w, err := s.open()
			if err != nil {
				return err
			}
			if err := step.do(ctx, n); err != nil {
				return err
			}
			count := &Requests{Column: c.name, Step: step.name, Jobs: n, Seconds: time.Since(w.from).Seconds()}
			if count.Used, count.Requests, err = w.close(ctx); err != nil {
				return err
			}
			if step.from != "" {
				took := percentiles(s.seen.between(step.from, step.to))
				count.Took = &took
			}
			b.results.Requests = append(b.results.Requests, count)
			b.say("%-10s %s of %d: %.1f writes each, %.1f dry runs", c.name, step.name, n,
				perJob(count.Requests, n, c.integrators(), stored), perJob(count.Requests, n, c.integrators(), dryRuns))
		}
		return nil
	})
}

// startOneByOne lets no job disturb another.
func (s *site) startOneByOne(ctx context.Context, n int) error {
	for i := range n {
		if err := s.create(ctx, i, i+1, 1); err != nil {
			return err
		}
		if err := s.all(ctx, i+1, bound); err != nil {
			return err
		}
	}
	return nil
}

// touch brings every job to its reconciler once, by a change that means nothing: what a
// resync of the caches does.
func (s *site) touch(ctx context.Context, _ int) error {
	var jobs trainer.TrainJobList
	if err := s.Client.List(ctx, &jobs, client.InNamespace(s.namespace)); err != nil {
		return err
	}
	for i := range jobs.Items {
		err := s.Client.Patch(ctx, &jobs.Items[i], client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata":{"annotations":{"bench/touched":"yes"}}}`)))
		if err != nil {
			return err
		}
	}
	return nil
}

// restart starts the integration again: all jobs are looked at by a process that knows
// nothing of them.
func (s *site) restart(ctx context.Context, c column) error {
	if err := s.Control(ctx, "restart", c.manager(), io.Discard); err != nil {
		return err
	}
	var err error
	s.pids, err = s.PIDs()
	// It is healthy before it has looked at all jobs.
	return sleep(ctx, 2*quiet, err)
}

func sleep(ctx context.Context, d time.Duration, err error) error {
	if err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err()
}

// evict stops all jobs through their queue.
func (s *site) evict(ctx context.Context, n int) error {
	s.seen.forget()
	if err := s.stopQueue(ctx, kueue.HoldAndDrain); err != nil {
		return err
	}
	return s.all(ctx, n, gone)
}

func (s *site) readmit(ctx context.Context, n int) error {
	s.seen.forget()
	if err := s.stopQueue(ctx, kueue.None); err != nil {
		return err
	}
	return s.all(ctx, n, bound)
}

func (s *site) finishAll(ctx context.Context, n int) error {
	if err := s.finish(ctx); err != nil {
		return err
	}
	return s.all(ctx, n, finished)
}
