// SPDX-License-Identifier: Apache-2.0

// Package play is what the stories have in common: what is told, awaited and claimed, and clusters of their own.
package play

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var errInterrupted = errors.New("interrupted")

// Story is what is seen of a cluster while a story is played, and told of it.
type Story struct {
	Out   *os.File
	Paint show.Paint
	// Start is the zero of the elapsed times.
	Start time.Time
	// StepLimit is how long one step may take. A step takes seconds; a busy machine is given time.
	StepLimit time.Duration
	// NameWidth is how wide the names of those are of whom the story tells.
	NameWidth int
	// Next waits for the next thing that is to be seen, and fails where it spoils the story.
	Next func(context.Context) error
	// State is how far everything is, for a story that stopped.
	State func() string
}

// Claim is a sentence about the cluster, and how it is checked.
type Claim struct {
	Text string
	// Check says what is otherwise.
	Check func() error
}

// Play plays a story until it is over, which it has to be within limit.
func Play(ctx context.Context, limit time.Duration, story func(context.Context)) error {
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("within the story's %s", limit))
	defer cancel()
	err := attempt.To(func() { story(limited) })
	// Ctrl-C comes before the errors that it leads to.
	if err != nil && ctx.Err() != nil {
		return errInterrupted
	}
	return err
}

// Await looks at what comes until all claims hold, and says what does not when that takes too long.
func (s *Story) Await(ctx context.Context, claims ...Claim) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.StepLimit, fmt.Errorf("within %s", s.StepLimit))
	defer cancel()
	for {
		open := firstUntrue(claims)
		if open == "" {
			return
		}
		err := s.Next(ctx)
		if ctx.Err() != nil {
			attempt.Fail("this did not come true %w: %s\nWhat the API server shows:%s", context.Cause(ctx), open, s.State())
		}
		attempt.Succeed(err, "the story awaited: %s", open)
	}
}

// firstUntrue returns the first claim that does not hold and why, or "".
func firstUntrue(claims []Claim) string {
	for _, c := range claims {
		if err := c.Check(); err != nil {
			return fmt.Sprintf("%s (%v)", c.Text, err)
		}
	}
	return ""
}

// Verify prints which claims came true, and ends the story where one did not.
func (s *Story) Verify(claims ...Claim) {
	fmt.Fprintln(s.Out, "Checked on what was seen:")
	var untrue []string
	for _, c := range claims {
		mark, text := s.Paint.Green("true  "), c.Text
		if err := c.Check(); err != nil {
			mark, text = s.Paint.Red("UNTRUE"), fmt.Sprintf("%s: %v", c.Text, err)
			untrue = append(untrue, text)
		}
		fmt.Fprintf(s.Out, "  %s  %s\n", mark, text)
	}
	if len(untrue) > 0 {
		attempt.Fail("the story did not come true:\n  %s", strings.Join(untrue, "\n  "))
	}
}

// Plain is the colour of most that is told.
func Plain(text string) string { return text }

// Tell prints what was seen of somebody.
func (s *Story) Tell(at time.Time, who string, colour func(string) string, format string, args ...any) {
	elapsed := s.Paint.Dim(fmt.Sprintf("%6.1fs", at.Sub(s.Start).Seconds()))
	fmt.Fprintf(s.Out, "%s  %-*s  %s\n", elapsed, s.NameWidth, who, colour(fmt.Sprintf(format, args...)))
}

// Main plays until that ends or is interrupted.
func Main(play func(context.Context) error) {
	// What libraries log is not for who watches a play.
	ctrl.SetLogger(logr.Discard())
	attempt.Main(show.Painter(os.Stderr).Red("error: "), func(ctx context.Context) { attempt.Succeed(play(ctx)) })
}

// Own are the clusters that a story has for itself, apart from those of `make local-up` and the specs.
type Own struct {
	// Dir is where they are, and Logs where their logs are, seen from the repository's root.
	Dir, Logs string
	// Settings are what the story's numbers were made for, whatever the caller exported.
	Settings map[string]string
	Play     func(ctx context.Context, dir string) error
	Down     func(ctx context.Context, dir string) error
}

// Run makes sure that no other story of this working copy is at work there: each takes its clusters down.
func (o Own) Run(ctx context.Context) error {
	return attempt.To(func() {
		dir := filepath.Join(attempt.Must(world.Root()), o.Dir)
		lock := attempt.Must(attempt.Lock(dir))
		defer lock.Close()
		for name, value := range o.Settings {
			attempt.Succeed(os.Setenv(name, value))
		}
		err := o.Play(ctx, dir)
		switch {
		case ctx.Err() != nil:
			err = errInterrupted
		case err != nil:
			err = fmt.Errorf("%w\nThe logs are in %s: look at kueue-trainer.log and kueue.log first", err, filepath.Join(o.Dir, o.Logs))
		}
		fmt.Println()
		attempt.Succeed(errors.Join(err, o.Down(context.WithoutCancel(ctx), dir)))
	})
}
