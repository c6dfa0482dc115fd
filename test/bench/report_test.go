// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPercentile(t *testing.T) {
	var hundred []time.Duration
	for i := range 100 {
		hundred = append(hundred, time.Duration(100-i)*time.Millisecond)
	}
	expect.Same(t, "p50, p99, and of one", []float64{50, 99, 100}, []float64{percentile(hundred, 50), percentile(hundred, 99), percentile(hundred[:1], 50)})
}

func measured() *Results {
	r := &Results{Machine: Machine{Versions: map[string]string{}}, Commits: map[string]string{}}
	r.begin(partLife, "a")
	cpu := r.section("CPU")
	for _, values := range [][2]float64{{20, 10}, {30, 9}, {10, 90}} {
		here, there := section{cpu, ours.title}, section{cpu, inTree.title}
		there.add(rowWhole, values[0])
		here.add(rowWhole, values[1])
		here.add(cpuRow("start", "kueue-trainer"), 3)
		here.add(cpuRow("start", "jobset"), 2)
	}
	return r
}

func TestReport(t *testing.T) {
	got := measured().report()
	for _, want := range []string{
		"| CPU of the manager, per TrainJob that starts, to JobSet's controller | 1 | 1.50 | **no** |",
		"| CPU of Kueue and manager for a whole life, to in-tree | 1 | 0.50 | yes |",
		"| CPU | in-tree, 20 workers | kueue-trainer | to in-tree |\n|---|---|---|---|",
		"| " + rowWhole + " | 20.0 (10.0 to 30.0) | 10.0 (9.00 to 90.0) | 0.50 |",
		"| start: jobset | - | 2.00 |  |",
	} {
		expect.That(t, strings.Contains(got, want+"\n"), "no line %q in\n%s", want, got)
	}
	for _, unwanted := range []string{"NaN", "reconciles", "forecast"} {
		expect.That(t, !strings.Contains(got, unwanted), "%q, which was not measured, in\n%s", unwanted, got)
	}
}

func TestReportLeavesWhatPeopleWrote(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "performance.md")
	expect.NoError(t, os.WriteFile(page, []byte("intro\n"+beginMark+"old\n"+endMark+"estimate\n"), 0o600))
	writeReport(dir, measured())
	expect.Same(t, "Unexpected report", "intro\n"+beginMark+measured().report()+endMark+"estimate\n", string(expect.Must(os.ReadFile(page))(t)))
}

func TestMeasuringAPartAgainKeepsTheOthers(t *testing.T) {
	root, p := t.TempDir(), &plan{parts: []string{partScale}, out: "docs"}
	results := measured()
	results.Machine = thisMachine()
	results.begin(partScale, "a")
	results.section("A large cluster")
	writeReport(filepath.Join(root, p.out), results)
	again := p.earlier(root)
	again.begin(partScale, "b")
	expect.That(t, len(again.Sections) == 1 && again.Sections[0].Title == "CPU" && again.commits() == "a (life) and b (scale)",
		"kept %+v of %s, want the CPU of commit a", again.Sections, again.commits())
	results.Machine.CPUs++
	writeReport(filepath.Join(root, p.out), results)
	expect.Says(t, attempt.To(func() { p.earlier(root) }), "measured on another machine")
	p.parts = []string{partLife, partScale, partForecast}
	expect.That(t, len(p.earlier(root).Sections) == 0, "Everything is measured, and something was kept")
}
