// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"encoding/xml"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"gonum.org/v1/plot/plotter"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestLegend(t *testing.T) {
	labels := model.Metric{"namespace": "vision", "local_queue": "gpus"}
	for format, want := range map[string]string{
		"{{namespace}}/{{local_queue}}": "vision/gpus",
		"{{ namespace }} {{reason}}":    "vision",
		"quota":                         "quota",
		"":                              "",
	} {
		expect.Same(t, "Unexpected Legend of "+format, want, Legend(format, labels))
	}
}

func TestAmount(t *testing.T) {
	for _, test := range []struct {
		value float64
		unit  string
		want  string
	}{
		{0.256, "percentunit", "25.6 %"},
		{90, "s", "1.5 min"},
		{0.0042, "s", "4.2 ms"},
		{0, "s", "0 s"},
		{3 << 20, "bytes", "3 MiB"},
		{12.5, "ops", "12.5/s"},
		{48, "short", "48"},
		{0.03333, "short", "0.0333"},
	} {
		expect.Same(t, "Unexpected Amount in "+test.unit, test.want, Amount(test.value, test.unit))
	}
}

func pairs(values ...float64) []model.SamplePair {
	var all []model.SamplePair
	for i := 0; i < len(values); i += 2 {
		all = append(all, model.SamplePair{Timestamp: model.Time(values[i]), Value: model.SampleValue(values[i+1])})
	}
	return all
}

// Stacked series stand on those before them, also where one of them has nothing at a time.
func TestStacked(t *testing.T) {
	got := stacked([]Series{{Values: pairs(1, 5, 2, math.NaN())}, {Values: pairs(2, 3)}, {Values: pairs(1, 1, 2, 1)}})
	want := []Series{{Values: pairs(1, 5, 2, 0)}, {Values: pairs(1, 5, 2, 3)}, {Values: pairs(1, 6, 2, 4)}}
	expect.Same(t, "Unexpected series", want, got)
}

func TestParts(t *testing.T) {
	got := parts(pairs(0, 1, 1000, math.NaN(), 2000, 3, 3000, 4, 9000, 5, 10000, math.Inf(1)), 3*time.Second)
	expect.Same(t, "Unexpected parts", []plotter.XYs{{{X: 0, Y: 1}}, {{X: 2, Y: 3}, {X: 3, Y: 4}}, {{X: 9, Y: 5}}}, got)
}

// A picture of everything is well-formed, and has what it is given.
func TestSVG(t *testing.T) {
	from := time.Unix(1000, 0)
	values := pairs(1000_000, 1, 1030_000, math.NaN(), 1060_000, 4)
	table := Panel{Kind: Rows, Title: "Stuck <b>", X: 12, Y: 5, W: 12, H: 8}
	table.Table("TrainJobs", model.Vector{{Metric: model.Metric{"reason": "NotStarted"}, Value: 2}})
	table.Table("others", model.Vector{{Metric: model.Metric{"reason": "NotStarted"}, Value: 7}})
	file := expect.Must(Picture{Title: "TrainJobs", From: from, To: from.Add(time.Minute), Panels: []Panel{
		{Kind: Row, Title: "Now", W: 24, H: 1},
		{Kind: Number, Title: "Running", Y: 1, W: 4, H: 4, Series: []Series{{Values: values}}},
		{Kind: Number, Title: "Nothing", X: 4, Y: 1, W: 4, H: 4},
		{Kind: Lines, Title: "Once", Gap: time.Minute, Y: 5, W: 12, H: 8, Series: []Series{{Name: "half", Values: values}}},
		{Kind: Lines, Title: "Over time", Stacked: true, Gap: time.Minute, Y: 5, W: 12, H: 8, Series: []Series{{Name: "queued", Values: values}}},
		table,
	}}.SVG())(t)
	svg := string(file)
	expect.NoError(t, xml.Unmarshal(file, &struct{}{}))
	expect.That(t, !strings.Contains(svg, "NaN"), "NaN is drawn in\n%s", svg)
	for _, want := range []string{">Now<", ">4<", ">No data<", ">queued<", "Stuck &lt;b&gt;", "NotStarted\u00a0\u00a02\u00a0\u00a0\u00a0\u00a0\u00a0\u00a0\u00a0\u00a0\u00a0\u00a07<", "1 minutes"} {
		expect.That(t, strings.Contains(svg, want), "No %q in\n%s", want, svg)
	}
}
