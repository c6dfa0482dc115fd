// SPDX-License-Identifier: Apache-2.0

// Forecast checks forecasts against time: it replays a trace of jobs through the simulation, which is then the
// truth, makes a forecast at the submit of some of those that wait from what was known then, and writes what came of
// it into docs/forecast.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
)

func main() { attempt.Main("", run) }

func run(ctx context.Context) {
	jobsFile := flag.String("jobs", "", "CSV of jobs: submit (minutes), virtual cluster, GPUs, duration (minutes)")
	clusters := flag.String("clusters", "", "CSV of virtual clusters: name, nodes of eight GPUs")
	sample := flag.Int("sample", 1000, "how many waits to forecast")
	futures := flag.Int("futures", 50, "how many futures to draw for each")
	longest := flag.Int("longest", 150, "how many jobs may wait in the queue at most")
	seed := flag.Uint64("seed", 1, "of the sample")
	keptFile := flag.String("kept", "", "where forecasts are kept, so that a run that was stopped goes on; deleted at the end")
	page := flag.String("page", "docs/forecast.md", "where the tables go, between their marks; - prints them")
	flag.Parse()
	world, jobs := readWorld(*clusters), readJobs(*jobsFile)
	began := time.Now()
	all := replays(ctx, world, jobs)
	replayed := time.Since(began)
	moments := waits(all, *sample, *longest, *seed)
	report := &report{jobs: len(jobs), replayed: replayed, futures: *futures, longest: *longest}
	kept := openKept(*keptFile)
	for _, limits := range []bool{false, true} {
		var made []forecasted
		began := time.Now()
		err := attempt.To(func() {
			check(ctx, all, moments, *futures, limits, kept, func(f forecasted) {
				if made = append(made, f); len(made)%50 == 0 {
					fmt.Fprintf(os.Stderr, "%d of %d after %s\n%s", len(made), len(moments), time.Since(began).Round(time.Second), pages.Table(rowsOf(limits, made)...))
				}
			})
		})
		report.rows = append(report.rows, rowsOf(limits, made)...)
		if err != nil {
			attempt.Succeed(errors.Join(err, report.write(*page)))
		}
	}
	attempt.Succeed(errors.Join(report.write(*page), kept.done()))
}
