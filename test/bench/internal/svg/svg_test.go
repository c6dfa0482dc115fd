// SPDX-License-Identifier: Apache-2.0

package svg

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestPlotsAreXML(t *testing.T) {
	tests := map[string]struct {
		drawing []byte
		want    []string
	}{
		"lines are scaled to the largest value": {
			drawing: Lines("Starts & more", "seconds", "jobs", []Line{{Name: "ours", Points: []Point{{0, 0}, {10, 200}}}}),
			// The right upper corner of the frame.
			want: []string{"Starts &amp; more", `<circle cx="704.0" cy="64.0"`, ">ours<"},
		},
		"bars stand on the axis": {
			drawing: Grouped("CPU", "seconds", []string{"Kueue"}, []Bars{{Name: "a", Values: []float64{5}}, {Name: "b", Values: []float64{2.5}}}),
			want:    []string{`y="188.0" width="255.0" height="124.0"`, ">Kueue<", ">2.50<"},
		},
		"nothing measured": {drawing: Lines("none", "x", "y", nil), want: []string{"none"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			for _, want := range tc.want {
				if !strings.Contains(string(tc.drawing), want) {
					t.Errorf("no %s in\n%s", want, tc.drawing)
				}
			}
			decoder := xml.NewDecoder(strings.NewReader(string(tc.drawing)))
			for {
				if _, err := decoder.Token(); errors.Is(err, io.EOF) {
					return
				} else if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

func TestNiceEnd(t *testing.T) {
	for highest, want := range map[float64]float64{0: 1, 0.7: 0.8, 1: 1, 22.5: 25, 930: 1000} {
		if got := niceEnd(highest); got < want*0.999 || got > want*1.001 {
			t.Errorf("niceEnd(%g) = %g, want %g", highest, got, want)
		}
	}
}
