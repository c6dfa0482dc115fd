// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

// amounts are the columns of a bill, the same in tables and CSV.
var amounts = []struct {
	name  string
	value func(Line) float64
}{
	{"HELD", func(l Line) float64 { return l.Held }},
	{"WAITING", func(l Line) float64 { return l.Waiting }},
	{"RUNNING", func(l Line) float64 { return l.Running }},
	{"STOPPING", func(l Line) float64 { return l.Stopping }},
	{"USEFUL", func(l Line) float64 { return l.Useful }},
	{"LOST", func(l Line) float64 { return l.Lost }},
	{"FAILED", func(l Line) float64 { return l.Failed }},
	{"DELETED", func(l Line) float64 { return l.Deleted }},
}

// whose returns the columns that a bill is split by, and their values.
func whose(by string) ([]string, func(Line) []string) {
	columns := map[string][]string{byQueue: {"CLUSTERQUEUE", "QUEUE"}, byUser: {"USER"}, byFlavor: {"FLAVOR"}}
	values := map[string]func(Line) []string{
		byQueue: func(l Line) []string {
			queue := ""
			if l.LocalQueue != "" {
				queue = l.Namespace + "/" + l.LocalQueue
			}
			return []string{cmp.Or(l.ClusterQueue, show.None), cmp.Or(queue, show.None)}
		},
		byUser:   func(l Line) []string { return []string{cmp.Or(l.User, show.None)} },
		byFlavor: func(l Line) []string { return []string{cmp.Or(l.Flavor, show.None)} },
	}
	chosen := slices.DeleteFunc(slices.Clone(splits), func(split string) bool { return !isBy(by, split) })
	var names []string
	for _, split := range chosen {
		names = append(names, columns[split]...)
	}
	return names, func(l Line) []string {
		var cells []string
		for _, split := range chosen {
			cells = append(cells, values[split](l)...)
		}
		return cells
	}
}

// printTable prints a bill for eyes.
func printTable(out io.Writer, paint show.Paint, b Bill) error {
	if len(b.Lines) == 0 {
		nothing, since := "Nothing was used", b.From.UTC().Format(time.RFC3339)
		switch b.Source {
		case fromWorkloads:
			nothing = "No Workload tells that something was used"
		case fromPrometheus:
			since += " until " + b.To.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(out, "%s since %s.\n", nothing, since)
	} else if err := tableOf(b).Print(out, paint, ""); err != nil {
		return err
	}
	for _, h := range b.Hints {
		fmt.Fprintln(out, paint.Yellow("hint: ")+h.String())
	}
	return nil
}

func tableOf(b Bill) *show.Table {
	names, values := whose(b.By)
	heading := slices.Concat(names, []string{"RESOURCE", "UNIT"})
	for _, a := range amounts {
		heading = append(heading, a.name)
	}
	table := show.NewTable(heading...)
	for _, line := range b.Lines {
		var row []any
		for _, cell := range append(values(line), line.Resource, line.Unit) {
			row = append(row, cell)
		}
		for _, a := range amounts {
			row = append(row, b.cell(a.value(line)))
		}
		table.Row(row...)
	}
	return table
}

// least is the least amount that two digits tell.
const least = 0.01

// cell is an amount for eyes: what was used is not 0.
func (b Bill) cell(hours float64) string {
	switch {
	case hours == 0 && b.Source == fromWorkloads:
		return "?"
	case hours > 0 && hours < least/2:
		return fmt.Sprintf("<%.2f", least)
	}
	return strconv.FormatFloat(hours, 'f', 2, 64)
}

// inFull is an amount for spreadsheets; empty where it is not known.
func (b Bill) inFull(hours float64) string {
	if hours == 0 && b.Source == fromWorkloads {
		return ""
	}
	return strconv.FormatFloat(hours, 'f', -1, 64)
}

// printCSV prints a bill for spreadsheets, amounts in full.
func printCSV(out io.Writer, b Bill) error {
	w := csv.NewWriter(out)
	heading := []string{"FROM", "TO", "CLUSTERQUEUE", "NAMESPACE", "QUEUE", "USER", "FLAVOR", "RESOURCE", "UNIT"}
	for _, a := range amounts {
		heading = append(heading, a.name)
	}
	if err := w.Write(heading); err != nil {
		return err
	}
	for _, l := range b.Lines {
		row := []string{
			b.From.UTC().Format(time.RFC3339), b.To.UTC().Format(time.RFC3339),
			l.ClusterQueue, l.Namespace, l.LocalQueue, l.User, l.Flavor, l.Resource, l.Unit,
		}
		for _, a := range amounts {
			row = append(row, b.inFull(a.value(l)))
		}
		if err := w.Write(row); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}
