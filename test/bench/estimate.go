// SPDX-License-Identifier: Apache-2.0

package main

import "fmt"

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
	t.row("requests of Kueue and manager, a second on average", "%.1f", func(column string) (float64, bool) {
		return lifeRequests(results, column) * jobsPerDay / secondsPerDay, true
	})
	for _, cpu := range []struct {
		name string
		of   []string
	}{
		{"CPU of Kueue and manager, cores on average", []string{"kueue", "kueue-trainer"}},
		{"CPU of kube-apiserver, cores on average", []string{"kube-apiserver"}},
		{"CPU of Trainer and JobSet, cores on average", []string{"trainer", "jobset"}},
	} {
		t.row(cpu.name, "%.2f", func(column string) (float64, bool) {
			run := results.run(column, stream, n)
			if run == nil {
				return 0, false
			}
			return (run.Used.cpu(cpu.of...) + run.UsedToFinish.cpu(cpu.of...)) / float64(n) * jobsPerDay / secondsPerDay, true
		})
	}
	t.row("time to start all that are queued, minutes", "%.1f", func(column string) (float64, bool) {
		run := results.run(column, burst, largest(results, burst))
		if run == nil {
			return 0, false
		}
		return run.StartedS / float64(run.Jobs) * jobsQueued / 60, true
	})
	t.row("peak memory of the integration, MiB", "%.0f", results.memoryOf(jobsQueued))
}

// lifeRequests counts all requests of an undisturbed TrainJob, events and reads included.
func lifeRequests(results *Results, column string) float64 {
	sum := 0.0
	for _, step := range []string{"start", "finish"} {
		if r := results.step(column, step); r != nil {
			sum += perJob(r.Requests, r.Jobs, integrators(column), func(Count) bool { return true })
		}
	}
	return sum
}

// memoryOf extrapolates the peak memory of the process that integrates TrainJobs.
func (r *Results) memoryOf(jobs float64) func(column string) (float64, bool) {
	return func(column string) (float64, bool) {
		component := integrators(column)[len(integrators(column))-1]
		var small, large *Run
		for _, n := range r.sizes(burst) {
			run := r.run(column, burst, n)
			if run != nil && small == nil {
				small = run
			}
			if run != nil {
				large = run
			}
		}
		if small == nil || small == large {
			return 0, false
		}
		perJob := (large.Used[component].PeakMiB - small.Used[component].PeakMiB) / float64(large.Jobs-small.Jobs)
		return large.Used[component].PeakMiB + perJob*(jobs-float64(large.Jobs)), true
	}
}
