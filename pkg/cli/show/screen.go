// SPDX-License-Identifier: Apache-2.0

// Package show prints for eyes: colours on terminals, aligned columns, units as kubectl has them.
package show

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Screen is a terminal that only shows what is written: messages of others can neither move the cursor nor hide a line.
type Screen struct{ file *os.File }

// OnScreen returns a Screen where out is a terminal, and out as it is elsewhere.
func OnScreen(out io.Writer) io.Writer {
	if file, ok := out.(*os.File); ok && Terminal(out) {
		return &Screen{file}
	}
	return out
}

// Write implements io.Writer.
func (s *Screen) Write(p []byte) (int, error) {
	if _, err := io.WriteString(s.file, Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Cursor returns what takes the codes that move the cursor of a terminal.
func Cursor(out io.Writer) io.Writer {
	if screen, ok := out.(*Screen); ok {
		return screen.file
	}
	return out
}

// obeyed is what a terminal obeys instead of showing it: what Paint writes, control characters, turns of direction.
var obeyed = regexp.MustCompile(`\x1b\[(?:0|1|2|3[1236])m|[\p{Cc}\x{061C}\x{200E}\x{200F}\x{202A}-\x{202E}\x{2066}-\x{2069}]`)

// visible replaces it, but those characters to keep and Paint's.
func visible(text, keep string) string {
	return obeyed.ReplaceAllStringFunc(text, func(found string) string {
		if strings.HasSuffix(found, "m") || strings.Contains(keep, found) {
			return found
		}
		return "\uFFFD"
	})
}

// Text is one of several lines as a Screen shows it, for what may be shown elsewhere later.
func Text(text string) string { return visible(text, "\n\t") }

// Line is a text on one line: a newline of other people's begins none.
func Line(text string) string { return visible(strings.Join(strings.Fields(text), " "), "") }

// Paint colours words, on a terminal only, and not with NO_COLOR (https://no-color.org). The zero value never does.
type Paint struct{ on bool }

// Painter returns the Paint for an output.
func Painter(out io.Writer) Paint {
	return Paint{on: Terminal(out) && wanted()}
}

// wanted reports whether the environment has nothing against colours.
func wanted() bool { return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" }

// Terminal reports whether somebody looks at out while it is written.
func Terminal(out io.Writer) bool {
	file, ok := Cursor(out).(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

func (p Paint) code(code, text string) string {
	if !p.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// Bold is for headings.
func (p Paint) Bold(text string) string { return p.code("1", text) }

// Dim is for what matters less.
func (p Paint) Dim(text string) string { return p.code("2", text) }

// Red is for what is wrong.
func (p Paint) Red(text string) string { return p.code("31", text) }

// Green is for what is in order.
func (p Paint) Green(text string) string { return p.code("32", text) }

// Yellow is for what waits, or wants a look.
func (p Paint) Yellow(text string) string { return p.code("33", text) }

// Cyan is for names that lead on.
func (p Paint) Cyan(text string) string { return p.code("36", text) }

// Progress is a bar on a terminal, for what takes longer than two seconds. Elsewhere it is a line every half minute.
type Progress struct {
	out   io.Writer
	what  string
	began time.Time
	shown time.Time
	bar   bool
}

// NewProgress returns one that says what is done.
func NewProgress(out io.Writer, what string) *Progress {
	return &Progress{out: Cursor(out), what: what, began: time.Now(), bar: Terminal(out)}
}

// At shows which share is done.
func (p *Progress) At(share float64) {
	const width = 40
	patience, often := 2*time.Second, 200*time.Millisecond
	if !p.bar {
		patience, often = 30*time.Second, 30*time.Second
	}
	if time.Since(p.began) < patience || time.Since(p.shown) < often {
		return
	}
	p.shown = time.Now()
	if !p.bar {
		fmt.Fprintf(p.out, "%s: %.0f %%\n", p.what, 100*share)
		return
	}
	full := int(min(1, max(0, share)) * width)
	fmt.Fprintf(p.out, "\r%s [%s%s] %3.0f %%", p.what, strings.Repeat("=", full), strings.Repeat(" ", width-full), 100*share)
}

// Done takes the bar away.
func (p *Progress) Done() {
	if p.bar && !p.shown.IsZero() {
		fmt.Fprint(p.out, "\r\x1b[K")
	}
}

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

// Row adds a row; cells are printed with fmt, on one line. An empty text stands for a cell without content.
func (t *Table) Row(cells ...any) {
	row := make([]string, 0, len(cells))
	for _, cell := range cells {
		row = append(row, visible(strings.ReplaceAll(fmt.Sprint(cell), "\n", " "), ""))
	}
	t.rows = append(t.rows, row)
}

// Hide takes columns away that are hidden.
func (t *Table) Hide(hidden bool, headings ...string) {
	for at := len(t.rows[0]) - 1; at >= 0 && hidden; at-- {
		if slices.Contains(headings, t.rows[0][at]) {
			for n, row := range t.rows {
				t.rows[n] = slices.Delete(row, at, at+1)
			}
		}
	}
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
