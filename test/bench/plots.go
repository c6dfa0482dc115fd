// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
)

// plots draws what was measured, by file name.
func plots(results *Results) (map[string][]byte, error) {
	drawings := map[string]func() *plot.Plot{}
	if n := largest(results, burst); n > 0 {
		drawings["starts.svg"] = func() *plot.Plot { return startsPlot(results, n) }
		drawings["cpu.svg"] = func() *plot.Plot { return cpuPlot(results, n) }
	}
	if sizes := results.growth(); len(sizes) > 1 {
		drawings["growth.svg"] = func() *plot.Plot { return growthPlot(results, sizes) }
	}
	files := map[string][]byte{}
	for name, drawing := range drawings {
		var file bytes.Buffer
		err := attempt.To(func() {
			attempt.Must(attempt.Must(drawing().WriterTo(720, 360, "svg")).WriteTo(&file))
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files[name] = file.Bytes()
	}
	return files, nil
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

func startsPlot(results *Results, n int) *plot.Plot {
	p := newPlot(fmt.Sprintf("A burst of %d TrainJobs", n), "seconds after the queue was released", "TrainJobs started")
	for i, run := range results.at(burst, n) {
		points := plotter.XYs{{}}
		for tenth, seconds := range run.Starts {
			points = append(points, plotter.XY{X: seconds, Y: float64(n) * float64(tenth+1) / 10})
		}
		addLine(p, i, titleOf(run.Column), points)
	}
	return p
}

func growthPlot(results *Results, sizes []int) *plot.Plot {
	p := newPlot("CPU of Kueue and manager per TrainJob, creation included", "TrainJobs in a burst", "milliseconds")
	for i, column := range results.columns(burst) {
		var points plotter.XYs
		for _, n := range sizes {
			if run := results.run(column, burst, n); run != nil {
				points = append(points, plotter.XY{X: float64(n), Y: 1000 * run.cpuPerJob()})
			}
		}
		if len(points) == len(sizes) {
			addLine(p, i, titleOf(column), points)
		}
	}
	return p
}

func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.Y.Min = title, 0
	p.X.Label.Text, p.Y.Label.Text = x, y
	return p
}

func addLine(p *plot.Plot, i int, name string, points plotter.XYs) {
	line, dots, err := plotter.NewLinePoints(points)
	attempt.Succeed(err, "%s", name)
	line.Color, line.Width = plotutil.Color(i), 2
	dots.Color, dots.Shape = plotutil.Color(i), draw.CircleGlyph{}
	p.Add(line, dots)
	p.Legend.Add(name, line, dots)
}

// cpuPlot has a group of bars for each component, one of each column.
func cpuPlot(results *Results, n int) *plot.Plot {
	const width = vg.Length(40)
	p := newPlot(fmt.Sprintf("CPU of a burst of %d TrainJobs, after the release", n), "", "seconds")
	p.NominalX("Kueue + manager", "Trainer", "JobSet", "API server")
	p.Legend.Top, p.Legend.Left = true, true
	runs := results.at(burst, n)
	for i, run := range runs {
		values := plotter.Values{run.Used.cpu("kueue", "kueue-trainer"), run.Used.cpu("trainer"), run.Used.cpu("jobset"), run.Used.cpu("kube-apiserver")}
		bars := attempt.Must(plotter.NewBarChart(values, width))
		bars.Color, bars.LineStyle.Width = plotutil.Color(i), 0
		bars.Offset = width * vg.Length(2*i-len(runs)+1) / 2
		above := plotter.XYLabels{}
		for group, value := range values {
			above.XYs = append(above.XYs, plotter.XY{X: float64(group), Y: value})
			above.Labels = append(above.Labels, fmt.Sprintf("%.3g", value))
		}
		labels := attempt.Must(plotter.NewLabels(above))
		for j := range labels.TextStyle {
			labels.TextStyle[j].XAlign = draw.XCenter
		}
		labels.Offset = vg.Point{X: bars.Offset, Y: 3}
		p.Add(bars, labels)
		p.Legend.Add(titleOf(run.Column), bars)
	}
	// Room for the bars of the outer groups, and for the legend.
	p.X.Min, p.X.Max, p.Y.Max = -0.6, 3.6, 1.2*p.Y.Max
	return p
}

// cpuPerJob is what Kueue and the manager used per TrainJob, from the first create on.
func (r *Run) cpuPerJob() float64 {
	return (r.Used.cpu("kueue", "kueue-trainer") + r.UsedToCreate.cpu("kueue", "kueue-trainer")) / float64(r.Jobs)
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
