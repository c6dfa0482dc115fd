// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"slices"
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

// colours of the phases.
var colours = map[Phase]string{
	Preparing: "#9aa5b1", WaitingForQuota: "#f0b429", WaitingForChecks: "#de911d", Starting: "#62b0e8",
	WaitingForPods: "#2186eb", Running: "#3ebd93", Stopping: "#e66a6a",
}

// The elements of a picture, as far as it has any.
type (
	picture struct {
		XMLName  xml.Name `xml:"http://www.w3.org/2000/svg svg"`
		Width    int      `xml:"width,attr"`
		Height   int      `xml:"height,attr"`
		Font     string   `xml:"font-family,attr"`
		Size     int      `xml:"font-size,attr"`
		Title    string   `xml:"title"`
		Elements []any
	}
	rect struct {
		XMLName xml.Name `xml:"rect"`
		X       float64  `xml:"x,attr"`
		Y       float64  `xml:"y,attr"`
		Width   float64  `xml:"width,attr"`
		Height  float64  `xml:"height,attr"`
		Fill    string   `xml:"fill,attr"`
		Title   string   `xml:"title,omitempty"`
	}
	circle struct {
		XMLName xml.Name `xml:"circle"`
		X       float64  `xml:"cx,attr"`
		Y       float64  `xml:"cy,attr"`
		Radius  int      `xml:"r,attr"`
		Fill    string   `xml:"fill,attr"`
		Title   string   `xml:"title"`
	}
	text struct {
		XMLName xml.Name `xml:"text"`
		X       float64  `xml:"x,attr"`
		Y       float64  `xml:"y,attr"`
		Text    string   `xml:",chardata"`
	}
)

// writeSVG draws a lane for each actor and, above them, where the time went. Titles tell the
// rest where the pointer is.
func writeSVG(out io.Writer, t *Timeline, now time.Time) error {
	s := newScale(t, now)
	lanes := slices.DeleteFunc(slices.Clone(actors), func(a Actor) bool {
		return !slices.ContainsFunc(t.Steps, func(s Step) bool { return s.Actor == a })
	})
	p := picture{
		Width: labels + width + margin, Height: heading + bar + (len(lanes)+len(t.Spans)+1)*lane + margin,
		Font: "sans-serif", Size: 12, Title: fmt.Sprintf("TrainJob %s/%s", t.Namespace, t.Name),
	}
	p.Elements = append(p.Elements, text{X: 0, Y: heading - 12, Text: fmt.Sprintf("TrainJob %s/%s, %s in all", t.Namespace, t.Name, s.total)})
	for _, part := range parts(t.Steps, now) {
		p.Elements = append(p.Elements, rect{X: s.x(part.from), Y: heading, Width: s.width(part.from, part.to), Height: bar,
			Fill: colours[part.phase], Title: fmt.Sprintf("%s %s", part.phase, part.to.Sub(part.from).Round(time.Millisecond))})
	}
	for i, actor := range lanes {
		y := float64(heading + bar + i*lane + lane)
		p.Elements = append(p.Elements, text{X: 0, Y: y + 4, Text: string(actor)}, rect{X: labels, Y: y, Width: width, Height: 1, Fill: "#cbd2d9"})
		for _, step := range t.Steps {
			if step.Actor == actor {
				p.Elements = append(p.Elements, s.marks(&step, y)...)
			}
		}
	}
	for i, span := range t.Spans {
		y := float64(heading + bar + (len(lanes)+i+1)*lane)
		p.Elements = append(p.Elements, rect{X: labels, Y: y - 10, Width: 12, Height: 12, Fill: colours[span.Phase]},
			text{X: labels + 20, Y: y, Text: fmt.Sprintf("%s: %s, %.0f %%", span.Phase, length(span.Seconds), span.Share*100)})
	}
	encoder := xml.NewEncoder(out)
	encoder.Indent("", "  ")
	if err := encoder.Encode(p); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}

// scale brings times to places.
type scale struct {
	from  time.Time
	total time.Duration
}

func newScale(t *Timeline, now time.Time) scale {
	s := scale{}
	if len(t.Steps) == 0 {
		return s
	}
	s.from = t.Steps[0].Time
	last := now
	if t.Ended {
		last = s.from
	}
	for _, step := range t.Steps {
		last = later(last, step.Time)
		if step.Until != nil {
			last = later(last, *step.Until)
		}
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

// marks are a circle, and a line behind it where the step took a while.
func (s scale) marks(step *Step, y float64) []any {
	title := fmt.Sprintf("%s +%s\n%s: %s", step.Time.UTC().Format(time.RFC3339), step.Time.Sub(s.from).Round(time.Millisecond), step.where(), step.Step)
	mark := circle{X: s.x(step.Time), Y: y, Radius: 5, Fill: "#243b53", Title: title}
	if step.Until == nil {
		return []any{mark}
	}
	return []any{rect{X: mark.X, Y: y - 2, Width: s.width(step.Time, *step.Until), Height: 4, Fill: "#829ab1", Title: title}, mark}
}

// length is a number of seconds as kubectl prints ages, and exact below one.
func length(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	if d < 10*time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return show.Age(time.Unix(0, 0).Add(d), time.Unix(0, 0))
}
