// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/follow"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

// calm is the time between two looks at the least: every look lists what jobs compete for.
const calm = time.Second

type follower struct {
	client      client.WithWatch
	out, errOut io.Writer
	job         client.ObjectKey
	uid         types.UID
}

// follow shows how far the TrainJob comes. It fails when its pods will not run, and when ctx ends before.
func (f *follower) follow(ctx context.Context) error {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	d := newDisplay(f.out, time.Now())
	runs := false
	err := follow.Each(watching, follow.Watch(watching, calm).Add(f.client, follow.Job(f.job)...), f.errOut, f.look, func(facts *explain.Facts) (over bool, err error) {
		p := progressOf(facts)
		d.show(p, time.Now())
		if p.failure != "" {
			return true, exit.With(exit.Findings, fmt.Errorf("TrainJob %s does not run: %s; see kubectl trainjob explain -n %s %s", f.job, p.failure, f.job.Namespace, f.job.Name))
		}
		runs = p.running()
		return runs, nil
	})
	if err == nil && !runs {
		return fmt.Errorf("stopped watching; TrainJob %s stays and goes on: see kubectl trainjob explain -n %s %s", f.job, f.job.Namespace, f.job.Name)
	}
	return err
}

// look reads what there is; nil where the TrainJob is gone, though another one has its name.
func (f *follower) look(ctx context.Context) (*explain.Facts, error) {
	job, err := cluster.TrainJob(ctx, f.client, f.job.Namespace, f.job.Name)
	if errors.Is(err, cluster.ErrNoTrainJob) || err == nil && job.UID != f.uid {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return explain.Read(ctx, f.client, job)
}

// step is one on the way to running; detail says more of one that is done.
type step struct{ name, detail string }

type progress struct {
	steps         []step
	reached       int    // how many steps are done
	holds, reason string // why the next one is not done, and in one word
	waits         bool   // set where that takes longer than a moment
	failure       string // why it will not run; empty as long as it may
}

func (p progress) running() bool { return p.reached == len(p.steps) }

// reached is how many steps of a job in a queue are done; a job that has failed stays where it was.
var reached = map[explain.Phase]int{
	explain.Unqueued: 1, explain.Held: 1, explain.Waiting: 2, explain.Stopping: 2, explain.Deactivated: 2,
	explain.Reserved: 3, explain.Starting: 4, explain.Elsewhere: 5, explain.Running: 5, explain.Succeeded: 5,
}

// waiting are the phases that last.
var waiting = []explain.Phase{explain.Waiting, explain.Reserved, explain.Stopping, explain.Held}

// progressOf tells how far a TrainJob has come; nil is one that is gone.
func progressOf(f *explain.Facts) progress {
	if f == nil {
		return progress{steps: []step{{name: "submitted"}, {name: "pods running"}}, reached: 1, failure: "it was deleted"}
	}
	s := explain.StateOf(f)
	p := progress{steps: []step{{"submitted", "trainjob " + f.Job.Namespace + "/" + f.Job.Name}}, holds: s.Message, reason: s.Reason,
		waits: s.Stuck || slices.Contains(waiting, s.Phase) && s.Reason != explain.Evaluating}
	if local, clusterQueue := f.Queues(); local != "" && s.Phase != explain.NotManaged {
		p.steps = append(p.steps, step{"queued", named("LocalQueue", local)}, step{"quota reserved", named("ClusterQueue", clusterQueue)},
			step{"admitted", named("flavor", strings.Join(f.Assigned(), ", "))})
	}
	last := step{"pods running", s.Message}
	if f.Job.ForMultiKueue() {
		last.name = "in a worker"
	}
	p.steps = append(p.steps, last)
	p.reached = min(reached[s.Phase], len(p.steps))
	switch {
	case s.Phase == explain.Failed || s.Phase == explain.Deactivated:
		p.failure = "it " + s.Message
	case (s.Phase == explain.NotManaged || s.Reason == explain.Unseen) && f.AllRun():
		p.reached = len(p.steps)
	case s.Phase == explain.NotManaged:
		p.reached = 1
	}
	return p
}

// named is "LocalQueue gpus"; empty where there is no name to be seen.
func named(kind, name string) string {
	if name == "" {
		return ""
	}
	return kind + " " + name
}

// display shows progress: on a terminal a line for each step, which changes in its place; elsewhere a line when a step is
// reached, and when what holds the next one up is known or changes.
type display struct {
	out   io.Writer
	paint show.Paint
	start time.Time
	width int // that of the terminal; 0 elsewhere

	drawn  int             // how many lines stand on the terminal
	reason string          // what held the next step up when progress was shown last
	times  []time.Duration // when the steps that are done were done first
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

// wrapped is a text behind a head, in lines that a terminal does not wrap itself: those could not be written over.
func wrapped(head, text string, width int) []string {
	indent := strings.Repeat(" ", utf8.RuneCountInString(head))
	line, words := head, 0
	var lines []string
	if width < len(indent)+20 && text != "" {
		lines, indent = append(lines, strings.TrimRight(head, " ")), "  "
		line = indent
	}
	room := max(width-utf8.RuneCountInString(indent)-1, 1)
	for word := range strings.FieldsSeq(text) {
		// What is too long for a line goes on several.
		for part := range slices.Chunk([]rune(word), room) {
			if words > 0 && utf8.RuneCountInString(line)+1+len(part) >= width {
				lines, line, words = append(lines, line), indent, 0
			}
			if words > 0 {
				line += " "
			}
			line, words = line+string(part), words+1
		}
	}
	return append(lines, strings.TrimRight(line, " "))
}

// append writes the steps that are reached now, that some are lost again, and what the next one waits for.
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
