// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/bench/internal/usage"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/logs"
)

func TestPercentiles(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[99-i] = time.Duration(i+1) * time.Millisecond
	}
	tests := map[string]struct {
		times []time.Duration
		want  Percentiles
	}{
		"ranks are counted from the smallest": {times: hundred, want: Percentiles{P50Ms: 50, P99Ms: 99, MaxMs: 100}},
		"one is all of them":                  {times: hundred[:1], want: Percentiles{P50Ms: 100, P99Ms: 100, MaxMs: 100}},
		"nothing was measured":                {},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			expect.Same(t, "Unexpected percentiles", tc.want, percentiles(slices.Clone(tc.times)))
		})
	}
}

func TestCurve(t *testing.T) {
	from := time.Unix(100, 0)
	times := []time.Time{from.Add(20 * time.Second), from.Add(10 * time.Second)}
	want := []float64{10, 10, 10, 10, 10, 20, 20, 20, 20, 20}
	expect.Same(t, "Unexpected curve", want, curve(times, from))
}

func TestParseBenchmarks(t *testing.T) {
	out := "goos: linux\nBenchmarkPodSets/in-tree/local_API_server-2 \t 300\t 271269.5 ns/op\t 96597 B/op\t 981 allocs/op\nPASS\n"
	got := parseBenchmarks(out)
	want := []*Function{{Name: "PodSets/in-tree/local API server", NsPerOp: 271269.5, BytesPerOp: 96597, AllocsPerOp: 981}}
	expect.Same(t, "Unexpected parseBenchmarks", want, got)
}

func TestParsePlan(t *testing.T) {
	p := expect.Must(parsePlan([]string{"-jobs", "20,50", "-columns", "external,in-tree", "-parts", "burst"}))(t)
	expect.Same(t, "Unexpected jobs", []int{20, 50}, p.jobs)
	expect.Same(t, "Unexpected columns", "in-tree,external", names(p.columns))
	for _, args := range [][]string{{"-jobs", "0"}, {"-columns", "other"}, {"-again", "-parts", "growth"}, {"-again", "-parts", "burst"}} {
		_, err := parsePlan(args)
		expect.That(t, err != nil, "%v is taken", args)
	}
}

// measured is a burst of both columns that goals and tables are about.
func measured() *Results {
	run := func(column string, started, kueue float64) *Run {
		return &Run{Column: column, Shape: burst, Jobs: 200, AdmittedS: 5, StartedS: started,
			Used: Used{"kueue": usage.Usage{CPUSeconds: kueue, PeakMiB: 120}, "kube-apiserver": usage.Usage{CPUSeconds: 10}}}
	}
	return &Results{
		Runs: []*Run{run("in-tree", 20, 4), run("external", 5, 3)},
		Requests: []*Requests{{Column: "external", Step: "start", Jobs: 10, Took: &Percentiles{P50Ms: 30, P99Ms: 40}, Requests: []Count{
			{Request: logs.Request{User: "kueue-trainer", Verb: "patch", Resource: "trainjobs", Outcome: logs.Done}, Count: 10},
			{Request: logs.Request{User: "kueue-trainer", Verb: "patch", Resource: "trainjobs", Outcome: logs.Conflict}, Count: 5},
			{Request: logs.Request{User: "trainer", Verb: "patch", Resource: "jobsets", Outcome: logs.Done}, Count: 90},
		}}},
	}
}

func TestTables(t *testing.T) {
	got := summary(measured()) + tables(measured())
	for _, want := range []string{
		"| burst of 200: released to last started, in-tree as shipped / ours | ≥ 4 | 4.00 | yes |",
		"| burst of 200: CPU of Kueue and manager, ours / in-tree as shipped | ≤ 0.6 | 0.75 | **no** |",
		"| burst of 200 TrainJobs | in-tree as shipped | kueue-trainer | ratio |",
		"| last TrainJob started, s | 20.0 | 5.0 | 4.0 |",
		"| start: writes | 1.5 |",
		"| start: of these in vain | 0.5 |",
		"| patch trainjobs, conflict | 0.50 |",
		"| times of 10 TrainJobs | kueue-trainer |",
		"| one by one: admitted to started, p50, ms | 30 |",
		"| all at once: evicted to last pod gone, p99, ms | |",
	} {
		expect.That(t, strings.Contains(got, want+"\n"), "no line %q in\n%s", want, got)
	}
}

// What was not measured is left out of goals, and is an empty cell.
func TestNothingIsToldOfWhatWasNotMeasured(t *testing.T) {
	got := summary(measured()) + tables(measured())
	expect.That(t, !strings.Contains(got, "NaN"), "NaN in\n%s", got)
}

func TestReplaceGenerated(t *testing.T) {
	tests := map[string]struct {
		before, want string
		wantErr      bool
	}{
		"what people wrote stays":            {before: "intro\n" + beginMark + "old\n" + endMark + "estimate\n", want: "intro\n" + beginMark + "new\n" + endMark + "estimate\n"},
		"a file without marks is left alone": {before: "other\n", want: "other\n", wantErr: true},
		"no file":                            {want: beginMark + "new\n" + endMark},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "performance.md")
			if tc.before != "" {
				expect.NoError(t, os.WriteFile(path, []byte(tc.before), 0o600))
			}
			expect.Same(t, "It is refused", tc.wantErr, replaceGenerated(path, "new\n") != nil)
			expect.Same(t, "Unexpected report", tc.want, string(expect.Must(os.ReadFile(path))(t)))
		})
	}
}

func TestMeasuringAgainKeepsTheOtherParts(t *testing.T) {
	dir := t.TempDir()
	machine := Machine{CPU: "c", CPUs: 2, Versions: map[string]string{}}
	measured := &Results{
		Machine: machine, Commits: map[string]string{partStream: "a", partBurst: "a"},
		Runs: []*Run{{Column: ours, Shape: stream, Jobs: 1}, {Column: ours, Shape: burst, Jobs: 2}},
	}
	expect.Must(writeReport(dir, measured))(t)
	got := expect.Must(earlierResults(dir, machine))(t)
	got.drop(partStream)
	got.Commits[partStream] = "b"
	expect.That(t, len(got.Runs) == 1 && got.Runs[0].Shape == burst && got.commits() == "a (burst) and b (stream)",
		"kept %+v of %s, want the burst of commit a", got.Runs, got.commits())
	machine.CPUs = 4
	_, err := earlierResults(dir, machine)
	expect.That(t, err != nil, "The report of another machine was taken")
}
