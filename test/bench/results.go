// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"time"
)

// Results are the raw numbers of a report.
type Results struct {
	Machine Machine `json:"machine"`
	// Commits of this repository by the part that was measured there.
	Commits   map[string]string `json:"commits"`
	Sections  []*Section        `json:"sections,omitempty"`
	Forecasts []*Forecast       `json:"forecasts,omitempty"`

	// part is being measured.
	part string
}

// Section is a table of the report.
type Section struct {
	Part  string `json:"part"`
	Title string `json:"title"`
	Rows  []*Row `json:"rows"`
}

// Row is one measurement: the values of each column, a value of each round.
type Row struct {
	Name   string               `json:"name"`
	Values map[string][]float64 `json:"values"`
}

// begin forgets what a part measured before.
func (r *Results) begin(part, commit string) {
	r.part, r.Commits[part] = part, commit
	r.Sections = slices.DeleteFunc(r.Sections, func(s *Section) bool { return s.Part == part })
	if part == partForecast {
		r.Forecasts = nil
	}
}

// section is a table to which a site adds values of its column.
type section struct {
	*Section
	column string
}

func (s *site) section(title string, args ...any) *section {
	return &section{Section: s.results.section(fmt.Sprintf(title, args...)), column: s.title}
}

func (r *Results) section(title string) *Section {
	for _, s := range r.Sections {
		if s.Title == title {
			return s
		}
	}
	r.Sections = append(r.Sections, &Section{Part: r.part, Title: title})
	return r.Sections[len(r.Sections)-1]
}

// add writes a value down that was measured.
func (s *section) add(name string, value float64) {
	row := s.row(name)
	if row == nil {
		row = &Row{Name: name, Values: map[string][]float64{}}
		s.Rows = append(s.Rows, row)
	}
	row.Values[s.column] = append(row.Values[s.column], value)
}

// times adds the median and the 99th percentile of times.
func (s *section) times(name string, times []time.Duration) {
	if len(times) == 0 {
		return
	}
	s.add(name+", p50, ms", percentile(times, 50))
	s.add(name+", p99, ms", percentile(times, 99))
}

func (s *Section) row(name string) *Row {
	if i := slices.IndexFunc(s.Rows, func(r *Row) bool { return r.Name == name }); i >= 0 {
		return s.Rows[i]
	}
	return nil
}

// median returns the middle value of a cell, the lesser of two; false where it was not measured.
func (r *Results) median(c cell) (float64, bool) {
	for _, s := range r.Sections {
		if row := s.row(c.row); row != nil && len(row.Values[c.title]) > 0 {
			return middle(row.Values[c.title]), true
		}
	}
	return 0, false
}

func middle(values []float64) float64 {
	return slices.Sorted(slices.Values(values))[(len(values)-1)/2]
}

// percentile returns the smallest time that so many of a hundred do not exceed, in milliseconds.
func percentile(times []time.Duration, percent int) float64 {
	sorted := slices.Sorted(slices.Values(times))
	rank := (len(sorted)*percent + 99) / 100
	return float64(sorted[max(rank, 1)-1]) / float64(time.Millisecond)
}
