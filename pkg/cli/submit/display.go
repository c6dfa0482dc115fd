// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

// display shows progress: on a terminal a line for each step, which changes in its place;
// elsewhere a line when a step is reached, and when what holds the next one up is known or
// changes.
type display struct {
	out   io.Writer
	paint show.Paint
	start time.Time
	// width is that of the terminal; 0 elsewhere.
	width int

	// drawn is how many lines stand on the terminal.
	drawn int
	// reason is what held the next step up when progress was shown last.
	reason string
	// times are when the steps that are done were done first.
	times []time.Duration
}

func newDisplay(out io.Writer, now time.Time) *display {
	d := &display{out: out, paint: show.Painter(out), start: now}
	if file, ok := show.Cursor(out).(*os.File); ok && show.Terminal(out) && os.Getenv("TERM") != "dumb" {
		if d.width, _, _ = term.GetSize(int(file.Fd())); d.width <= 0 {
			d.width = 80
		}
	}
	return d
}

// show brings the display to what there is now.
func (d *display) show(p progress, now time.Time) {
	before, reached := len(d.times), p.reached
	if p.failure != "" {
		reached = min(before, len(p.steps)-1)
	}
	since := now.Sub(d.start)
	d.times = d.times[:min(len(d.times), reached)]
	for len(d.times) < reached {
		d.times = append(d.times, since)
	}
	if d.width > 0 {
		d.redraw(p, reached)
	} else {
		d.append(p, before, reached, since)
	}
}

// redraw writes over the lines that stand there.
func (d *display) redraw(p progress, reached int) {
	var text strings.Builder
	if d.drawn > 0 {
		fmt.Fprintf(show.Cursor(d.out), "\x1b[%dA\x1b[J", d.drawn)
	}
	drawn := 0
	for i, s := range p.steps {
		mark, paint := " ", d.paint.Dim
		passed, detail := "", ""
		switch {
		case i < reached:
			mark, paint, passed, detail = "✓", d.paint.Green, seconds(d.times[i]), s.detail
		case i == reached && p.failure != "":
			mark, paint, detail = "✗", d.paint.Red, p.holds
		case i == reached:
			mark, paint, detail = "…", d.paint.Yellow, p.holds
		}
		lines := wrapped(fmt.Sprintf("%s %-14s  %7s  ", mark, s.name, passed), show.Line(detail), d.width)
		for _, line := range lines {
			text.WriteString(paint(line) + "\n")
		}
		drawn += len(lines)
	}
	d.drawn = drawn
	_, _ = io.WriteString(d.out, text.String())
}

// wrapped is a text behind a head, in lines that a terminal does not wrap itself: those
// could not be written over.
func wrapped(head, text string, width int) []string {
	indent := strings.Repeat(" ", utf8.RuneCountInString(head))
	line, words := head, 0
	var lines []string
	if width < len(indent)+20 && text != "" {
		lines, indent = append(lines, strings.TrimRight(head, " ")), "  "
		line = indent
	}
	for word := range strings.FieldsSeq(text) {
		if words > 0 && utf8.RuneCountInString(line+" "+word) >= width {
			lines, line, words = append(lines, line), indent, 0
		}
		if words > 0 {
			line += " "
		}
		line, words = line+word, words+1
	}
	return append(lines, strings.TrimRight(line, " "))
}

// append writes the steps that are reached now, that some are lost again, and what the next
// one waits for.
func (d *display) append(p progress, before, reached int, since time.Duration) {
	if reached < before {
		d.reason = p.reason
		fmt.Fprintf(d.out, "%7s  back to %s: %s\n", seconds(since), p.steps[reached-1].name, show.Line(p.holds))
		return
	}
	for _, s := range p.steps[before:reached] {
		fmt.Fprintln(d.out, strings.TrimRight(fmt.Sprintf("%7s  %-14s  %s", seconds(since), s.name, show.Line(s.detail)), " "))
	}
	if reached < len(p.steps) && p.waits && p.reason != d.reason {
		d.reason = p.reason
		fmt.Fprintf(d.out, "%7s  %-14s  %s\n", seconds(since), "", show.Line(p.holds))
	}
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
