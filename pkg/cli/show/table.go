// SPDX-License-Identifier: Apache-2.0

package show

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/duration"
)

// gap is what kubectl leaves between columns.
const gap = 3

// None is a cell of what there is not, as kubectl has it.
const None = "<none>"

// Table is rows of cells under a heading, aligned as kubectl does it. Cells may be painted.
type Table struct {
	rows [][]string
}

// NewTable returns a table with a heading, in capitals by convention.
func NewTable(heading ...string) *Table { return &Table{rows: [][]string{heading}} }

// Row adds a row; cells are printed with fmt, on one line. An empty text stands for a cell without
// content.
func (t *Table) Row(cells ...any) {
	row := make([]string, 0, len(cells))
	for _, cell := range cells {
		row = append(row, visible(strings.ReplaceAll(fmt.Sprint(cell), "\n", " "), ""))
	}
	t.rows = append(t.rows, row)
}

// Empty reports whether there is nothing but the heading.
func (t *Table) Empty() bool { return len(t.rows) == 1 }

// Print writes the table.
func (t *Table) Print(out io.Writer, paint Paint) error {
	widths := t.widths()
	for i, row := range t.rows {
		var line strings.Builder
		for column, cell := range row {
			if i == 0 {
				cell = paint.Bold(cell)
			}
			if column < len(row)-1 {
				cell += strings.Repeat(" ", widths[column]-width(cell)+gap)
			}
			line.WriteString(cell)
		}
		if _, err := fmt.Fprintln(out, strings.TrimRight(line.String(), " ")); err != nil {
			return err
		}
	}
	return nil
}

func (t *Table) widths() []int {
	var widths []int
	for _, row := range t.rows {
		for column, cell := range row {
			if column == len(widths) {
				widths = append(widths, 0)
			}
			widths[column] = max(widths[column], width(cell))
		}
	}
	return widths
}

var codes = regexp.MustCompile("\x1b\\[[0-9;]*m")

// width is what a terminal shows of a text.
func width(text string) int { return utf8.RuneCountInString(codes.ReplaceAllString(text, "")) }

// Age is the time since then, as kubectl prints it; "<unknown>" without a time.
func Age(now, then time.Time) string {
	if then.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(then))
}

// Count is a number of things: "1 GPU", "8 GPUs".
func Count[N int | int32 | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Few names the first of several things, and says how many more there are.
func Few(names []string, most int) string {
	text := strings.Join(names[:min(most, len(names))], ", ")
	if more := len(names) - most; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
