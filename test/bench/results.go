// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/bench/internal/usage"
	"github.com/kueue-trainer/kueue-trainer/test/kit/logs"
)

// Results are the raw numbers of a report.
type Results struct {
	Machine Machine `json:"machine"`
	// Commits of this repository by the part that was measured there.
	Commits   map[string]string `json:"commits"`
	Requests  []*Requests       `json:"requests,omitempty"`
	Runs      []*Run            `json:"runs,omitempty"`
	Backlogs  []*Backlog        `json:"backlogs,omitempty"`
	Functions []*Function       `json:"functions,omitempty"`
	Forecasts []*Forecast       `json:"forecasts,omitempty"`
}

// Requests are those of one step in the lives of TrainJobs.
type Requests struct {
	Column string `json:"column"`
	// Step is start, idle, touch, restart, eviction, re-admission or finish.
	Step     string  `json:"step"`
	Jobs     int     `json:"jobs"`
	Seconds  float64 `json:"seconds"`
	Requests []Count `json:"requests"`
	Used     Used    `json:"used"`
	// Took is the time of start and re-admission, from admitted to started, and of
	// eviction, to the end of the last pod of a job.
	Took *Percentiles `json:"took,omitempty"`
}

// Count is a kind of request and how many there were, of all jobs together.
type Count struct {
	logs.Request
	Count int `json:"count"`
}

// Run is a stream or a burst. Times are in seconds, to the last of all jobs: in a stream
// from the first create, in a burst from the release of the queue.
type Run struct {
	Column string `json:"column"`
	Shape  shape  `json:"shape"`
	Jobs   int    `json:"jobs"`
	// CreatedS counts from the first create, in a burst too.
	CreatedS  float64 `json:"createdSeconds"`
	AdmittedS float64 `json:"admittedSeconds"`
	StartedS  float64 `json:"startedSeconds"`
	BoundS    float64 `json:"boundSeconds"`
	// FinishedS counts from when the pods were told to end; streams only.
	FinishedS float64 `json:"finishedSeconds,omitempty"`
	// Lag is from a Workload's admission to its TrainJob's start.
	Lag Percentiles `json:"lag"`
	// Admissions and Starts are the seconds after which each tenth of the jobs was there.
	Admissions []float64 `json:"admissions"`
	Starts     []float64 `json:"starts"`
	// Used and Requests are from the beginning to when all is quiet again after the last
	// pod was bound; ToCreate is the part of a burst before its release, ToFinish the end
	// of a stream.
	Used             Used    `json:"used"`
	UsedToCreate     Used    `json:"usedToCreate,omitempty"`
	UsedToFinish     Used    `json:"usedToFinish,omitempty"`
	Requests         []Count `json:"requests"`
	RequestsToCreate []Count `json:"requestsToCreate,omitempty"`
	RequestsToFinish []Count `json:"requestsToFinish,omitempty"`
}

// Used is what each component used.
type Used map[string]usage.Usage

// cpu adds up the CPU seconds of components.
func (u Used) cpu(components ...string) float64 {
	sum := 0.0
	for _, name := range components {
		sum += u[name].CPUSeconds
	}
	return sum
}

// Function is a Go benchmark.
type Function struct {
	Name        string  `json:"name"`
	NsPerOp     float64 `json:"nsPerOp"`
	BytesPerOp  float64 `json:"bytesPerOp"`
	AllocsPerOp float64 `json:"allocsPerOp"`
}

// drop forgets what a part measured. A growth series adds to the bursts.
func (r *Results) drop(part string) {
	switch part {
	case partRequests:
		r.Requests = nil
	case partBacklog:
		r.Backlogs = nil
	case partFunctions:
		r.Functions = nil
	case partForecast:
		r.Forecasts = nil
	case partStream, partBurst:
		r.Runs = slices.DeleteFunc(r.Runs, func(run *Run) bool { return string(run.Shape) == part })
	}
}

// run returns a stream or burst, or nil.
func (r *Results) run(column string, how shape, jobs int) *Run {
	return first(r.Runs, func(run *Run) bool { return run.Column == column && run.Shape == how && run.Jobs == jobs })
}

// step returns the requests of one step, or nil.
func (r *Results) step(column, step string) *Requests {
	return first(r.Requests, func(requests *Requests) bool { return requests.Column == column && requests.Step == step })
}

// function returns a Go benchmark, or nil.
func (r *Results) function(name string) *Function {
	return first(r.Functions, func(f *Function) bool { return f.Name == name })
}

func first[T any](all []*T, is func(*T) bool) *T {
	if i := slices.IndexFunc(all, is); i >= 0 {
		return all[i]
	}
	return nil
}

// sorted lists counts, the most frequent first.
func sorted(counts logs.Counts) []Count {
	all := make([]Count, 0, len(counts))
	for request, n := range counts {
		all = append(all, Count{Request: request, Count: n})
	}
	slices.SortFunc(all, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Verb, b.Verb),
			cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Outcome, b.Outcome))
	})
	return all
}

// stored are the writes that are meant to last, events aside.
func stored(c Count) bool { return c.Write() && !c.DryRun && c.Resource != "events" }

func dryRuns(c Count) bool { return c.DryRun }

// perJob counts the requests of components that are of a kind, per TrainJob.
func perJob(requests []Count, jobs int, components []string, is func(Count) bool) float64 {
	n := 0
	for _, c := range requests {
		if slices.Contains(components, c.User) && is(c) {
			n += c.Count
		}
	}
	return float64(n) / float64(jobs)
}

// Percentiles of times, in milliseconds.
type Percentiles struct {
	P50Ms float64 `json:"p50Ms"`
	P99Ms float64 `json:"p99Ms"`
	MaxMs float64 `json:"maxMs"`
}

// percentiles returns the smallest times that half, and 99 of 100, do not exceed.
func percentiles(times []time.Duration) Percentiles {
	if len(times) == 0 {
		return Percentiles{}
	}
	slices.Sort(times)
	at := func(percent int) float64 {
		rank := (len(times)*percent + 99) / 100
		return float64(times[max(rank, 1)-1]) / float64(time.Millisecond)
	}
	return Percentiles{P50Ms: at(50), P99Ms: at(99), MaxMs: at(100)}
}

// curve returns the seconds after from at which each tenth of the times was reached.
func curve(times []time.Time, from time.Time) []float64 {
	slices.SortFunc(times, time.Time.Compare)
	var tenths []float64
	for i := 1; i <= 10 && len(times) > 0; i++ {
		tenths = append(tenths, times[(len(times)*i+9)/10-1].Sub(from).Seconds())
	}
	return tenths
}

// largest returns the size of the largest burst or stream that all its columns have.
func largest(results *Results, how shape) int {
	n := 0
	for _, size := range results.sizes(how) {
		if len(results.at(how, size)) == len(results.columns(how)) {
			n = max(n, size)
		}
	}
	return n
}

// at returns the runs of a size, in the order of the columns.
func (r *Results) at(how shape, n int) []*Run {
	var found []*Run
	for _, column := range allColumns {
		if run := r.run(column.name, how, n); run != nil {
			found = append(found, run)
		}
	}
	return found
}

// sizes returns the sizes of the runs of a shape, ascending.
func (r *Results) sizes(how shape) []int {
	var sizes []int
	for _, run := range r.Runs {
		if run.Shape == how && !slices.Contains(sizes, run.Jobs) {
			sizes = append(sizes, run.Jobs)
		}
	}
	slices.Sort(sizes)
	return sizes
}

// columns names the columns that have runs of a shape.
func (r *Results) columns(how shape) []string {
	var found []string
	for _, column := range allColumns {
		if slices.ContainsFunc(r.Runs, func(run *Run) bool { return run.Column == column.name && run.Shape == how }) {
			found = append(found, column.name)
		}
	}
	return found
}

// growth returns the sizes of the bursts that the first and the last column have in common.
func (r *Results) growth() []int {
	return slices.DeleteFunc(r.sizes(burst), func(n int) bool {
		return r.run(allColumns[0].name, burst, n) == nil || r.run(allColumns[len(allColumns)-1].name, burst, n) == nil
	})
}

// cpuPerJob is what Kueue and the manager used per TrainJob, from the first create on.
func (r *Run) cpuPerJob() float64 {
	return (r.Used.cpu("kueue", "kueue-trainer") + r.UsedToCreate.cpu("kueue", "kueue-trainer")) / float64(r.Jobs)
}
