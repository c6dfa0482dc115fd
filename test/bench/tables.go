// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/kueue-trainer/kueue-trainer/test/kit/logs"
)

// table is a Markdown table with a column of names, one for each column of the report,
// and the first of them divided by the last.
type table struct {
	strings.Builder
	columns []string
}

func (t *table) head(title string, columns []string) {
	t.columns = columns
	fmt.Fprintf(t, "\n| %s |", title)
	for _, name := range columns {
		fmt.Fprintf(t, " %s |", titleOf(name))
	}
	if len(columns) > 1 {
		fmt.Fprint(t, " ratio |")
	}
	fmt.Fprintf(t, "\n|---|%s\n", strings.Repeat("---|", len(columns)+min(1, len(columns)-1)))
}

// row has the value of each column; one that was not measured is NaN.
func (t *table) row(name, format string, value func(column string) float64) {
	fmt.Fprintf(t, "| %s |", name)
	var values []float64
	for _, column := range t.columns {
		v := value(column)
		if math.IsNaN(v) {
			fmt.Fprint(t, " |")
			continue
		}
		values = append(values, v)
		fmt.Fprintf(t, " "+format+" |", v)
	}
	if len(t.columns) > 1 {
		fmt.Fprintf(t, " %s |", ratio(values, len(t.columns)))
	}
	fmt.Fprintln(t)
}

func ratio(values []float64, want int) string {
	if len(values) < want || values[len(values)-1] == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f", values[0]/values[len(values)-1])
}

// summary is the generated part of the report's page: what was measured where, and which
// goals are met.
func summary(results *Results) string {
	return results.measured() + goals(results)
}

// measured says on what, with which versions and of which commit.
func (r *Results) measured() string {
	return fmt.Sprintf("%s; commit %s. All managers: 300 requests a second, bursts of 500.\n", r.Machine, r.commits())
}

// tables are all that was measured, in Markdown.
func tables(results *Results) string {
	t := &table{}
	t.WriteString(results.measured())
	t.requests(results)
	t.lifeByResource(results)
	t.times(results)
	for _, how := range []shape{stream, burst} {
		for _, n := range results.sizes(how) {
			t.throughput(results, how, n)
		}
	}
	t.growth(results)
	t.backlogs(results)
	t.functions(results)
	t.forecasts(results)
	t.estimate(results)
	return t.String()
}

// String tells machine and versions.
func (m Machine) String() string {
	versions := make([]string, 0, len(m.Versions))
	for _, name := range slices.Sorted(maps.Keys(m.Versions)) {
		versions = append(versions, name+" "+m.Versions[name])
	}
	return fmt.Sprintf("%d x %s, %.0f GiB, Linux %s, %s; %s", m.CPUs, m.CPU, m.MemoryGiB, m.Kernel, m.Go, strings.Join(versions, ", "))
}

// commits names the commit that was measured, or each with its parts.
func (r *Results) commits() string {
	parts := map[string][]string{}
	for _, part := range slices.Sorted(maps.Keys(r.Commits)) {
		parts[r.Commits[part]] = append(parts[r.Commits[part]], part)
	}
	var all []string
	for _, commit := range slices.Sorted(maps.Keys(parts)) {
		if len(parts) == 1 {
			return commit
		}
		all = append(all, fmt.Sprintf("%s (%s)", commit, strings.Join(parts[commit], ", ")))
	}
	return strings.Join(all, " and ")
}

// requestKinds are what is told apart of the requests of Kueue and the manager.
var requestKinds = []struct {
	name string
	is   func(Count) bool
}{
	{"writes", stored},
	{"of these in vain", wasted},
	{"dry runs", dryRuns},
	{"reads", func(c Count) bool { return !c.Write() }},
	{"events", func(c Count) bool { return c.Resource == "events" }},
}

// wasted are writes that were refused or changed nothing.
func wasted(c Count) bool { return stored(c) && c.Outcome != logs.Done }

func (t *table) requests(results *Results) {
	columns := results.requestColumns()
	if len(columns) == 0 {
		return
	}
	t.head("requests per TrainJob", columns)
	for _, step := range []string{"start", "finish", "eviction", "re-admission", "touch", "restart"} {
		for _, kind := range requestKinds {
			t.row(step+": "+kind.name, "%.1f", func(column string) float64 {
				return of(results.step(column, step), func(r *Requests) float64 {
					return perJob(r.Requests, r.Jobs, integrators(column), kind.is)
				})
			})
		}
	}
	t.row("idle: all requests in an hour, not per TrainJob", "%.0f", func(column string) float64 {
		return of(results.step(column, "idle"), func(r *Requests) float64 {
			return perJob(r.Requests, 1, integrators(column), func(Count) bool { return true }) * 3600 / r.Seconds
		})
	})
}

// lifeByResource lists the requests of an undisturbed life.
func (t *table) lifeByResource(results *Results) {
	columns := results.requestColumns()
	if len(columns) == 0 {
		return
	}
	all := map[string]map[string]float64{}
	for _, column := range columns {
		for _, step := range []string{"start", "finish"} {
			if r := results.step(column, step); r != nil {
				addLife(all, column, r)
			}
		}
	}
	t.head("undisturbed life", columns)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.row(name, "%.2f", func(column string) float64 { return all[name][column] })
	}
}

func addLife(all map[string]map[string]float64, column string, r *Requests) {
	for _, c := range r.Requests {
		if !slices.Contains(integrators(column), c.User) || c.Resource == "events" {
			continue
		}
		name := c.Verb + " " + c.Resource
		if c.DryRun {
			name += ", dry run"
		}
		if c.Outcome != logs.Done {
			name += ", " + string(c.Outcome)
		}
		if all[name] == nil {
			all[name] = map[string]float64{}
		}
		all[name][column] += float64(c.Count) / float64(r.Jobs)
	}
}

// times tells how long starts and evictions took of the few TrainJobs whose requests are counted.
func (t *table) times(results *Results) {
	columns := results.requestColumns()
	if len(columns) == 0 {
		return
	}
	t.head(fmt.Sprintf("times of %d TrainJobs", results.step(columns[0], "start").Jobs), columns)
	for _, what := range []struct{ step, name string }{
		{"start", "one by one: admitted to started"},
		{"re-admission", "all at once: admitted again to started"},
		{"eviction", "all at once: evicted to last pod gone"},
	} {
		took := func(column string) Percentiles {
			if step := results.step(column, what.step); step != nil && step.Took != nil {
				return *step.Took
			}
			return Percentiles{P50Ms: math.NaN(), P99Ms: math.NaN()}
		}
		t.row(what.name+", p50, ms", "%.0f", func(column string) float64 { return took(column).P50Ms })
		t.row(what.name+", p99, ms", "%.0f", func(column string) float64 { return took(column).P99Ms })
	}
}

func (t *table) throughput(results *Results, how shape, n int) {
	runs := results.at(how, n)
	var columns []string
	for _, run := range runs {
		columns = append(columns, run.Column)
	}
	t.head(fmt.Sprintf("%s of %d TrainJobs", how, n), columns)
	row := func(name, format string, value func(*Run) float64) {
		t.row(name, format, func(column string) float64 { return value(results.run(column, how, n)) })
	}
	row("last TrainJob created, s", "%.1f", func(r *Run) float64 { return r.CreatedS })
	row("last Workload admitted, s", "%.1f", func(r *Run) float64 { return r.AdmittedS })
	row("last TrainJob started, s", "%.1f", func(r *Run) float64 { return r.StartedS })
	row("last pod bound, s", "%.1f", func(r *Run) float64 { return r.BoundS })
	row("admitted to started, p50, ms", "%.0f", func(r *Run) float64 { return r.Lag.P50Ms })
	row("admitted to started, p99, ms", "%.0f", func(r *Run) float64 { return r.Lag.P99Ms })
	row("writes per TrainJob, Kueue and manager", "%.1f", func(r *Run) float64 { return r.perJob(stored) })
	row("dry runs per TrainJob", "%.1f", func(r *Run) float64 { return r.perJob(dryRuns) })
	row("CPU of Kueue and manager, s", "%.1f", func(r *Run) float64 { return r.Used.cpu("kueue", "kueue-trainer") })
	for _, component := range []string{"kueue", "kueue-trainer", "kube-apiserver", "trainer", "jobset"} {
		row("CPU of "+component+", s", "%.1f", func(r *Run) float64 { return r.Used.cpu(component) })
	}
	for _, component := range []string{"kueue", "kueue-trainer", "kube-apiserver", "trainer", "jobset"} {
		row("peak memory of "+component+", MiB", "%.0f", func(r *Run) float64 { return r.Used[component].PeakMiB })
	}
	row("program pages in that of kueue-trainer, MiB", "%.0f", func(r *Run) float64 { return r.Used["kueue-trainer"].FileMiB })
	if how == stream {
		row("to the end of all: CPU of Kueue and manager, s", "%.1f", func(r *Run) float64 { return r.UsedToFinish.cpu("kueue", "kueue-trainer") })
		row("to the end of all: CPU of kube-apiserver, s", "%.1f", func(r *Run) float64 { return r.UsedToFinish.cpu("kube-apiserver") })
	}
}

// perJob counts what Kueue and the manager asked for from the first create to the last pod.
func (r *Run) perJob(is func(Count) bool) float64 {
	return perJob(slices.Concat(r.RequestsToCreate, r.Requests), r.Jobs, integrators(r.Column), is)
}

func (t *table) growth(results *Results) {
	sizes := results.growth()
	if len(sizes) < 2 {
		return
	}
	t.head("CPU of Kueue and manager per TrainJob in a burst, creation included, ms", []string{allColumns[0].name, allColumns[len(allColumns)-1].name})
	for _, n := range sizes {
		t.row(fmt.Sprint(n), "%.1f", func(column string) float64 { return 1000 * results.run(column, burst, n).cpuPerJob() })
	}
}

// backlogs says what a manager costs that starts where many TrainJobs run and wait.
func (t *table) backlogs(results *Results) {
	for _, found := range results.Backlogs {
		manager := manager(found.Column)
		t.head(fmt.Sprintf("start of the manager with %d TrainJobs running and %d waiting", found.Running, found.Waiting), []string{found.Column})
		for _, row := range []struct {
			name  string
			value float64
		}{
			{"started to ready, s", found.ReadyS},
			{"CPU until it has looked at all of them, s", found.Used[manager].CPUSeconds},
			{"writes until then", perJob(found.Requests, 1, []string{manager}, stored)},
			{"reads until then", perJob(found.Requests, 1, []string{manager}, func(c Count) bool { return !c.Write() })},
			{"peak memory, MiB", found.Used[manager].PeakMiB},
			{"peak memory of the one before, which took them all in, MiB", found.Before[manager].PeakMiB},
			{"peak memory of Kueue, MiB", found.Used["kueue"].PeakMiB},
		} {
			t.row(row.name, "%.1f", func(string) float64 { return row.value })
		}
	}
}

func (t *table) functions(results *Results) {
	if len(results.Functions) == 0 {
		return
	}
	fmt.Fprint(t, "\n| Go benchmark | µs | allocations | KiB |\n|---|---|---|---|\n")
	for _, f := range results.Functions {
		fmt.Fprintf(t, "| %s | %.1f | %.0f | %.1f |\n", f.Name, f.NsPerOp/1000, f.AllocsPerOp, f.BytesPerOp/1024)
	}
}

func (t *table) forecasts(results *Results) {
	if len(results.Forecasts) == 0 {
		return
	}
	fmt.Fprintf(t, "\n| forecast of one job in | Workloads | futures in %.0f s | one future, s | %d futures, s |\n|---|---|---|---|---|\n", drawFor.Seconds(), fewFutures)
	for _, f := range results.Forecasts {
		fmt.Fprintf(t, "| %s | %d | %d | %s | %s |\n", f.where(), f.Workloads, f.Futures, f.seconds(1), f.seconds(fewFutures))
	}
}

// requestColumns names the columns whose requests were counted.
func (r *Results) requestColumns() []string {
	var found []string
	for _, column := range allColumns {
		if r.step(column.name, "start") != nil {
			found = append(found, column.name)
		}
	}
	return found
}
