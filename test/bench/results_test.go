// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kueue-trainer/kueue-trainer/test/bench/internal/audit"
	"github.com/kueue-trainer/kueue-trainer/test/bench/internal/usage"
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
			if diff := cmp.Diff(tc.want, percentiles(slices.Clone(tc.times))); diff != "" {
				t.Errorf("percentiles() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCurve(t *testing.T) {
	from := time.Unix(100, 0)
	times := []time.Time{from.Add(20 * time.Second), from.Add(10 * time.Second)}
	want := []float64{10, 10, 10, 10, 10, 20, 20, 20, 20, 20}
	if diff := cmp.Diff(want, curve(times, from)); diff != "" {
		t.Errorf("curve() (-want +got):\n%s", diff)
	}
}

func TestParseBenchmarks(t *testing.T) {
	out := "goos: linux\nBenchmarkPodSets/in-tree/local_API_server-2 \t 300\t 271269.5 ns/op\t 96597 B/op\t 981 allocs/op\nPASS\n"
	got := parseBenchmarks(out)
	want := []*Function{{Name: "PodSets/in-tree/local API server", NsPerOp: 271269.5, BytesPerOp: 96597, AllocsPerOp: 981}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parseBenchmarks() (-want +got):\n%s", diff)
	}
}

func TestParsePlan(t *testing.T) {
	p, err := parsePlan([]string{"-jobs", "20,50", "-columns", "external,in-tree", "-parts", "burst"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{20, 50}, p.jobs); diff != "" || names(p.columns) != "in-tree,external" {
		t.Errorf("jobs %v, columns %s", p.jobs, names(p.columns))
	}
	for _, args := range [][]string{{"-jobs", "0"}, {"-columns", "other"}, {"-again", "-parts", "growth"}, {"-again", "-parts", "burst"}} {
		if _, err := parsePlan(args); err == nil {
			t.Errorf("%v is taken", args)
		}
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
			{Request: audit.Request{User: "kueue-trainer", Verb: "patch", Resource: "trainjobs", Outcome: audit.Done}, Count: 10},
			{Request: audit.Request{User: "kueue-trainer", Verb: "patch", Resource: "trainjobs", Outcome: audit.Conflict}, Count: 5},
			{Request: audit.Request{User: "trainer", Verb: "patch", Resource: "jobsets", Outcome: audit.Done}, Count: 90},
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
		if !strings.Contains(got, want+"\n") {
			t.Errorf("no line %q in\n%s", want, got)
		}
	}
}

// What was not measured is left out of goals, and is an empty cell.
func TestNothingIsToldOfWhatWasNotMeasured(t *testing.T) {
	if got := summary(measured()) + tables(measured()); strings.Contains(got, "NaN") {
		t.Errorf("NaN in\n%s", got)
	}
}

func TestPlots(t *testing.T) {
	results := measured()
	results.Runs[1].Starts = []float64{1, 2, 3}
	results.Runs = append(results.Runs, &Run{Column: "in-tree", Shape: burst, Jobs: 100}, &Run{Column: "external", Shape: burst, Jobs: 100})
	files, err := plots(results)
	if err != nil {
		t.Fatal(err)
	}
	for name, wants := range map[string][]string{
		"starts.svg": {"A burst of 200 TrainJobs", "in-tree as shipped", "kueue-trainer"},
		"cpu.svg":    {"API server", ">10<", "kueue-trainer"},
		"growth.svg": {"TrainJobs in a burst", "kueue-trainer"},
	} {
		if err := xml.Unmarshal(files[name], &struct{}{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range wants {
			if !strings.Contains(string(files[name]), want) {
				t.Errorf("%s has no %s", name, want)
			}
		}
	}
	if files, err := plots(&Results{}); len(files) > 0 || err != nil {
		t.Errorf("Of nothing there are %d plots, %v", len(files), err)
	}
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
				if err := os.WriteFile(path, []byte(tc.before), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if err := replaceGenerated(path, "new\n"); (err != nil) != tc.wantErr {
				t.Fatal(err)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != tc.want {
				t.Errorf("got %q, %v; want %q", got, err, tc.want)
			}
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
	if _, err := writeReport(dir, measured); err != nil {
		t.Fatal(err)
	}
	got, err := earlierResults(dir, machine)
	if err != nil {
		t.Fatal(err)
	}
	got.drop(partStream)
	got.Commits[partStream] = "b"
	if len(got.Runs) != 1 || got.Runs[0].Shape != burst || got.commits() != "a (burst) and b (stream)" {
		t.Errorf("kept %+v of %s, want the burst of commit a", got.Runs, got.commits())
	}
	machine.CPUs = 4
	if _, err := earlierResults(dir, machine); err == nil {
		t.Error("The report of another machine was taken")
	}
}
