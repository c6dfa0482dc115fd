// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// localDir is the LOCAL_DIR of the clusters that are measured, below the repository's
// root. A cluster of `make local-up` is left alone.
const localDir = ".local-bench"

// bench goes through a plan.
type bench struct {
	*plan
	dir      string
	progress io.Writer
	results  *Results
}

// run measures one part after the other. Each measurement has a cluster of its own, so
// that none finds what another left behind, in memory or in the caches.
func (b *bench) run(ctx context.Context) error {
	for _, part := range b.parts {
		if err := b.part(ctx, part); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	return nil
}

func (b *bench) part(ctx context.Context, part string) error {
	switch part {
	case partRequests:
		return b.each(b.columns, []int{requestJobs}, func(c column, n int) error { return b.requests(ctx, c, n) })
	case partStream:
		return b.each(b.columns, b.jobs, func(c column, n int) error { return b.throughput(ctx, c, stream, n) })
	case partBurst:
		return b.each(b.columns, b.jobs, func(c column, n int) error { return b.throughput(ctx, c, burst, n) })
	case partGrowth:
		return b.each(b.growthColumns(), b.growth, func(c column, n int) error { return b.throughput(ctx, c, burst, n) })
	case partBacklog:
		// In-tree, they would take hours to start.
		return b.each(b.columns[len(b.columns)-1:], []int{b.running}, func(c column, n int) error { return b.backlog(ctx, c, n, b.waiting) })
	case partFunctions:
		return b.functions(ctx)
	case partForecast:
		return errors.Join(b.forecasts(ctx, 1, 250, 1000, 4000), b.forecasts(ctx, 8, 250, 1000, 4000))
	}
	return errors.New("there is no such part")
}

// growthColumns leaves the one in the middle out.
func (b *bench) growthColumns() []column {
	return slices.DeleteFunc(slices.Clone(b.columns), func(c column) bool { return c.inTreeWorkers > 0 })
}

func (b *bench) each(columns []column, sizes []int, measure func(column, int) error) error {
	for _, n := range sizes {
		for _, c := range columns {
			if err := measure(c, n); err != nil {
				return fmt.Errorf("%s, %d TrainJobs: %w", c.name, n, err)
			}
		}
	}
	return nil
}

// say prints one line of progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(b.progress, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// onCluster runs measure on a fresh cluster with a queue, and takes that down.
func (b *bench) onCluster(ctx context.Context, c column, namespace string, measure func(*site)) (err error) {
	var progress bytes.Buffer
	cluster, err := world.Start(ctx, b.dir, &progress, c.flags()...)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, progress.String())
	}
	defer func() {
		// Also when we are interrupted.
		err = errors.Join(err, cluster.Stop(context.WithoutCancel(ctx), io.Discard))
	}()
	return attempt.To(func() {
		s := newSite(ctx, cluster, namespace)
		defer s.seen.stop()
		measure(s)
	})
}
