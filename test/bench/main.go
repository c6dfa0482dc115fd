// SPDX-License-Identifier: Apache-2.0

// Command bench does the same work under Kueue's in-tree TrainJob integration and under kueue-trainer, in turns, each
// time on a fresh local control plane, and writes down what an admin asks: how soon a TrainJob starts, what that costs
// in requests, CPU and memory, and how long a new leader takes. docs/dev/measuring.md tells how to read it.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// localDir is the LOCAL_DIR of the clusters that are measured, below the repository's root. A cluster of
// `make local-up` is left alone.
const localDir = ".local-bench"

func main() {
	ctrl.SetLogger(logr.Discard())
	attempt.Main("error: ", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

// run measures what the arguments ask for and writes the report; what was measured before an error is written, too.
func run(ctx context.Context, args []string) error {
	return attempt.To(func() {
		p, root := attempt.Must(parsePlan(args)), attempt.Must(world.Root())
		b := &bench{plan: p, dir: filepath.Join(root, localDir), results: attempt.Must(p.earlier(root))}
		err := b.run(ctx, attempt.Must(commitOf(root)))
		if errVersions := b.results.Machine.readVersions(root); errVersions != nil {
			attempt.Succeed(errors.Join(err, errVersions))
		}
		fmt.Println(b.results.report())
		attempt.Succeed(errors.Join(err, writeReport(filepath.Join(root, p.out), b.results)))
	})
}

// The parts of the report.
const (
	partLife     = "life"
	partScale    = "scale"
	partForecast = "forecast"
)

// plan is what is measured.
type plan struct {
	parts []string
	// rounds is how often each column lives through all; jobs are the TrainJobs of a burst.
	rounds, jobs int
	// running and waiting are the TrainJobs of the large cluster.
	running, waiting int
	// idle is how long a cluster is left alone to see what it does by itself.
	idle time.Duration
	// out is where the report goes, seen from the repository's root.
	out string
}

func parsePlan(args []string) (*plan, error) {
	p := &plan{parts: []string{partLife, partScale, partForecast}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Func("parts", "what to measure; the report keeps the others as they are (default "+strings.Join(p.parts, ",")+")", func(value string) error {
		p.parts = strings.Split(value, ",")
		return nil
	})
	flags.IntVar(&p.rounds, "rounds", 3, "how often each integration is measured")
	flags.IntVar(&p.jobs, "jobs", 200, "number of TrainJobs in a burst")
	flags.IntVar(&p.running, "running", 2000, "number of TrainJobs that run in a large cluster")
	flags.IntVar(&p.waiting, "waiting", 10000, "number of TrainJobs that wait there")
	flags.DurationVar(&p.idle, "idle", time.Minute, "how long a cluster is left alone to see what it does by itself")
	flags.StringVar(&p.out, "out", "docs", "directory for performance.md and performance/, seen from the repository's root")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if min(p.rounds, p.jobs, p.running, p.waiting) < 1 {
		return nil, errors.New("rounds and numbers of TrainJobs are at least 1")
	}
	return p, nil
}

// bench goes through a plan.
type bench struct {
	*plan
	dir     string
	results *Results
}

// run measures one part after the other. Each measurement has a cluster of its own, so that none finds what another
// left behind, in memory or in the caches.
func (b *bench) run(ctx context.Context, commit string) error {
	for _, part := range b.parts {
		b.results.begin(part, commit)
		if err := b.part(ctx, part); err != nil {
			return fmt.Errorf("%s: %w", part, err)
		}
	}
	return nil
}

func (b *bench) part(ctx context.Context, part string) error {
	switch part {
	case partLife:
		return b.lives(ctx)
	case partScale:
		return b.onCluster(ctx, ours, func(s *site) { s.scale(ctx, b.plan) })
	case partForecast:
		return errors.Join(b.forecasts(ctx, 1, 250, 1000, 4000), b.forecasts(ctx, 8, 250, 1000, 4000))
	}
	return errors.New("there is no such part")
}

// lives measures the columns in turns: a machine that grows slower meets all of them.
func (b *bench) lives(ctx context.Context) error {
	for round := range b.rounds {
		for _, c := range columns {
			say("%s, round %d", c.title, round+1)
			if err := b.onCluster(ctx, c, func(s *site) { s.life(ctx, b.plan) }); err != nil {
				return fmt.Errorf("%s, round %d: %w", c.title, round+1, err)
			}
		}
	}
	return nil
}

// say prints one line of progress.
func say(format string, args ...any) {
	fmt.Printf(time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// onCluster runs measure on a fresh cluster with a queue, and takes that down.
func (b *bench) onCluster(ctx context.Context, c column, measure func(*site)) (err error) {
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
		s := newSite(ctx, cluster, c, b.results)
		defer s.seen.stop()
		measure(s)
	})
}
