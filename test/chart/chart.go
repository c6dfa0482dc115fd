// SPDX-License-Identifier: Apache-2.0

// Package chart gives plots for documentation one look.
package chart

import (
	"bytes"
	"image/color"

	xfont "golang.org/x/image/font"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
)

// colors tell series apart, also for people who see fewer of them (Okabe and Ito).
var colors = []color.RGBA{
	{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}, {R: 0xe6, G: 0x9f, B: 0x00, A: 0xff}, {R: 0x00, G: 0x9e, B: 0x73, A: 0xff},
	{R: 0xd5, G: 0x5e, B: 0x00, A: 0xff}, {R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}, {R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
	{R: 0x99, G: 0x99, B: 0x99, A: 0xff}, {R: 0xb8, G: 0xa9, B: 0x00, A: 0xff},
}

// Color is that of a series.
func Color(i int) color.RGBA { return colors[i%len(colors)] }

// New returns a plot whose axes begin at 0.
func New(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text, p.Title.TextStyle.Font, p.Title.Padding = title, Bold(13), 8
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Min = 0
		axis.Label.TextStyle.Font, axis.Tick.Label.Font = Font(11), Font(10)
	}
	p.Legend.TextStyle.Font, p.Legend.Padding = Font(11), 3
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	grid.Horizontal.Color = color.Gray{Y: 0xbb}
	p.Add(grid)
	return p
}

// Font is the one of plots.
func Font(size vg.Length) font.Font {
	return font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size)
}

// Bold is that of titles.
func Bold(size vg.Length) font.Font {
	return font.From(font.Font{Typeface: "Liberation", Variant: "Sans", Weight: xfont.WeightBold}, size)
}

// SVG returns what is drawn on a canvas as a file. Drawing may fail as an attempt does.
func SVG(width, height vg.Length, drawOn func(draw.Canvas)) ([]byte, error) {
	var file bytes.Buffer
	err := attempt.To(func() {
		canvas := vgsvg.New(width, height)
		drawOn(draw.New(canvas))
		attempt.Must(canvas.WriteTo(&file))
	})
	svg := file.Bytes()
	// Who has not these fonts has others like them.
	for name, other := range map[string]string{"Liberation Sans": "sans-serif", "Liberation Mono": "monospace"} {
		svg = bytes.ReplaceAll(svg, []byte(name+";"), []byte(name+", "+other+";"))
	}
	return svg, err
}
