// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"

	"github.com/kueue-trainer/kueue-trainer/test/bench/internal/svg"
)

// plots draws what was measured, by file name.
func plots(results *Results) map[string][]byte {
	files := map[string][]byte{}
	if n := largest(results, burst); n > 0 {
		files["starts.svg"] = startsPlot(results, n)
		files["cpu.svg"] = cpuPlot(results, n)
	}
	if sizes := results.growth(); len(sizes) > 1 {
		files["growth.svg"] = growthPlot(results, sizes)
	}
	return files
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

func startsPlot(results *Results, n int) []byte {
	var lines []svg.Line
	for _, run := range results.at(burst, n) {
		line := svg.Line{Name: titleOf(run.Column), Points: []svg.Point{{}}}
		for i, seconds := range run.Starts {
			line.Points = append(line.Points, svg.Point{X: seconds, Y: float64(n) * float64(i+1) / 10})
		}
		lines = append(lines, line)
	}
	return svg.Lines(fmt.Sprintf("A burst of %d TrainJobs", n), "seconds after the queue was released", "TrainJobs started", lines)
}

func cpuPlot(results *Results, n int) []byte {
	groups := []string{"Kueue + manager", "Trainer", "JobSet", "API server"}
	var series []svg.Bars
	for _, run := range results.at(burst, n) {
		series = append(series, svg.Bars{Name: titleOf(run.Column), Values: []float64{
			run.Used.cpu("kueue", "kueue-trainer"), run.Used.cpu("trainer"), run.Used.cpu("jobset"), run.Used.cpu("kube-apiserver"),
		}})
	}
	return svg.Grouped(fmt.Sprintf("CPU of a burst of %d TrainJobs, after the release", n), "seconds", groups, series)
}

func growthPlot(results *Results, sizes []int) []byte {
	var lines []svg.Line
	for _, column := range results.columns(burst) {
		line := svg.Line{Name: titleOf(column)}
		for _, n := range sizes {
			if run := results.run(column, burst, n); run != nil {
				line.Points = append(line.Points, svg.Point{X: float64(n), Y: 1000 * run.integrationCPU() / float64(n)})
			}
		}
		if len(line.Points) == len(sizes) {
			lines = append(lines, line)
		}
	}
	return svg.Lines("CPU of Kueue and manager per TrainJob, creation included", "TrainJobs in a burst", "milliseconds", lines)
}

// integrationCPU is what Kueue and the manager used from the first create on.
func (r *Run) integrationCPU() float64 {
	return r.Used.cpu("kueue", "kueue-trainer") + r.UsedToCreate.cpu("kueue", "kueue-trainer")
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

// growth returns the sizes of the bursts that the first and the last column have in common.
func (r *Results) growth() []int {
	return slices.DeleteFunc(r.sizes(burst), func(n int) bool {
		return r.run(allColumns[0].name, burst, n) == nil || r.run(allColumns[len(allColumns)-1].name, burst, n) == nil
	})
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
