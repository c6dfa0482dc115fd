// SPDX-License-Identifier: Apache-2.0

// Command bench does the same work under Kueue's in-tree TrainJob integration, as shipped
// and with more workers, and under kueue-trainer, each time on a fresh local control
// plane, and writes down what it took: API requests, time, CPU, memory. docs/performance.md
// tells how to read it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

func main() {
	ctrl.SetLogger(logr.Discard())
	attempt.Main("error: ", func(ctx context.Context) error { return run(ctx, os.Args[1:]) })
}

// run measures what the arguments ask for and writes the report; what was measured before
// an error is written, too.
func run(ctx context.Context, args []string) error {
	return attempt.To(func() {
		p, root := attempt.Must(parsePlan(args)), attempt.Must(world.Root())
		results := p.results(root)
		b := &bench{plan: p, dir: filepath.Join(root, localDir), progress: os.Stdout, results: results}
		err := b.run(ctx)
		if errVersions := results.Machine.readVersions(root); errVersions != nil {
			attempt.Succeed(errors.Join(err, errVersions))
		}
		tables, errReport := writeReport(filepath.Join(root, p.out), results)
		fmt.Println(tables)
		attempt.Succeed(errors.Join(err, errReport))
	})
}

// results returns what the report has, or nothing yet, without the parts that are measured now.
func (p *plan) results(root string) *Results {
	machine, commit := attempt.Must(thisMachine()), attempt.Must(commitOf(root))
	results := &Results{Machine: machine, Commits: map[string]string{}}
	if p.again {
		results = attempt.Must(earlierResults(filepath.Join(root, p.out), machine))
	}
	for _, part := range p.parts {
		results.drop(part)
		results.Commits[part] = commit
	}
	return results
}

// plan is what is measured.
type plan struct {
	// jobs are the sizes of streams and bursts; growth adds bursts, of the first and the
	// last column.
	jobs, growth []int
	// running and waiting are the TrainJobs of the backlog.
	running, waiting int
	columns          []column
	parts            []string
	// idle is how long a cluster is left alone to count what it does by itself.
	idle time.Duration
	// out is where the report goes, seen from the repository's root.
	out string
	// again keeps the parts of the report that are not measured.
	again bool
}

// The parts of the report.
const (
	partRequests  = "requests"
	partStream    = "stream"
	partBurst     = "burst"
	partGrowth    = "growth"
	partBacklog   = "backlog"
	partFunctions = "functions"
	partForecast  = "forecast"
)

func parsePlan(args []string) (*plan, error) {
	p := &plan{jobs: []int{200, 1000}, growth: []int{250, 500, 1000, 2000}, columns: allColumns,
		parts: []string{partRequests, partStream, partBurst, partGrowth, partBacklog, partFunctions, partForecast}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Func("jobs", "numbers of TrainJobs in a stream and in a burst (default 200,1000)", numbers(&p.jobs))
	flags.Func("growth", "numbers of TrainJobs of the growth series (default 250,500,1000,2000)", numbers(&p.growth))
	flags.Func("columns", "columns to measure (default "+names(allColumns)+")", func(value string) (err error) {
		p.columns, err = columnsOf(value)
		return err
	})
	flags.Func("parts", "what to measure (default "+strings.Join(p.parts, ",")+")", func(value string) error {
		p.parts = strings.Split(value, ",")
		return nil
	})
	flags.IntVar(&p.running, "running", 2000, "number of TrainJobs that run in the backlog")
	flags.IntVar(&p.waiting, "waiting", 10000, "number of TrainJobs that wait in the backlog")
	flags.DurationVar(&p.idle, "idle", time.Minute, "how long a cluster is left alone to see what it does by itself")
	flags.BoolVar(&p.again, "again", false, "measure these parts of the report again, and keep the others as they are")
	flags.StringVar(&p.out, "out", "docs", "directory for performance.md and performance/, seen from the repository's root")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if p.again && slices.Contains(p.parts, partBurst) != slices.Contains(p.parts, partGrowth) {
		return nil, fmt.Errorf("parts %s and %s share their bursts: measure both again, or neither", partBurst, partGrowth)
	}
	return p, nil
}

func numbers(into *[]int) func(string) error {
	return func(value string) error {
		*into = nil
		for word := range strings.SplitSeq(value, ",") {
			n, err := strconv.Atoi(word)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is not a number of TrainJobs", word)
			}
			*into = append(*into, n)
		}
		return nil
	}
}
