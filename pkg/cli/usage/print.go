// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"time"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

// columns stand before the amounts in a table; those with a split are in a bill that is split by it.
var columns = []struct {
	split, name string
	value       func(Line) string
}{
	{byQueue, "CLUSTERQUEUE", func(l Line) string { return l.ClusterQueue }},
	{byQueue, "QUEUE", func(l Line) string { return path.Join(l.Namespace, l.LocalQueue) }},
	{byUser, "USER", func(l Line) string { return l.User }},
	{byFlavor, "FLAVOR", func(l Line) string { return l.Flavor }},
	{"", "RESOURCE", func(l Line) string { return l.Resource }},
	{"", "UNIT", func(l Line) string { return l.Unit }},
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
	} else if err := tableOf(b).Print(out, paint); err != nil {
		return err
	}
	for _, h := range b.Hints {
		fmt.Fprintln(out, paint.Yellow("hint: ")+h.String())
	}
	return nil
}

func tableOf(b Bill) *show.Table {
	var heading []string
	rows := make([][]any, len(b.Lines))
	for _, column := range columns {
		if column.split != "" && !isBy(b.By, column.split) {
			continue
		}
		heading = append(heading, column.name)
		for n, line := range b.Lines {
			rows[n] = append(rows[n], cmp.Or(column.value(line), show.None))
		}
	}
	table := show.NewTable(append(heading, amountNames...)...)
	for n, row := range rows {
		for _, amount := range b.Lines[n].amounts() {
			row = append(row, b.cell(amount))
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
	heading := []string{"FROM", "TO", "CLUSTERQUEUE", "NAMESPACE", "QUEUE", "USER", "FLAVOR", "RESOURCE", "UNIT"}
	rows := [][]string{append(heading, amountNames...)}
	for _, l := range b.Lines {
		row := slices.Concat([]string{b.From.UTC().Format(time.RFC3339), b.To.UTC().Format(time.RFC3339)}, l.labels(), []string{l.Unit})
		for _, amount := range l.amounts() {
			row = append(row, b.inFull(amount))
		}
		rows = append(rows, row)
	}
	return csv.NewWriter(out).WriteAll(rows)
}
