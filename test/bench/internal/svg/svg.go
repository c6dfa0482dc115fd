// SPDX-License-Identifier: Apache-2.0

// Package svg draws the plots of the performance report: lines over an axis of numbers,
// and grouped bars.
package svg

import (
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
)

// Point is a value at a place on the horizontal axis.
type Point struct{ X, Y float64 }

// Line is a named series.
type Line struct {
	Name   string
	Points []Point
}

// Bars is a named series with a bar in every group.
type Bars struct {
	Name   string
	Values []float64
}

// The size of a plot in pixels, and the margins around its frame.
const (
	width, height            = 720, 360
	left, right, top, bottom = 64, 16, 64, 48
)

// colors tell series apart, also for people who see fewer of them (Okabe and Ito).
var colors = []string{"#d55e00", "#e69f00", "#0072b2", "#009e73"}

// plot is a drawing with a frame from 0 to the given ends of its axes.
type plot struct {
	strings.Builder
	endX, endY float64
}

// Lines draws series over a common axis.
func Lines(title, xLabel, yLabel string, lines []Line) []byte {
	p := &plot{endX: 1, endY: 1}
	var names []string
	var highX, highY float64
	for _, line := range lines {
		names = append(names, line.Name)
		for _, point := range line.Points {
			highX, highY = max(highX, point.X), max(highY, point.Y)
		}
	}
	p.endX, p.endY = niceEnd(highX), niceEnd(highY)
	p.begin(title, yLabel, names)
	for _, x := range ticks(p.endX) {
		p.text(p.x(x), height-bottom+16, "middle", number(x))
	}
	p.text((left+width-right)/2, height-12, "middle", xLabel)
	for i, line := range lines {
		var points []string
		for _, point := range line.Points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", p.x(point.X), p.y(point.Y)))
			p.add(`<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, p.x(point.X), p.y(point.Y), colors[i%len(colors)])
		}
		p.add(`<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`, strings.Join(points, " "), colors[i%len(colors)])
	}
	return p.end()
}

// Grouped draws bars beside each other in groups.
func Grouped(title, yLabel string, groups []string, series []Bars) []byte {
	p := &plot{endX: float64(len(groups)), endY: 1}
	var names []string
	highest := 0.0
	for _, bars := range series {
		names = append(names, bars.Name)
		for _, value := range bars.Values {
			highest = max(highest, value)
		}
	}
	p.endY = niceEnd(highest)
	p.begin(title, yLabel, names)
	barWidth := 0.8 / float64(max(len(series), 1))
	for g, group := range groups {
		p.text(p.x(float64(g)+0.5), height-bottom+16, "middle", group)
		for i, bars := range series {
			from := p.x(float64(g) + 0.1 + float64(i)*barWidth)
			to := p.x(float64(g) + 0.1 + float64(i+1)*barWidth)
			p.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`,
				from, p.y(bars.Values[g]), to-from-1, p.y(0)-p.y(bars.Values[g]), colors[i%len(colors)])
			p.text((from+to)/2, p.y(bars.Values[g])-4, "middle", number(bars.Values[g]))
		}
	}
	return p.end()
}

func (p *plot) add(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

func (p *plot) text(x, y float64, anchor, text string) {
	p.add(`<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`, x, y, anchor, html.EscapeString(text))
}

func (p *plot) x(value float64) float64 { return left + value/p.endX*(width-left-right) }

func (p *plot) y(value float64) float64 { return height - bottom - value/p.endY*(height-top-bottom) }

// begin draws all but the series.
func (p *plot) begin(title, yLabel string, names []string) {
	p.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12" fill="#333">`, width, height, width, height)
	p.add(`<rect width="%d" height="%d" fill="#fff"/>`, width, height)
	p.add(`<text x="%d" y="20" font-size="14" font-weight="bold">%s</text>`, left, html.EscapeString(title))
	p.text(left, top-8, "start", yLabel)
	for i, name := range names {
		x := left + 170*i
		p.add(`<rect x="%d" y="29" width="10" height="10" fill="%s"/>`, x, colors[i%len(colors)])
		p.text(float64(x+15), 38, "start", name)
	}
	for _, y := range ticks(p.endY) {
		p.add(`<line x1="%d" y1="%.1f" x2="%d" y2="%.1f" stroke="#ddd"/>`, left, p.y(y), width-right, p.y(y))
		p.text(left-8, p.y(y)+4, "end", number(y))
	}
}

func (p *plot) end() []byte {
	p.add("</svg>")
	return []byte(p.String())
}

// niceEnd rounds up to a number of which people like the fifths.
func niceEnd(highest float64) float64 {
	if highest <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(highest)))
	for _, step := range []float64{1, 1.5, 2, 2.5, 3, 4, 5, 6, 8} {
		if highest <= step*power {
			return step * power
		}
	}
	return 10 * power
}

// ticks returns fifths.
func ticks(end float64) []float64 {
	all := make([]float64, 0, 6)
	for i := range 6 {
		all = append(all, end*float64(i)/5)
	}
	return all
}

func number(value float64) string { return strconv.FormatFloat(value, 'f', decimals(value), 64) }

// decimals returns about three digits.
func decimals(value float64) int {
	switch {
	case value == math.Trunc(value) || value >= 100:
		return 0
	case value >= 10:
		return 1
	}
	return 2
}
