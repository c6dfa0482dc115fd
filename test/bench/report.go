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

// goal is a limit for what was measured: the value of a row, or the quotient of two.
type goal struct {
	what  string
	limit float64
	value func(*Results) (float64, bool)
}

func allGoals() []goal {
	of := func(name string) func(*Results) (float64, bool) {
		return func(r *Results) (float64, bool) { return r.median(name, ours) }
	}
	beside := func(phase string) func(*Results) (float64, bool) {
		return func(r *Results) (float64, bool) {
			manager, measured := r.median(cpuRow(phase, "kueue-trainer"), ours)
			jobset, too := r.median(cpuRow(phase, "jobset"), ours)
			return manager / jobset, measured && too
		}
	}
	return []goal{
		{"CPU of the manager, per TrainJob that is created, to JobSet's controller", 1, beside("create")},
		{"CPU of the manager, per TrainJob that starts, to JobSet's controller", 1, beside("start")},
		{"CPU of Kueue and manager for a whole life, to in-tree", 1, func(r *Results) (float64, bool) {
			here, measured := r.median(rowWhole, ours)
			there, too := r.median(rowWhole, inTree)
			return here / there, measured && too
		}},
		{"requests of the manager for a whole life", 10, of(rowRequests)},
		{"reconciles for a whole life", 12, of(rowLooks)},
		{"admitted to the Job of its first pod running, alone, p50, ms", 30, of("admitted to the Job of its first pod running, p50, ms")},
		{"memory of the large cluster, MiB", 384, of(rowMemory)},
	}
}

// goals lists what is aimed at; what was not measured is left out.
func (r *Results) goals() string {
	var out strings.Builder
	for _, g := range allGoals() {
		value, measured := g.value(r)
		if !measured {
			continue
		}
		answer := "**no**"
		if value <= g.limit {
			answer = "yes"
		}
		fmt.Fprintf(&out, "| %s | %g | %s | %s |\n", g.what, g.limit, number(value), answer)
	}
	if out.Len() == 0 {
		return ""
	}
	return "\n| goal | at most | measured | met |\n|---|---|---|---|\n" + out.String()
}

// report is all that was measured, in Markdown.
func (r *Results) report() string {
	var out strings.Builder
	fmt.Fprintf(&out, "%s; commit %s. All managers: 300 requests a second, bursts of 500.\n%s", r.Machine, r.commits(), r.goals())
	for _, s := range r.Sections {
		out.WriteString(s.table())
	}
	forecastTable(&out, r.Forecasts)
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
	var out strings.Builder
	fmt.Fprintf(&out, "\n| %s |", s.Title)
	for _, c := range measured {
		fmt.Fprintf(&out, " %s |", c.title)
	}
	if len(measured) > 1 {
		out.WriteString(" to in-tree |")
	}
	fmt.Fprintf(&out, "\n|%s\n", strings.Repeat("---|", 1+2*len(measured)-min(1, len(measured))-max(0, len(measured)-2)))
	for _, row := range s.Rows {
		fmt.Fprintf(&out, "| %s |", row.Name)
		for _, c := range measured {
			fmt.Fprintf(&out, " %s |", spread(row.Values[c.title]))
		}
		if len(measured) > 1 {
			fmt.Fprintf(&out, " %s |", row.ratio())
		}
		out.WriteString("\n")
	}
	return out.String()
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

// commits names the commit that was measured, or each with its parts.
func (r *Results) commits() string {
	parts := map[string][]string{}
	for _, part := range slices.Sorted(maps.Keys(r.Commits)) {
		parts[r.Commits[part]] = append(parts[r.Commits[part]], part)
	}
	var all []string
	for _, commit := range slices.Sorted(maps.Keys(parts)) {
		if len(parts) == 1 {
			return commit
		}
		all = append(all, fmt.Sprintf("%s (%s)", commit, strings.Join(parts[commit], ", ")))
	}
	return strings.Join(all, " and ")
}

// writeReport writes the raw numbers to performance/ below dir, and the tables into performance.md there.
func writeReport(dir string, results *Results) error {
	details := filepath.Join(dir, "performance")
	raw, err := json.MarshalIndent(results, "", "  ")
	return errors.Join(err, os.MkdirAll(details, 0o755),
		os.WriteFile(filepath.Join(details, "results.json"), append(raw, '\n'), 0o644),
		replaceGenerated(filepath.Join(dir, "performance.md"), results.report()))
}

// earlier returns what the report has, or nothing where all of it is measured now.
func (p *plan) earlier(root string) (*Results, error) {
	machine, err := thisMachine()
	empty := &Results{Machine: machine, Commits: map[string]string{}}
	if err != nil || len(p.parts) == 3 {
		return empty, err
	}
	raw, err := os.ReadFile(filepath.Join(root, p.out, "performance", "results.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return nil, err
	}
	results := &Results{}
	if err := json.Unmarshal(raw, results); err != nil {
		return nil, err
	}
	// Numbers of another machine cannot be compared.
	before := results.Machine
	before.Versions = machine.Versions
	if !reflect.DeepEqual(before, machine) {
		return nil, fmt.Errorf("the report in %s was measured on another machine: measure all of it, or choose another -out", p.out)
	}
	return results, nil
}

// replaceGenerated leaves what people wrote around the marks as it is. Where there is no file yet, it gets the
// generated part alone.
func replaceGenerated(path, generated string) error {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	before, rest, marked := strings.Cut(string(text), beginMark)
	_, after, ended := strings.Cut(rest, endMark)
	if len(text) > 0 && (!marked || !ended) {
		return fmt.Errorf("%s has no lines %q and %q for the tables to stand between", path, beginMark, endMark)
	}
	return os.WriteFile(path, []byte(before+beginMark+generated+endMark+after), 0o644)
}
