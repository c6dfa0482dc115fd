// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/tools/benchmark/parse"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// What the estimate is about.
const (
	jobsPerDay    = 100_000
	jobsQueued    = 10_000
	secondsPerDay = 24 * 60 * 60
)

// estimate scales the costs of one TrainJob up to those of a big cluster: requests and CPU
// of its life in proportion, memory along the line through the smallest and the largest
// burst, and a queue of many by the rate of the largest burst.
func (t *table) estimate(results *Results) {
	columns := results.requestColumns()
	n := largest(results, stream)
	if len(columns) == 0 || n == 0 {
		return
	}
	t.head(fmt.Sprintf("estimate: %d TrainJobs a day, %d queued at once", jobsPerDay, jobsQueued), columns)
	t.row("requests of Kueue and manager, a second on average", "%.1f", func(column string) float64 {
		return results.life(column, integrators(column), func(Count) bool { return true }) * jobsPerDay / secondsPerDay
	})
	for _, cpu := range []struct {
		name string
		of   []string
	}{
		{"CPU of Kueue and manager, cores on average", []string{"kueue", "kueue-trainer"}},
		{"CPU of kube-apiserver, cores on average", []string{"kube-apiserver"}},
		{"CPU of Trainer and JobSet, cores on average", []string{"trainer", "jobset"}},
	} {
		t.row(cpu.name, "%.2f", func(column string) float64 {
			return of(results.run(column, stream, n), func(run *Run) float64 {
				return (run.Used.cpu(cpu.of...) + run.UsedToFinish.cpu(cpu.of...)) / float64(n) * jobsPerDay / secondsPerDay
			})
		})
	}
	t.row("time to start all that are queued, minutes", "%.1f", func(column string) float64 {
		return of(results.run(column, burst, largest(results, burst)), func(run *Run) float64 {
			return run.StartedS / float64(run.Jobs) * jobsQueued / 60
		})
	})
	t.row("peak memory of the integration, MiB", "%.0f", func(column string) float64 { return results.memoryOf(column, jobsQueued) })
}

// memoryOf extrapolates the peak memory of the process that integrates TrainJobs.
func (r *Results) memoryOf(column string, jobs float64) float64 {
	var runs []*Run
	for _, n := range r.sizes(burst) {
		if run := r.run(column, burst, n); run != nil {
			runs = append(runs, run)
		}
	}
	if len(runs) < 2 {
		return math.NaN()
	}
	small, large := runs[0], runs[len(runs)-1]
	peak := func(run *Run) float64 { return run.Used[manager(column)].PeakMiB }
	perJob := (peak(large) - peak(small)) / float64(large.Jobs-small.Jobs)
	return peak(large) + perJob*(jobs-float64(large.Jobs))
}

// benchmarks is the package with the Go benchmarks of both integrations.
const benchmarks = "./pkg/integration"

// functions runs the Go benchmarks, with the API server of the first column's cluster for
// what cannot be answered from memory. It has no TrainJobs, so all of it is theirs.
func (b *bench) functions(ctx context.Context) error {
	return b.onCluster(ctx, allColumns[0], jobsNamespace, func(s *site) {
		cmd := exec.CommandContext(ctx, "go", "test", benchmarks, "-run", "^$", "-bench", ".", "-benchmem")
		cmd.Dir, cmd.Env = attempt.Must(world.Root()), append(os.Environ(), "KUBECONFIG="+s.Kubeconfig)
		out, err := cmd.CombinedOutput()
		attempt.Succeed(err, "go test says:\n%s", out)
		b.results.Functions = parseBenchmarks(string(out))
		for _, f := range b.results.Functions {
			b.say("%-70s %8.1f µs %6.0f allocations", f.Name, f.NsPerOp/1000, f.AllocsPerOp)
		}
	})
}

// parseBenchmarks leaves the prefix out that all have, and the number of CPUs at the end.
func parseBenchmarks(out string) []*Function {
	var all []*Function
	for line := range strings.Lines(out) {
		b, err := parse.ParseLine(line)
		if err != nil || b.Measured&parse.NsPerOp == 0 {
			continue // what go test says besides
		}
		name := strings.TrimPrefix(b.Name[:strings.LastIndex(b.Name, "-")], "Benchmark")
		all = append(all, &Function{Name: strings.ReplaceAll(name, "_", " "), NsPerOp: b.NsPerOp,
			BytesPerOp: float64(b.AllocedBytesPerOp), AllocsPerOp: float64(b.AllocsPerOp)})
	}
	return all
}

// window is a span of time in which everything is counted.
type window struct {
	site   *site
	from   time.Time
	before Used
}

// open begins a window.
func (s *site) open() *window {
	// What was asked before does not count.
	attempt.Must(s.log.Count(s.namespace))
	before := s.used()
	return &window{site: s, from: time.Now(), before: before}
}

// close waits until nothing changes any more, and gives what was used and asked for.
func (w *window) close(ctx context.Context) (Used, []Count) {
	w.site.settled(ctx)
	used := w.site.used()
	for name, u := range used {
		used[name] = u.Since(w.before[name])
	}
	return used, sorted(attempt.Must(w.site.log.Count(w.site.namespace)))
}
