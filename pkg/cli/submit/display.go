// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/term"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

// display shows progress: on a terminal a line for each step, which changes in its place;
// elsewhere a line when a step is reached.
type display struct {
	out   io.Writer
	paint show.Paint
	start time.Time
	// width is that of the terminal; 0 elsewhere.
	width int

	// drawn is how many lines stand on the terminal.
	drawn int
	// reached is how many steps were done when progress was shown last.
	reached int
	// times are when the steps were done first.
	times []time.Duration
}

func newDisplay(out io.Writer, now time.Time) *display {
	d := &display{out: out, paint: show.Painter(out), start: now}
	if file, ok := out.(*os.File); ok && show.Terminal(out) && os.Getenv("TERM") != "dumb" {
		if d.width, _, _ = term.GetSize(int(file.Fd())); d.width <= 0 {
			d.width = 80
		}
	}
	return d
}

// show brings the display to what there is now.
func (d *display) show(p progress, now time.Time) {
	reached := 0
	for reached < len(p.steps) && p.steps[reached].done {
		reached++
	}
	since := now.Sub(d.start)
	d.times = d.times[:min(len(d.times), reached)]
	for len(d.times) < reached {
		d.times = append(d.times, since)
	}
	if d.width > 0 {
		d.redraw(p, reached)
	} else {
		d.append(p, reached, since)
	}
	d.reached = reached
}

// redraw writes over the lines that stand there.
func (d *display) redraw(p progress, reached int) {
	var text strings.Builder
	if d.drawn > 0 {
		fmt.Fprintf(&text, "\x1b[%dA\x1b[J", d.drawn)
	}
	for i, s := range p.steps {
		mark, paint := " ", d.paint.Dim
		passed := ""
		switch {
		case i < reached:
			mark, paint, passed = "✓", d.paint.Green, seconds(d.times[i])
		case i == reached && p.failure != "":
			mark, paint = "✗", d.paint.Red
		case i == reached:
			mark, paint = "…", d.paint.Yellow
		}
		detail := s.detail
		if i > reached {
			detail = ""
		}
		// A line that wraps could not be written over.
		line := []rune(fmt.Sprintf("%s %-14s  %7s  %s", mark, s.name, passed, flat(detail)))
		if len(line) >= d.width {
			line = append(line[:max(d.width-2, 0)], '…')
		}
		text.WriteString(paint(strings.TrimRight(string(line), " ")) + "\n")
	}
	d.drawn = len(p.steps)
	_, _ = io.WriteString(d.out, text.String())
}

// append writes the steps that are reached now, and that some are lost again.
func (d *display) append(p progress, reached int, since time.Duration) {
	if reached < d.reached {
		fmt.Fprintf(d.out, "%7s  back to %s: %s\n", seconds(since), p.steps[reached-1].name, flat(p.steps[reached].detail))
		return
	}
	for _, s := range p.steps[d.reached:reached] {
		fmt.Fprintln(d.out, strings.TrimRight(fmt.Sprintf("%7s  %-14s  %s", seconds(since), s.name, flat(s.detail)), " "))
	}
}

// flat keeps a message to its line.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
