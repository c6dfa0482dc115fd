// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/demo/internal/play"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// stepLimit is how long one step of the story may take. A step takes seconds; a busy
// machine is given time.
const stepLimit = 90 * time.Second

// stage is where the story is played: it holds what the watches have shown so far. Only
// the goroutine that awaits the story's steps reads and writes it.
type stage struct {
	cluster *world.Cluster
	client  client.Client
	out     *os.File
	paint   show.Paint
	// start is the zero of the elapsed times.
	start     time.Time
	sightings chan sighting

	// jobs in the order of their first sight.
	jobs  []*record
	nodes map[string]corev1.Node
	queue *kueue.ClusterQueue
	// made is what the story made, besides the jobs.
	made []client.Object
}

func newStage(cluster *world.Cluster, out *os.File) *stage {
	return &stage{cluster: cluster, client: cluster.Client, out: out, paint: show.Painter(out), sightings: make(chan sighting, 1000), nodes: map[string]corev1.Node{}}
}

// job returns the record of a TrainJob, a new one at its first sight.
func (s *stage) job(team, name string) *record {
	for _, r := range s.jobs {
		if r.team == team && r.name == name {
			return r
		}
	}
	r := &record{team: team, name: name}
	s.jobs = append(s.jobs, r)
	return r
}

// await follows the watches until all of what is true, and says what is not when that
// takes too long.
func (s *stage) await(ctx context.Context, whats ...play.Claim) {
	ctx, cancel := context.WithTimeoutCause(ctx, stepLimit, fmt.Errorf("within %s", stepLimit))
	defer cancel()
	for {
		open := play.FirstUntrue(whats)
		if open == "" {
			return
		}
		select {
		case seen := <-s.sightings:
			s.observe(seen)
			s.spoiled(open)
		case <-ctx.Done():
			attempt.Succeed(s.notCome(ctx, open))
		}
	}
}

// notCome names the step that did not come true, and how far every job is.
func (s *stage) notCome(ctx context.Context, open string) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.DeadlineExceeded) {
		cause = fmt.Errorf("within the story's %s", storyLimit)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "this did not come true %v: %s\nWhat the API server shows:", cause, open)
	for _, r := range s.jobs {
		fmt.Fprintf(&b, "\n  %-15s %s", r, r.state())
	}
	return errors.New(b.String())
}

// spoiled tells early of an end that the story has no room for.
func (s *stage) spoiled(awaited string) {
	for _, r := range s.jobs {
		if r.failure != "" {
			attempt.Fail("TrainJob %s failed: %s; the story awaited: %s", r, r.failure, awaited)
		}
	}
}

// Widths of what is told: job names of this story fit, and so does a terminal.
const (
	jobWidth  = 14
	textWidth = 100 - (len("   0.0s") + 2 + jobWidth + 2)
)

func plain(text string) string { return text }

// tell prints one event.
func (s *stage) tell(at time.Time, r *record, colour func(string) string, format string, args ...any) {
	elapsed := fmt.Sprintf("%6.1fs", at.Sub(s.start).Seconds())
	for i, line := range wrap(fmt.Sprintf(format, args...), textWidth) {
		if i > 0 {
			fmt.Fprintf(s.out, "%*s", 100-textWidth+2, "")
		} else {
			fmt.Fprintf(s.out, "%s  %-*s  ", s.paint.Dim(elapsed), jobWidth, r)
		}
		fmt.Fprintln(s.out, colour(line))
	}
}

// wrap breaks a text between words; further lines are indented by two.
func wrap(text string, width int) []string {
	var lines []string
	for len(text) > width {
		at := strings.LastIndex(text[:width+1], " ")
		if at <= 0 {
			break
		}
		lines = append(lines, text[:at])
		text = text[at+1:]
		if len(lines) == 1 {
			width -= 2
		}
	}
	return append(lines, text)
}
