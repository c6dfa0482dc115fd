// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"strings"
)

// goal is what the report holds a measured value against.
type goal struct {
	what string
	// limit of value, from below or from above.
	limit   float64
	atLeast bool
	value   float64
}

// goals lists what was aimed at; what was not measured is left out.
func goals(results *Results) string {
	var out strings.Builder
	for _, g := range allGoals(results) {
		if math.IsNaN(g.value) {
			continue
		}
		sign, met := "≤", g.value <= g.limit
		if g.atLeast {
			sign, met = "≥", g.value >= g.limit
		}
		answer := "**no**"
		if met {
			answer = "yes"
		}
		fmt.Fprintf(&out, "| %s | %s %g | %.2f | %s |\n", g.what, sign, g.limit, g.value, answer)
	}
	if out.Len() == 0 {
		return ""
	}
	return "\n| goal | limit | measured | met |\n|---|---|---|---|\n" + out.String()
}

func allGoals(results *Results) []goal {
	small, large := results.run(ours, burst, 250), results.run(ours, burst, 2000)
	beside := math.NaN()
	if len(results.Backlogs) > 0 {
		beside = perJob(results.Backlogs[0].Requests, 1, []string{"kueue-trainer"}, stored)
	}
	nsPerOp := func(name string) float64 {
		return of(results.function(name), func(f *Function) float64 { return f.NsPerOp })
	}
	inTree := nsPerOp("PodSets/in-tree/local API server")
	all := []goal{
		{"dry runs and writes in vain of an undisturbed TrainJob", 0, false, results.inVain()},
		{"PodSets: in-tree / remembered", 20, true, inTree / nsPerOp("PodSets/kueue-trainer, remembered")},
		{"PodSets: in-tree / first time", 5, true, inTree / nsPerOp("PodSets/kueue-trainer, first time/local API server")},
		{"CPU per TrainJob: 2000 / 250", 1.2, false, of(large, (*Run).cpuPerJob) / of(small, (*Run).cpuPerJob)},
		{"memory of the manager at 2000 TrainJobs, MiB", 110, false, of(large, func(r *Run) float64 { return r.Used["kueue-trainer"].PeakMiB })},
		{"writes of a manager that starts beside many TrainJobs", 0, false, beside},
	}
	for _, n := range results.sizes(burst) {
		all = append(all, results.burstGoals(n)...)
	}
	for _, n := range results.sizes(stream) {
		run := results.run(ours, stream, n)
		all = append(all,
			goal{fmt.Sprintf("stream of %d: admitted to started, p50, ms", n), 50, false, of(run, func(r *Run) float64 { return r.Lag.P50Ms })},
			goal{fmt.Sprintf("stream of %d: admitted to started, p99, ms", n), 500, false, of(run, func(r *Run) float64 { return r.Lag.P99Ms })})
		all = append(all, results.cpuGoals(stream, n)...)
	}
	return all
}

// of returns a value of what was measured. What was not measured is NaN.
func of[T any](measured *T, value func(*T) float64) float64 {
	if measured == nil {
		return math.NaN()
	}
	return value(measured)
}

// ours and shipped are the columns of goals.
var (
	ours    = allColumns[len(allColumns)-1].name
	shipped = allColumns[0].name
)

// burstGoals compare a burst with those of the other columns.
func (r *Results) burstGoals(n int) []goal {
	name := func(what string) string { return fmt.Sprintf("burst of %d: %s", n, what) }
	started := func(column string) float64 {
		return of(r.run(column, burst, n), func(run *Run) float64 { return run.StartedS })
	}
	run := r.run(ours, burst, n)
	manager := of(run, func(run *Run) float64 { return 1000 * run.Used.cpu("kueue-trainer") / float64(n) })
	admitted := of(run, func(run *Run) float64 { return run.AdmittedS })
	return append([]goal{
		{name("CPU of the manager per TrainJob, ours, ms"), 10, false, manager},
		{name("released to last started, in-tree as shipped / ours"), 4, true, started(shipped) / started(ours)},
		{name("released to last started, in-tree with as many workers / ours"), 1.5, true, started(allColumns[1].name) / started(ours)},
		{name("last started / last admitted, ours"), 1.1, false, started(ours) / admitted},
	}, r.cpuGoals(burst, n)...)
}

// cpuGoals compare what was used until the last pod was bound; creating a burst does not count.
func (r *Results) cpuGoals(how shape, n int) []goal {
	goalOf := func(what string, limit float64, components ...string) goal {
		cpu := func(run *Run) float64 { return run.Used.cpu(components...) }
		return goal{fmt.Sprintf("%s of %d: CPU of %s, ours / in-tree as shipped", how, n, what), limit, false,
			of(r.run(ours, how, n), cpu) / of(r.run(shipped, how, n), cpu)}
	}
	return []goal{
		goalOf("Kueue and manager", 0.6, "kueue", "kueue-trainer"),
		goalOf("the API server", 0.5, "kube-apiserver"),
	}
}

// inVain counts, per TrainJob, what an undisturbed life should do without.
func (r *Results) inVain() float64 {
	// Kueue's own writes are not ours to fix.
	return r.life(ours, []string{"kueue-trainer"}, func(c Count) bool { return c.DryRun || wasted(c) })
}

// life counts the requests of components that are of a kind, of an undisturbed TrainJob.
func (r *Results) life(column string, components []string, is func(Count) bool) float64 {
	sum := 0.0
	for _, name := range []string{"start", "finish"} {
		sum += of(r.step(column, name), func(step *Requests) float64 { return perJob(step.Requests, step.Jobs, components, is) })
	}
	return sum
}
