// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// goal is what the report holds a measured value against.
type goal struct {
	what string
	// limit of value, from below or from above.
	limit   float64
	atLeast bool
	value   func() (float64, bool)
}

// goals lists what was aimed at; what was not measured is left out.
func goals(results *Results) string {
	var out strings.Builder
	for _, g := range allGoals(results) {
		value, ok := g.value()
		if !ok {
			continue
		}
		sign, met := "≤", value <= g.limit
		if g.atLeast {
			sign, met = "≥", value >= g.limit
		}
		answer := "**no**"
		if met {
			answer = "yes"
		}
		fmt.Fprintf(&out, "| %s | %s %g | %.2f | %s |\n", g.what, sign, g.limit, value, answer)
	}
	if out.Len() == 0 {
		return ""
	}
	return "\n| goal | limit | measured | met |\n|---|---|---|---|\n" + out.String()
}

func allGoals(results *Results) []goal {
	all := []goal{
		{"dry runs and writes in vain of an undisturbed TrainJob", 0, false, results.inVain},
		{"PodSets: in-tree / remembered", 20, true, results.functionRatio("PodSets/in-tree/local API server", "PodSets/kueue-trainer, remembered")},
		{"PodSets: in-tree / first time", 5, true, results.functionRatio("PodSets/in-tree/local API server", "PodSets/kueue-trainer, first time/local API server")},
		{"CPU per TrainJob: 2000 / 250", 1.2, false, results.cpuGrowth},
		{"memory of the manager at 2000 TrainJobs, MiB", 110, false, func() (float64, bool) {
			run := results.run(ours, burst, 2000)
			return run.peak("kueue-trainer"), run != nil
		}},
		{"writes of a manager that starts beside many TrainJobs", 0, false, func() (float64, bool) {
			if len(results.Backlogs) == 0 {
				return 0, false
			}
			return perJob(results.Backlogs[0].Requests, 1, []string{"kueue-trainer"}, stored), true
		}},
	}
	for _, n := range results.sizes(burst) {
		all = append(all, results.burstGoals(n)...)
	}
	for _, n := range results.sizes(stream) {
		run := results.run(ours, stream, n)
		all = append(all,
			goal{fmt.Sprintf("stream of %d: admitted to started, p50, ms", n), 50, false, func() (float64, bool) { return run.lag().P50Ms, run != nil }},
			goal{fmt.Sprintf("stream of %d: admitted to started, p99, ms", n), 500, false, func() (float64, bool) { return run.lag().P99Ms, run != nil }})
		all = append(all, results.cpuGoals(stream, n)...)
	}
	return all
}

// ours and shipped are the columns of goals.
var (
	ours    = allColumns[len(allColumns)-1].name
	shipped = allColumns[0].name
)

// burstGoals compare a burst with those of the other columns.
func (r *Results) burstGoals(n int) []goal {
	name := func(what string) string { return fmt.Sprintf("burst of %d: %s", n, what) }
	started := func(run *Run) float64 { return run.StartedS }
	return append([]goal{
		{name("CPU of the manager per TrainJob, ours, ms"), 10, false, func() (float64, bool) {
			run := r.run(ours, burst, n)
			if run == nil {
				return 0, false
			}
			return 1000 * run.Used.cpu("kueue-trainer") / float64(n), true
		}},
		{name("released to last started, in-tree as shipped / ours"), 4, true, r.runRatio(burst, n, shipped, ours, started)},
		{name("released to last started, in-tree with as many workers / ours"), 1.5, true, r.runRatio(burst, n, allColumns[1].name, ours, started)},
		{name("last started / last admitted, ours"), 1.1, false, func() (float64, bool) {
			run := r.run(ours, burst, n)
			if run == nil {
				return 0, false
			}
			return run.StartedS / run.AdmittedS, true
		}},
	}, r.cpuGoals(burst, n)...)
}

// cpuGoals compare what was used until the last pod was bound; creating a burst does not count.
func (r *Results) cpuGoals(how shape, n int) []goal {
	of := func(components ...string) func(*Run) float64 {
		return func(run *Run) float64 { return run.Used.cpu(components...) }
	}
	name := func(what string) string {
		return fmt.Sprintf("%s of %d: CPU of %s, ours / in-tree as shipped", how, n, what)
	}
	return []goal{
		{name("Kueue and manager"), 0.6, false, r.runRatio(how, n, ours, shipped, of("kueue", "kueue-trainer"))},
		{name("the API server"), 0.5, false, r.runRatio(how, n, ours, shipped, of("kube-apiserver"))},
	}
}

// runRatio divides a value of a run in one column by that in another.
func (r *Results) runRatio(how shape, n int, above, below string, value func(*Run) float64) func() (float64, bool) {
	return func() (float64, bool) {
		a, b := r.run(above, how, n), r.run(below, how, n)
		if a == nil || b == nil {
			return 0, false
		}
		return value(a) / value(b), true
	}
}

func (r *Results) functionRatio(above, below string) func() (float64, bool) {
	return func() (float64, bool) {
		a, b := r.function(above), r.function(below)
		if a == nil || b == nil {
			return 0, false
		}
		return a.NsPerOp / b.NsPerOp, true
	}
}

func (r *Results) function(name string) *Function {
	for _, f := range r.Functions {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// inVain counts, per TrainJob, what an undisturbed life should do without.
func (r *Results) inVain() (float64, bool) {
	sum := 0.0
	for _, name := range []string{"start", "finish"} {
		step := r.step(ours, name)
		if step == nil {
			return 0, false
		}
		// Kueue's own writes are not ours to fix.
		sum += perJob(step.Requests, step.Jobs, []string{"kueue-trainer"}, func(c Count) bool { return c.DryRun || wasted(c) })
	}
	return sum, true
}

func (r *Results) cpuGrowth() (float64, bool) {
	small, large := r.run(ours, burst, 250), r.run(ours, burst, 2000)
	if small == nil || large == nil {
		return 0, false
	}
	return (large.integrationCPU() / 2000) / (small.integrationCPU() / 250), true
}

// peak and lag are 0 for a run that was not measured.
func (r *Run) peak(component string) float64 {
	if r == nil {
		return 0
	}
	return r.Used[component].PeakMiB
}

func (r *Run) lag() Percentiles {
	if r == nil {
		return Percentiles{}
	}
	return r.Lag
}
