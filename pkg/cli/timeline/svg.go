// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

// The picture's measures, in pixels.
const (
	labels  = 130
	width   = 1000
	lane    = 32
	heading = 30
	bar     = 24
	margin  = 20
)

var colours = map[Phase]string{
	Preparing: "#9aa5b1", WaitingForQuota: "#f0b429", WaitingForChecks: "#de911d", Starting: "#62b0e8",
	WaitingForPods: "#2186eb", Started: "#7fcfae", Running: "#3ebd93", Stopping: "#e66a6a", Held: "#b8c4ce", Deactivated: "#627d98",
}

type picture struct{ strings.Builder }

// rect and circle show their title where the pointer is; text is shown as it is.
func (p *picture) rect(x, y, width, height float64, fill, title string) {
	fmt.Fprintf(p, "  <rect x=\"%g\" y=\"%g\" width=\"%g\" height=\"%g\" fill=\"%s\"><title>%s</title></rect>\n", x, y, width, height, fill, escaped(title))
}

func (p *picture) circle(x, y float64, title string) {
	fmt.Fprintf(p, "  <circle cx=\"%g\" cy=\"%g\" r=\"5\" fill=\"#243b53\"><title>%s</title></circle>\n", x, y, escaped(title))
}

func (p *picture) text(x, y float64, text string) {
	fmt.Fprintf(p, "  <text x=\"%g\" y=\"%g\">%s</text>\n", x, y, escaped(text))
}

// escaped is a text as XML may have it: messages are other people's.
func escaped(text string) string {
	var out strings.Builder
	_ = xml.EscapeText(&out, []byte(text)) // A Builder takes all.
	return out.String()
}

// writeSVG draws a lane for each actor and, above them, where the time went. Titles tell the rest where the pointer is.
func writeSVG(out io.Writer, t *Timeline, now time.Time) error {
	s, p := newScale(t, now), &picture{}
	lanes := slices.DeleteFunc(slices.Clone(actors), func(a Actor) bool {
		return !slices.ContainsFunc(t.Steps, func(s Step) bool { return s.Actor == a })
	})
	name := fmt.Sprintf("TrainJob %s/%s", t.Namespace, t.Name)
	fmt.Fprintf(p, "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" font-family=\"sans-serif\" font-size=\"12\">\n  <title>%s</title>\n",
		labels+width+margin, heading+bar+(len(lanes)+len(t.Spans)+1)*lane+margin, name)
	p.text(0, heading-12, fmt.Sprintf("%s, %s in all", name, s.total))
	for _, part := range parts(t.Steps, now) {
		p.rect(s.x(part.from), heading, s.width(part.from, part.to), bar, colours[part.phase],
			fmt.Sprintf("%s %s", part.phase, part.to.Sub(part.from).Round(time.Millisecond)))
	}
	for i, actor := range lanes {
		y := float64(heading + bar + i*lane + lane)
		p.text(0, y+4, string(actor))
		p.rect(labels, y, width, 1, "#cbd2d9", "")
		for _, step := range t.Steps {
			if step.Actor == actor {
				p.marks(s, &step, y)
			}
		}
	}
	for i, span := range t.Spans {
		y := float64(heading + bar + (len(lanes)+i+1)*lane)
		p.rect(labels, y-10, 12, 12, colours[span.Phase], "")
		p.text(labels+20, y, fmt.Sprintf("%s: %s, %.0f %%", span.Phase, length(span.Seconds), span.Share*100))
	}
	_, err := fmt.Fprintf(out, "%s</svg>\n", p.String())
	return err
}

// marks are a circle, and a line behind it where the step took a while.
func (p *picture) marks(s scale, step *Step, y float64) {
	title := fmt.Sprintf("%s +%s\n%s: %s", step.Time.UTC().Format(time.RFC3339), step.Time.Sub(s.from).Round(time.Millisecond), step.where(), step.Step)
	if step.Until != nil {
		p.rect(s.x(step.Time), y-2, s.width(step.Time, *step.Until), 4, "#829ab1", title)
	}
	p.circle(s.x(step.Time), y, title)
}

type scale struct {
	from  time.Time
	total time.Duration
}

func newScale(t *Timeline, now time.Time) scale {
	s := scale{from: t.Steps[0].Time} // There is one at least: the job was created.
	last := now
	if t.Ended {
		last = s.from
	}
	for _, step := range t.Steps {
		last = later(last, *cmp.Or(step.Until, &step.Time))
	}
	s.total = last.Sub(s.from).Round(time.Millisecond)
	return s
}

func (s scale) x(at time.Time) float64 {
	if s.total == 0 {
		return labels
	}
	return tenths(labels + width*float64(at.Sub(s.from))/float64(s.total))
}

func (s scale) width(from, to time.Time) float64 { return tenths(s.x(to) - s.x(from)) }

// tenths rounds to what is more than enough of a pixel, and the same everywhere.
func tenths(x float64) float64 { return math.Round(x*10) / 10 }

// length is a number of seconds as kubectl prints ages, and exact below one.
func length(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return show.Age(time.Unix(0, 0).Add(d), time.Unix(0, 0))
}
