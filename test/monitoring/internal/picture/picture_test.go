// SPDX-License-Identifier: Apache-2.0

package picture

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/common/model"
)

func TestLegend(t *testing.T) {
	labels := model.Metric{"namespace": "vision", "local_queue": "gpus"}
	for format, want := range map[string]string{
		"{{namespace}}/{{local_queue}}": "vision/gpus",
		"{{ namespace }} {{reason}}":    "vision",
		"quota":                         "quota",
		"":                              "",
	} {
		if got := Legend(format, labels); got != want {
			t.Errorf("Legend(%q) is %q, want %q", format, got, want)
		}
	}
}

func TestAmount(t *testing.T) {
	for _, test := range []struct {
		value float64
		unit  string
		want  string
	}{
		{0.256, "percentunit", "25.6 %"},
		{90, "s", "1.50 min"},
		{0.0042, "s", "4.20 ms"},
		{0, "s", "0 s"},
		{3 << 20, "bytes", "3 MiB"},
		{12.5, "ops", "12.5/s"},
		{48, "short", "48"},
		{0.03333, "short", "0.0333"},
	} {
		if got := Amount(test.value, test.unit); got != test.want {
			t.Errorf("%v in %s is %q, want %q", test.value, test.unit, got, test.want)
		}
	}
}

// Stacked series stand on those before them, also where one of them has nothing at a time.
func TestLayers(t *testing.T) {
	at := func(pairs ...float64) []model.SamplePair {
		var all []model.SamplePair
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, model.SamplePair{Timestamp: model.Time(pairs[i]), Value: model.SampleValue(pairs[i+1])})
		}
		return all
	}
	p := Panel{Stacked: true, Series: aligned([]Series{{Values: at(1, 5, 2, math.NaN())}, {Values: at(2, 3)}, {Values: at(1, 1, 2, 1)}})}
	lower, upper := layers(p)
	if diff := cmp.Diff([][]float64{{0, 0}, {5, 0}, {5, 3}}, lower); diff != "" {
		t.Errorf("lower (-want,+got):\n%s", diff)
	}
	if diff := cmp.Diff([][]float64{{5, 0}, {5, 3}, {6, 4}}, upper); diff != "" {
		t.Errorf("upper (-want,+got):\n%s", diff)
	}
}

func TestParts(t *testing.T) {
	var values []model.SamplePair
	numbers := []float64{1, math.NaN(), 3, 4, 5, math.Inf(1)}
	for i, at := range []model.Time{0, 1000, 2000, 3000, 9000, 10000} {
		values = append(values, model.SamplePair{Timestamp: at, Value: model.SampleValue(numbers[i])})
	}
	got := parts(values, numbers, 3*time.Second)
	if diff := cmp.Diff([]span{{0, 1}, {2, 4}, {4, 5}}, got, cmp.AllowUnexported(span{})); diff != "" {
		t.Errorf("(-want,+got):\n%s", diff)
	}
}

// A picture of everything is well-formed, and has what it is given.
func TestSVG(t *testing.T) {
	from := time.Unix(1000, 0)
	values := []model.SamplePair{{Timestamp: model.TimeFromUnix(1000), Value: 1}, {Timestamp: model.TimeFromUnix(1060), Value: 4}}
	values = append(values, model.SamplePair{Timestamp: model.TimeFromUnix(1030), Value: model.SampleValue(math.NaN())})
	slices.SortFunc(values, func(a, b model.SamplePair) int { return int(a.Timestamp - b.Timestamp) })
	table := Panel{Kind: Rows, Title: "Stuck <b>", X: 12, Y: 5, W: 12, H: 8}
	table.Table("TrainJobs", model.Vector{{Metric: model.Metric{"reason": "NotStarted"}, Value: 2}})
	table.Table("others", model.Vector{{Metric: model.Metric{"reason": "NotStarted"}, Value: 7}})
	svg := string(Picture{Title: "TrainJobs", From: from, To: from.Add(time.Minute), Panels: []Panel{
		{Kind: Row, Title: "Now", W: 24, H: 1},
		{Kind: Number, Title: "Running", Y: 1, W: 4, H: 4, Series: []Series{{Values: values}}},
		{Kind: Number, Title: "Nothing", X: 4, Y: 1, W: 4, H: 4},
		{Kind: Lines, Title: "Once", Gap: time.Minute, Y: 5, W: 12, H: 8, Series: []Series{{Name: "half", Values: values}}},
		{Kind: Lines, Title: "Over time", Stacked: true, Gap: time.Minute, Y: 5, W: 12, H: 8, Series: []Series{{Name: "queued", Values: values}}},
		table,
	}}.SVG())
	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if strings.Contains(svg, "NaN") {
		t.Errorf("NaN is drawn in\n%s", svg)
	}
	for _, want := range []string{">Now<", ">4<", ">No data<", ">queued<", "Stuck &lt;b&gt;", ">NotStarted<", ">2<", ">7<", "1 minutes"} {
		if !strings.Contains(svg, want) {
			t.Errorf("No %q in\n%s", want, svg)
		}
	}
}
