// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
)

// The generated part of performance.md stands between these.
const (
	beginMark = "<!-- make bench writes from here -->\n"
	endMark   = "<!-- to here -->\n"
)

// Rows that goals are about.
const (
	rowRequests = "requests of the manager alone"
	rowLooks    = "its reconciles"
	rowWhole    = "create, start and end: Kueue and manager"
	rowMemory   = "memory without program pages, MiB, all others wait"
)

func cpuRow(phase, component string) string { return phase + ": " + component }

type cell struct {
	row string
	column
}

// goals are limits of what was measured: of the value of a row, or of the quotient of two.
var goals = []struct {
	what   string
	limit  float64
	of, to cell
}{
	{"CPU of the manager, per TrainJob that is created, to JobSet's controller", 1, cell{cpuRow("create", "kueue-trainer"), ours}, cell{cpuRow("create", "jobset"), ours}},
	{"CPU of the manager, per TrainJob that starts, to JobSet's controller", 1, cell{cpuRow("start", "kueue-trainer"), ours}, cell{cpuRow("start", "jobset"), ours}},
	{"CPU of Kueue and manager for a whole life, to in-tree", 1, cell{rowWhole, ours}, cell{rowWhole, inTree}},
	{"requests of the manager for a whole life", 10, cell{rowRequests, ours}, cell{}},
	{"reconciles for a whole life", 12, cell{rowLooks, ours}, cell{}},
	{"admitted to the Job of its first pod running, alone, p50, ms", 30, cell{"admitted to the Job of its first pod running, p50, ms", ours}, cell{}},
	{"memory of the large cluster, MiB", 384, cell{rowMemory, ours}, cell{}},
}

// goals lists what is aimed at; what was not measured is left out.
func (r *Results) goals() string {
	rows := [][]string{{"goal", "at most", "measured", "met"}}
	for _, g := range goals {
		value, measured := r.median(g.of)
		if g.to != (cell{}) {
			to, too := r.median(g.to)
			value, measured = value/to, measured && too
		}
		met := "**no**"
		if value <= g.limit {
			met = "yes"
		}
		if measured {
			rows = append(rows, []string{g.what, fmt.Sprintf("%g", g.limit), number(value), met})
		}
	}
	if len(rows) == 1 {
		return ""
	}
	return "\n" + pages.Table(rows...)
}

func (r *Results) report() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s; commit %s. All managers: 300 requests a second, bursts of 500.\n%s", r.Machine, r.commits(), r.goals())
	for _, s := range r.Sections {
		out.WriteString(s.table())
	}
	return out.String()
}

// table has a column for each integration that was measured and, where there are two, their quotient.
func (s *Section) table() string {
	var measured []column
	for _, c := range columns {
		if slices.ContainsFunc(s.Rows, func(row *Row) bool { return len(row.Values[c.title]) > 0 }) {
			measured = append(measured, c)
		}
	}
	rows := [][]string{{s.Title}}
	for _, c := range measured {
		rows[0] = append(rows[0], c.title)
	}
	for _, row := range s.Rows {
		cells := []string{row.Name}
		for _, c := range measured {
			cells = append(cells, spread(row.Values[c.title]))
		}
		rows = append(rows, cells)
	}
	if len(measured) > 1 {
		rows[0] = append(rows[0], "to in-tree")
		for n, row := range s.Rows {
			rows[n+1] = append(rows[n+1], row.ratio())
		}
	}
	return "\n" + pages.Table(rows...)
}

// ratio is ours divided by in-tree, where both did something.
func (r *Row) ratio() string {
	here, there := r.Values[ours.title], r.Values[inTree.title]
	if len(here) == 0 || len(there) == 0 || middle(there) == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", middle(here)/middle(there))
}

// spread is the median, and the least and the greatest value where they differ from it.
func spread(values []float64) string {
	if len(values) == 0 {
		return "-"
	}
	least, median, greatest := number(slices.Min(values)), number(middle(values)), number(slices.Max(values))
	if least == greatest {
		return median
	}
	return fmt.Sprintf("%s (%s to %s)", median, least, greatest)
}

func number(value float64) string {
	switch {
	case value >= 100:
		return fmt.Sprintf("%.0f", value)
	case value >= 10:
		return fmt.Sprintf("%.1f", value)
	}
	return fmt.Sprintf("%.2f", value)
}

func (r *Results) commits() string {
	parts := map[string][]string{}
	for _, part := range slices.Sorted(maps.Keys(r.Commits)) {
		parts[r.Commits[part]] = append(parts[r.Commits[part]], part)
	}
	var all []string
	for _, commit := range slices.Sorted(maps.Keys(parts)) {
		all = append(all, fmt.Sprintf("%s (%s)", commit, strings.Join(parts[commit], ", ")))
	}
	return strings.Join(all, " and ")
}

// writeReport writes the raw numbers to performance/ below dir, and the tables into performance.md there, where people
// write around them. Where there is no such page yet, it has the tables alone.
func writeReport(dir string, results *Results) {
	details, page := filepath.Join(dir, "performance"), filepath.Join(dir, "performance.md")
	raw := attempt.Must(json.MarshalIndent(results, "", "  "))
	attempt.Succeed(os.MkdirAll(details, 0o755))
	attempt.Succeed(os.WriteFile(filepath.Join(details, "results.json"), append(raw, '\n'), 0o644))
	if _, missing := os.Stat(page); errors.Is(missing, fs.ErrNotExist) {
		attempt.Succeed(os.WriteFile(page, []byte(beginMark+endMark), 0o644))
	}
	attempt.Succeed(pages.Fill(page, beginMark, endMark, results.report()))
}

// earlier returns what the report has, or nothing where all of it is measured now.
func (p *plan) earlier(root string) *Results {
	results := &Results{Machine: thisMachine(), Commits: map[string]string{}}
	raw, err := os.ReadFile(filepath.Join(root, p.out, "performance", "results.json"))
	if len(p.parts) == 3 || errors.Is(err, fs.ErrNotExist) {
		return results
	}
	attempt.Succeed(err)
	machine := results.Machine
	attempt.Succeed(json.Unmarshal(raw, results))
	// Numbers of another machine cannot be compared.
	machine.Versions = results.Machine.Versions
	if !reflect.DeepEqual(results.Machine, machine) {
		attempt.Fail("the report in %s was measured on another machine: measure all of it, or choose another -out", p.out)
	}
	return results
}

// Results are the raw numbers of a report.
type Results struct {
	Machine Machine `json:"machine"`
	// Commits of this repository by the part that was measured there.
	Commits  map[string]string `json:"commits"`
	Sections []*Section        `json:"sections,omitempty"`

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

func (r *Results) begin(part, commit string) {
	r.part, r.Commits[part] = part, commit
	r.Sections = slices.DeleteFunc(r.Sections, func(s *Section) bool { return s.Part == part })
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

func (s *section) add(name string, value float64) {
	row := s.row(name)
	if row == nil {
		row = &Row{Name: name, Values: map[string][]float64{}}
		s.Rows = append(s.Rows, row)
	}
	row.Values[s.column] = append(row.Values[s.column], value)
}

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
