// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[99-i] = time.Duration(i+1) * time.Millisecond
	}
	expect.Same(t, "Unexpected median", 50.0, percentile(hundred, 50))
	expect.Same(t, "Unexpected 99th percentile", 99.0, percentile(hundred, 99))
	expect.Same(t, "Unexpected percentile of one time", 100.0, percentile(hundred[:1], 50))
}

func TestReconcilesOfTrainJobsAlone(t *testing.T) {
	series := func(controller string, count float64) *dto.Metric {
		return &dto.Metric{Label: []*dto.LabelPair{{Name: ptr.To("controller"), Value: &controller}}, Counter: &dto.Counter{Value: &count}}
	}
	got := reconciles(&dto.MetricFamily{Metric: []*dto.Metric{series("trainjob", 3), series("remainder", 5)}})
	expect.Same(t, "Unexpected reconciles", 3.0, got)
}

// measured are some rows of both columns.
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

func TestOneColumnAlone(t *testing.T) {
	only := measured()
	for _, row := range only.Sections[0].Rows {
		delete(row.Values, inTree.title)
	}
	got := only.Sections[0].table()
	expect.That(t, strings.HasPrefix(got, "\n| CPU | kueue-trainer |\n|---|---|\n| "+rowWhole+" | 10.0 (9.00 to 90.0) |\n"), "%s", got)
}

func TestParsePlan(t *testing.T) {
	p := expect.Must(parsePlan([]string{"-jobs", "20", "-parts", "life,scale"}))(t)
	expect.Same(t, "Unexpected jobs", 20, p.jobs)
	expect.Same(t, "Unexpected parts", "life scale", strings.Join(p.parts, " "))
	for _, args := range [][]string{{"-jobs", "0"}, {"-rounds", "0"}, {"-columns", "other"}} {
		_, err := parsePlan(args)
		expect.That(t, err != nil, "%v is taken", args)
	}
}

func TestUsageOf(t *testing.T) {
	got, err := usageOf(os.Getpid())
	expect.That(t, err == nil && got.anonMiB >= 1 && got.anonMiB <= 10_000 && got.cpuSeconds <= 1000, "this process: %+v, %v", got, err)
	zombie := exec.Command("/bin/true")
	expect.NoError(t, zombie.Start())
	t.Cleanup(func() { _ = zombie.Wait() })
	for end := time.Now().Add(30 * time.Second); err == nil && time.Now().Before(end); {
		_, err = usageOf(zombie.Process.Pid)
	}
	expect.That(t, err != nil, "a process that has ended is read")
}

func TestReportLeavesWhatPeopleWrote(t *testing.T) {
	dir := t.TempDir()
	page := filepath.Join(dir, "performance.md")
	expect.NoError(t, os.WriteFile(page, []byte("intro\n"+beginMark+"old\n"+endMark+"estimate\n"), 0o600))
	expect.NoError(t, writeReport(dir, measured()))
	expect.Same(t, "Unexpected report", "intro\n"+beginMark+measured().report()+endMark+"estimate\n", string(expect.Must(os.ReadFile(page))(t)))
}

func TestMeasuringAPartAgainKeepsTheOthers(t *testing.T) {
	root, p := t.TempDir(), &plan{parts: []string{partScale}, out: "docs"}
	results := measured()
	results.Machine = expect.Must(thisMachine())(t)
	results.begin(partScale, "a")
	results.section("A large cluster")
	expect.NoError(t, writeReport(filepath.Join(root, p.out), results))
	again := expect.Must(p.earlier(root))(t)
	again.begin(partScale, "b")
	expect.That(t, len(again.Sections) == 1 && again.Sections[0].Title == "CPU" && again.commits() == "a (life) and b (scale)",
		"kept %+v of %s, want the CPU of commit a", again.Sections, again.commits())
	results.Machine.CPUs++
	expect.NoError(t, writeReport(filepath.Join(root, p.out), results))
	_, err := p.earlier(root)
	expect.That(t, err != nil, "The report of another machine was taken")
	p.parts = []string{partLife, partScale, partForecast}
	expect.That(t, len(expect.Must(p.earlier(root))(t).Sections) == 0, "Everything is measured, and something was kept")
}
