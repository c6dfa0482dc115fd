// SPDX-License-Identifier: Apache-2.0

// Package picture draws what Grafana's dashboards show, as SVG, for documentation: numbers, lines,
// stacked areas and tables, where the dashboard has them.
package picture

import (
	"bytes"
	"fmt"
	"image/color"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/prometheus/common/model"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/chart"
)

// Picture is a dashboard over a time.
type Picture struct {
	Title    string
	From, To time.Time
	Panels   []Panel
}

// Kind is how a panel shows what it has, in Grafana's words.
type Kind string

// The kinds that are drawn.
const (
	Row    Kind = "row"
	Number Kind = "stat"
	Lines  Kind = "timeseries"
	Rows   Kind = "table"
)

// Panel lies on Grafana's grid of 24 columns.
type Panel struct {
	Kind        Kind
	Title, Unit string
	Stacked     bool
	X, Y, W, H  int
	Series      []Series
	// Gap is the time without values that a line does not bridge.
	Gap time.Duration

	columns []string
	rows    map[string]*line
}

// Series is one line, or one number.
type Series struct {
	Name   string
	Values []model.SamplePair
}

// line of a table: what it is about, and a value for each column.
type line struct {
	labels model.Metric
	values map[string]float64
}

// Table adds a column of values to a panel; lines with the same labels are one. Without a name it adds
// lines alone.
func (p *Panel) Table(column string, values model.Vector) {
	if column != "" {
		p.columns = append(p.columns, column)
	}
	if p.rows == nil {
		p.rows = map[string]*line{}
	}
	for _, sample := range values {
		key := sample.Metric.String()
		if p.rows[key] == nil {
			p.rows[key] = &line{labels: sample.Metric, values: map[string]float64{}}
		}
		p.rows[key].values[column] = float64(sample.Value)
	}
}

var placeholder = regexp.MustCompile(`\{\{ *(\w+) *\}\}`)

// Legend fills a format such as "{{namespace}}/{{local_queue}}" in.
func Legend(format string, labels model.Metric) string {
	return strings.TrimSpace(placeholder.ReplaceAllStringFunc(format, func(found string) string {
		return string(labels[model.LabelName(placeholder.FindStringSubmatch(found)[1])])
	}))
}

// Sizes in points: of a cell of the grid, and of what is left free around a panel.
const (
	cellWidth, cellHeight = 50, 26
	gap                   = 3
	header                = 30
)

// SVG draws the dashboard.
func (p Picture) SVG() ([]byte, error) {
	rows := 0
	for _, panel := range p.Panels {
		rows = max(rows, panel.Y+panel.H)
	}
	return chart.SVG(24*cellWidth, vg.Length(header+rows*cellHeight), func(c draw.Canvas) {
		c.SetColor(color.Gray{Y: 0xf4})
		c.Fill(c.Rectangle.Path())
		write(c, text.XLeft, 8, 20, chart.Bold(15), p.Title)
		write(c, text.XRight, -8, 20, chart.Font(11), fmt.Sprintf("%.0f minutes", math.Ceil(p.To.Sub(p.From).Minutes())))
		for _, panel := range p.Panels {
			on := draw.Crop(c, vg.Length(panel.X*cellWidth+gap), vg.Length((panel.X+panel.W-24)*cellWidth-gap),
				vg.Length((rows-panel.Y-panel.H)*cellHeight+gap), -vg.Length(header+panel.Y*cellHeight+gap))
			panel.draw(on, p.From, p.To)
		}
	})
}

// write puts text so far below the top of a canvas and to the right of its left edge, its center, or its right edge.
func write(c draw.Canvas, align text.XAlignment, x, below vg.Length, f font.Font, words string) {
	from := c.Min.X - vg.Length(align)*c.Size().X
	style := text.Style{Color: color.Gray{Y: 0x33}, Font: f, XAlign: align, Handler: plot.DefaultTextHandler}
	c.FillText(style, vg.Point{X: from + x, Y: c.Max.Y - below}, words)
}

func (p Panel) draw(c draw.Canvas, from, to time.Time) {
	if p.Kind == Row {
		write(c, text.XLeft, 4, 16, chart.Bold(13), p.Title)
		return
	}
	c.SetColor(color.White)
	c.Fill(c.Rectangle.Path())
	write(c, text.XLeft, 8, 16, chart.Bold(12), p.Title)
	c = draw.Crop(c, 8, -8, 4, -24)
	switch p.Kind {
	case Number:
		p.numbers(c)
	case Rows:
		p.table(c)
	default:
		p.lines(c, from, to)
	}
}

// numbers draws the last value of each series.
func (p Panel) numbers(c draw.Canvas) {
	if len(p.Series) == 0 {
		write(c, text.XCenter, 0, c.Size().Y/2, chart.Font(11), "No data")
	}
	for i, series := range p.Series {
		last := float64(series.Values[len(series.Values)-1].Value)
		below := c.Size().Y * (vg.Length(i) + 0.7) / vg.Length(len(p.Series))
		write(c, text.XCenter, 0, below, chart.Font(24), strings.TrimSpace(series.Name+" "+Amount(last, p.Unit)))
	}
}

// lines draws series over the time, with their names at the right.
func (p Panel) lines(c draw.Canvas, from, to time.Time) {
	drawing := chart.New("")
	drawing.HideX()
	drawing.Y.Tick.Marker = p
	if p.Stacked {
		p.Series = stacked(p.Series)
	}
	p.addSeries(drawing)
	legend := drawing.Legend
	legend.Left, legend.Top = true, true
	for i, series := range p.Series {
		legend.Add(series.Name, &plotter.Line{LineStyle: draw.LineStyle{Color: chart.Color(i), Width: 3}})
	}
	drawing.X.Min, drawing.X.Max = seconds(model.TimeFromUnixNano(from.UnixNano())), seconds(model.TimeFromUnixNano(to.UnixNano()))
	if drawing.Y.Max <= 0 {
		drawing.Y.Max = 1
	}
	names := legend.Rectangle(c).Size().X
	if half := c.Size().X / 2; names > half {
		legend.TextStyle.Font.Size *= half / names
		names = half
	}
	drawing.Draw(draw.Crop(c, 0, -names-12, 0, 0))
	legend.Draw(draw.Crop(c, c.Size().X-names, 0, 0, -8))
}

func (p Panel) addSeries(drawing *plot.Plot) {
	// Of stacked series the highest comes first: the others cover it as far as they reach.
	for i, series := range slices.Backward(p.Series) {
		for _, part := range parts(series.Values, p.Gap) {
			line, err := plotter.NewLine(part)
			attempt.Succeed(err, "panel %q", p.Title)
			line.Color = chart.Color(i)
			if p.Stacked {
				line.FillColor = pale(chart.Color(i))
			}
			drawing.Add(line)
		}
	}
}

// pale is a color with much white.
func pale(c color.RGBA) color.Color {
	return color.RGBA{R: c.R/3 + 0xaa, G: c.G/3 + 0xaa, B: c.B/3 + 0xaa, A: 0xff}
}

// Ticks implements plot.Ticker: it writes the panel's unit.
func (p Panel) Ticks(low, high float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range ticks {
		if !ticks[i].IsMinor() {
			ticks[i].Label = Amount(ticks[i].Value, p.Unit)
		}
	}
	return ticks
}

// parts splits a series where it has no number, or nothing for longer than gap.
func parts(values []model.SamplePair, gap time.Duration) []plotter.XYs {
	var all []plotter.XYs
	var part plotter.XYs
	end := func() {
		if len(part) > 0 {
			all = append(all, part)
		}
		part = nil
	}
	for i, pair := range values {
		if i > 0 && pair.Timestamp.Sub(values[i-1].Timestamp) > gap {
			end()
		}
		if plotter.CheckFloats(float64(pair.Value)) != nil {
			end()
			continue
		}
		part = append(part, plotter.XY{X: seconds(pair.Timestamp), Y: float64(pair.Value)})
	}
	end()
	return all
}

// stacked returns every series on top of those before it, with a value at every time that one of them has:
// none is nothing.
func stacked(series []Series) []Series {
	below := map[model.Time]model.SampleValue{}
	for _, s := range series {
		for _, pair := range s.Values {
			below[pair.Timestamp] = 0
		}
	}
	all := make([]Series, 0, len(series))
	for _, s := range series {
		for _, pair := range s.Values {
			if plotter.CheckFloats(float64(pair.Value)) == nil {
				below[pair.Timestamp] += pair.Value
			}
		}
		full := Series{Name: s.Name}
		for _, at := range slices.Sorted(maps.Keys(below)) {
			full.Values = append(full.Values, model.SamplePair{Timestamp: at, Value: below[at]})
		}
		all = append(all, full)
	}
	return all
}

// table draws lines of labels and values, as many as fit.
func (p Panel) table(c draw.Canvas) {
	names := map[model.LabelName]bool{}
	for _, row := range p.rows {
		for name := range row.labels {
			names[name] = true
		}
	}
	labels := slices.Sorted(maps.Keys(names))
	var content bytes.Buffer
	w := tabwriter.NewWriter(&content, 0, 0, 2, ' ', 0)
	for _, label := range labels {
		fmt.Fprint(w, label, "\t")
	}
	fmt.Fprintln(w, strings.Join(p.columns, "\t"))
	for _, key := range slices.Sorted(maps.Keys(p.rows)) {
		for _, label := range labels {
			fmt.Fprint(w, p.rows[key].labels[label], "\t")
		}
		for _, column := range p.columns {
			if value, found := p.rows[key].values[column]; found {
				fmt.Fprint(w, Amount(value, p.Unit))
			}
			fmt.Fprint(w, "\t")
		}
		fmt.Fprintln(w)
	}
	attempt.Succeed(w.Flush())
	lines := strings.Split(strings.TrimSpace(content.String()), "\n")
	mono := chart.Font(11)
	mono.Variant = "Mono"
	// A character is as wide as 0.6 of its size: the longest line fits.
	for _, line := range lines {
		mono.Size = min(mono.Size, c.Size().X/vg.Length(0.6*float64(len(line))))
	}
	for i, line := range lines {
		if below := vg.Length(10 + 17*i); below < c.Size().Y {
			// SVG shows several spaces as one, and these as they are.
			write(c, text.XLeft, 0, below, mono, strings.ReplaceAll(line, " ", "\u00a0"))
		}
	}
}

func seconds(at model.Time) float64 { return float64(at.UnixNano()) / 1e9 }

// Amount writes a value in a unit of Grafana's.
func Amount(value float64, unit string) string {
	switch unit {
	case "percentunit":
		return number(value*100) + " %"
	case "s":
		return duration(value)
	case "bytes":
		return number(value/(1<<20)) + " MiB"
	case "ops":
		return number(value) + "/s"
	}
	return number(value)
}

func duration(value float64) string {
	for _, unit := range []struct {
		name    string
		seconds float64
	}{{"d", 86400}, {"h", 3600}, {"min", 60}, {"s", 1}} {
		if math.Abs(value) >= unit.seconds {
			return number(value/unit.seconds) + " " + unit.name
		}
	}
	if value == 0 {
		return "0 s"
	}
	return number(value*1000) + " ms"
}

// number writes three digits.
func number(value float64) string {
	if value == math.Trunc(value) || math.Abs(value) >= 100 {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.3g", value)
}
