// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
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
