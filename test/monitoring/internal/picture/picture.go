// SPDX-License-Identifier: Apache-2.0

// Package picture draws what Grafana's dashboards show, as SVG, for documentation: numbers, lines,
// stacked areas and tables, where the dashboard has them.
package picture

import (
	"fmt"
	"html"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
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

// Sizes in pixels: of a cell of the grid, of what is left free around a panel, and of a character.
const (
	cellWidth, cellHeight = 50, 26
	gap                   = 3
	header                = 30
	character             = 6.5
)

// colors tell series apart, also for people who see fewer of them (Okabe and Ito).
var colors = []string{"#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#999999", "#b8a900"}

type drawing struct {
	strings.Builder
	from, to float64
}

// SVG draws the dashboard.
func (p Picture) SVG() []byte {
	d := &drawing{from: seconds(model.TimeFromUnixNano(p.From.UnixNano())), to: seconds(model.TimeFromUnixNano(p.To.UnixNano()))}
	height := header
	for _, panel := range p.Panels {
		height = max(height, header+(panel.Y+panel.H)*cellHeight)
	}
	d.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="11" fill="#333">`, 24*cellWidth, height)
	d.add(`<rect width="%d" height="%d" fill="#f4f5f5"/>`, 24*cellWidth, height)
	d.add(`<text x="8" y="20" font-size="15" font-weight="bold">%s</text>`, html.EscapeString(p.Title))
	d.text(24*cellWidth-8, 20, "end", fmt.Sprintf("%.0f minutes", math.Ceil((d.to-d.from)/60)))
	for _, panel := range p.Panels {
		d.panel(panel)
	}
	d.add("</svg>")
	return []byte(d.String())
}

// box is where a panel draws.
type box struct{ left, top, right, bottom float64 }

func (d *drawing) panel(p Panel) {
	b := box{
		left: float64(p.X*cellWidth + gap), top: float64(header + p.Y*cellHeight + gap),
		right: float64((p.X+p.W)*cellWidth - gap), bottom: float64(header + (p.Y+p.H)*cellHeight - gap),
	}
	if p.Kind == Row {
		d.add(`<text x="%.0f" y="%.0f" font-size="13" font-weight="bold">%s</text>`, b.left+4, b.bottom-4, html.EscapeString(p.Title))
		return
	}
	d.add(`<rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="2" fill="#fff" stroke="#ddd"/>`, b.left, b.top, b.right-b.left, b.bottom-b.top)
	d.add(`<text x="%.0f" y="%.0f" font-weight="bold">%s</text>`, b.left+8, b.top+16, html.EscapeString(p.Title))
	b.top += 26
	switch p.Kind {
	case Number:
		d.numbers(p, b)
	case Rows:
		d.table(p, b)
	default:
		d.lines(p, b)
	}
}

// numbers draws the last value of each series.
func (d *drawing) numbers(p Panel, b box) {
	if len(p.Series) == 0 {
		d.text((b.left+b.right)/2, (b.top+b.bottom)/2, "middle", "No data")
		return
	}
	for i, series := range p.Series {
		last := series.Values[len(series.Values)-1].Value
		y := b.top + (b.bottom-b.top)*(float64(i)+0.7)/float64(len(p.Series))
		d.add(`<text x="%.0f" y="%.0f" text-anchor="middle" font-size="24" fill="#0072b2">%s</text>`,
			(b.left+b.right)/2, y, html.EscapeString(strings.TrimSpace(series.Name+" "+Amount(float64(last), p.Unit))))
	}
}

// lines draws series over the time, with a scale and a legend.
func (d *drawing) lines(p Panel, b box) {
	if p.Stacked {
		p.Series = aligned(p.Series)
	}
	legend, plot := b, b
	plot.left, plot.right, plot.bottom = b.left+56, b.right-10, b.bottom-38
	legend.top = b.bottom - 22
	d.legend(p, legend)
	lower, upper := layers(p)
	high := 0.0
	for _, values := range upper {
		for _, value := range values {
			if !math.IsNaN(value) && !math.IsInf(value, 0) {
				high = max(high, value)
			}
		}
	}
	high = niceEnd(high)
	y := func(value float64) float64 { return plot.bottom - value/high*(plot.bottom-plot.top) }
	x := func(at float64) float64 { return plot.left + (at-d.from)/(d.to-d.from)*(plot.right-plot.left) }
	for i := range 4 {
		value := high * float64(i) / 3
		d.add(`<path d="M%.0f %.1fH%.0f" stroke="#eee"/>`, plot.left, y(value), plot.right)
		d.text(plot.left-5, y(value)+4, "end", Amount(value, p.Unit))
	}
	for i, series := range p.Series {
		color := colors[i%len(colors)]
		for _, part := range parts(series.Values, upper[i], p.Gap) {
			var path strings.Builder
			for j := part.from; j < part.to; j++ {
				fmt.Fprintf(&path, "L%.0f %.1f", x(seconds(series.Values[j].Timestamp)), y(upper[i][j]))
			}
			d.add(`<path d="M%s" fill="none" stroke="%s"/>`, path.String()[1:], color)
			if !p.Stacked {
				continue
			}
			for j := part.to - 1; j >= part.from; j-- {
				fmt.Fprintf(&path, "L%.0f %.1f", x(seconds(series.Values[j].Timestamp)), y(lower[i][j]))
			}
			d.add(`<path d="M%sZ" fill="%s" fill-opacity="0.3"/>`, path.String()[1:], color)
		}
	}
}

// span is a part of a series.
type span struct{ from, to int }

// parts splits a series where it has no number, or nothing for longer than gap.
func parts(values []model.SamplePair, numbers []float64, gap time.Duration) []span {
	var all []span
	from := 0
	for i := range values {
		if i > from && values[i].Timestamp.Sub(values[i-1].Timestamp) > gap {
			all = append(all, span{from, i})
			from = i
		}
		if math.IsNaN(numbers[i]) || math.IsInf(numbers[i], 0) {
			if i > from {
				all = append(all, span{from, i})
			}
			from = i + 1
		}
	}
	if from < len(values) {
		all = append(all, span{from, len(values)})
	}
	return all
}

// aligned returns every series with a value at every time that one of them has: none is nothing.
func aligned(series []Series) []Series {
	times := map[model.Time]bool{}
	for _, s := range series {
		for _, pair := range s.Values {
			times[pair.Timestamp] = true
		}
	}
	all := make([]Series, 0, len(series))
	for _, s := range series {
		values := map[model.Time]model.SampleValue{}
		for _, pair := range s.Values {
			values[pair.Timestamp] = pair.Value
		}
		full := Series{Name: s.Name}
		for _, at := range slices.Sorted(maps.Keys(times)) {
			full.Values = append(full.Values, model.SamplePair{Timestamp: at, Value: values[at]})
		}
		all = append(all, full)
	}
	return all
}

// layers returns where each value of each series begins and ends: stacked ones stand on those before.
func layers(p Panel) (lower, upper [][]float64) {
	below := map[model.Time]float64{}
	for _, series := range p.Series {
		var from, to []float64
		for _, pair := range series.Values {
			value := float64(pair.Value)
			if !p.Stacked {
				from, to = append(from, 0), append(to, value)
				continue
			}
			if math.IsNaN(value) {
				value = 0
			}
			from, to = append(from, below[pair.Timestamp]), append(to, below[pair.Timestamp]+value)
			below[pair.Timestamp] += value
		}
		lower, upper = append(lower, from), append(upper, to)
	}
	return lower, upper
}

// legend names the series, as many as fit into two lines.
func (d *drawing) legend(p Panel, b box) {
	x, y := b.left+8, b.top+4
	for i, series := range p.Series {
		width := 20 + float64(len(series.Name))*character
		if x+width > b.right {
			x, y = b.left+8, y+12
		}
		if y > b.bottom {
			return
		}
		d.add(`<rect x="%.0f" y="%.0f" width="8" height="8" fill="%s"/>`, x, y-8, colors[i%len(colors)])
		d.text(x+12, y, "start", series.Name)
		x += width
	}
}

// table draws lines of labels and values, as many as fit.
func (d *drawing) table(p Panel, b box) {
	names := map[model.LabelName]bool{}
	for _, row := range p.rows {
		for name := range row.labels {
			names[name] = true
		}
	}
	labels := slices.Sorted(maps.Keys(names))
	var head []string
	for _, label := range labels {
		head = append(head, string(label))
	}
	cells := [][]string{append(head, p.columns...)}
	for _, key := range slices.Sorted(maps.Keys(p.rows)) {
		var row []string
		for _, label := range labels {
			row = append(row, string(p.rows[key].labels[label]))
		}
		for _, column := range p.columns {
			text := ""
			if value, found := p.rows[key].values[column]; found {
				text = Amount(value, p.Unit)
			}
			row = append(row, text)
		}
		cells = append(cells, row)
	}
	left := columnsFrom(cells, b.left+8, b.right-8)
	for i, row := range cells {
		y := b.top + 10 + float64(i*17)
		if y > b.bottom-4 {
			return
		}
		weight := ""
		if i == 0 {
			weight = ` fill="#0072b2"`
		}
		for j, text := range row {
			if fits := int((append(left, b.right)[j+1] - left[j]) / character); len(text) > fits {
				text = text[:max(0, fits-1)] + "…"
			}
			d.add(`<text x="%.0f" y="%.0f"%s>%s</text>`, left[j], y, weight, html.EscapeString(text))
		}
	}
}

// columnsFrom returns where columns begin: each as wide as its longest text, and shrunk or stretched
// to fill the space together.
func columnsFrom(cells [][]string, from, to float64) []float64 {
	widths := make([]int, len(cells[0]))
	total := 0
	for i := range widths {
		for _, row := range cells {
			widths[i] = max(widths[i], len(row[i])+2)
		}
		total += widths[i]
	}
	var starts []float64
	x := from
	for _, width := range widths {
		starts = append(starts, x)
		x += float64(width) / float64(total) * (to - from)
	}
	return starts
}

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

func (d *drawing) text(x, y float64, anchor, text string) {
	d.add(`<text x="%.0f" y="%.0f" text-anchor="%s">%s</text>`, x, y, anchor, html.EscapeString(text))
}

func seconds(at model.Time) float64 { return float64(at.UnixNano()) / 1e9 }

// niceEnd rounds up to a number of which people like the thirds.
func niceEnd(highest float64) float64 {
	if highest <= 0 || math.IsInf(highest, 0) {
		return 3
	}
	power := math.Pow(10, math.Floor(math.Log10(highest)))
	for _, step := range []float64{1.5, 3, 6} {
		if highest <= step*power {
			return step * power
		}
	}
	return 15 * power
}

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
	digits := 0
	switch size := math.Abs(value); {
	case size == math.Trunc(size) || size >= 100:
	case size >= 10:
		digits = 1
	case size >= 0.1:
		digits = 2
	default:
		digits = 4
	}
	return strconv.FormatFloat(value, 'f', digits, 64)
}
