// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/follow"
)

// calm is the time between two looks at the pods at the least.
const calm = 200 * time.Millisecond

// pauses are those between two times that the log of one container is opened.
var pauses = wait.Backoff{Duration: time.Second, Factor: 2, Steps: 5, Cap: 30 * time.Second}

type sight struct {
	targets []target
	// nothing is why there is no log to print, where there are no targets.
	nothing error
	// over is set when nothing more will come.
	over bool
}

// followed is a container whose log is followed through its runs.
type followed struct {
	target *target
	// first is set where --tail and --since count: they are for what was there at the start.
	first bool
	// last is the time of the last line, at how many lines of that time were printed: CRI-O gives one to all that it
	// got at once.
	last time.Time
	at   int
	// read is set when it was read to an end once, and failed is why it was not.
	read   bool
	failed error

	// restarts are those of the run that was seen last.
	restarts int32
	// runs has something to read when there is another run, and is closed when nothing more will be written: ended.
	runs  chan struct{}
	ended bool
}

// follow prints the logs of all containers, also of pods that come later and of containers that
// are started again, until nothing more comes. look is asked again after each change.
func (r *reader) follow(ctx context.Context, changes *follow.Watching, look func(context.Context) (sight, error)) error {
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	logs, first := map[string]*followed{}, true
	return follow.Each(ctx, changes, r.errOut, look, func(s sight) (bool, error) {
		for _, f := range update(logs, s, first) {
			over := f.ended
			group.Go(func() { r.followOne(ctx, f, over) })
		}
		if first && s.nothing != nil && !s.over {
			fmt.Fprintln(r.errOut, "note:", s.nothing)
		}
		first = false
		if !s.over {
			return false, nil
		}
		group.Wait()
		if len(logs) == 0 {
			return true, cmp.Or(s.nothing, errNoneStarted)
		}
		return true, unread(logs)
	})
}

// unread returns why no log was read to its end; nil where one was.
func unread(logs map[string]*followed) error {
	var why error
	for _, log := range slices.Sorted(maps.Keys(logs)) {
		if logs[log].read {
			return nil
		}
		why = cmp.Or(why, logs[log].failed)
	}
	return why
}

var errNoneStarted = errors.New("no container has started")

// update brings what is followed in line with what there is, and returns what is new.
func update(logs map[string]*followed, s sight, first bool) []*followed {
	var begun []*followed
	there := map[string]bool{}
	for i := range s.targets {
		t := &s.targets[i]
		f := logs[t.log()]
		switch {
		case f == nil && t.started:
			f = &followed{target: t, restarts: t.restarts, first: first, runs: make(chan struct{}, 1)}
			logs[t.log()] = f
			begun = append(begun, f)
		case f != nil && !f.ended && f.restarts != t.restarts:
			f.restarts = t.restarts
			select {
			case f.runs <- struct{}{}:
			default:
			}
		}
		there[t.log()] = !t.ended
	}
	for log, f := range logs {
		if (s.over || !there[log]) && !f.ended {
			f.ended = true
			close(f.runs)
		}
	}
	return begun
}

// followOne prints the log of a container. A stream can end because the container has, or
// because the connection has: the log is opened again, where it was left, until it was read to
// its end after the container's, which over says of one that has ended already.
func (r *reader) followOne(ctx context.Context, f *followed, over bool) {
	backoff := pauses
	for {
		read := f.last
		r.note(f, r.read(ctx, f.target, f.options(r.options), f.printer(r)))
		if over || ctx.Err() != nil {
			return
		}
		if f.last.After(read) {
			backoff = pauses
		}
		select {
		case <-ctx.Done():
			return
		case _, again := <-f.runs:
			if over = !again; again {
				f.first, backoff = false, pauses
			}
		case <-time.After(backoff.Step()):
		}
	}
}

// options are those of the next stream. Times tell what was printed already.
func (f *followed) options(given corev1.PodLogOptions) corev1.PodLogOptions {
	given.Follow, given.Timestamps = true, true
	if !f.first || !f.last.IsZero() {
		given.TailLines, given.SinceSeconds = nil, nil
	}
	if !f.last.IsZero() {
		given.SinceTime = &metav1.Time{Time: f.last}
	}
	return given
}

// printer prints lines that were not printed before. Their times are left out unless they were
// asked for. A line that was cut off comes again as a whole.
func (f *followed) printer(r *reader) func([]byte) error {
	from, printed := f.last, f.at
	return func(line []byte) error {
		at, text := timed(line)
		switch {
		case at.IsZero():
		case at.Before(from):
			return nil
		case at.Equal(from) && printed > 0:
			printed--
			return nil
		}
		f.noteLine(at, line)
		if r.options.Timestamps {
			text = line
		}
		return r.print(text, f.target.prefix)
	}
}

// noteLine takes note of a line that is printed as a whole.
func (f *followed) noteLine(at time.Time, line []byte) {
	switch {
	case line[len(line)-1] != '\n' || at.IsZero():
	case at.Equal(f.last):
		f.at++
	default:
		f.last, f.at = at, 1
	}
}

// note tells why a stream broke, once. That a pod is gone is no news of one that was read.
func (r *reader) note(f *followed, err error) {
	f.read = f.read || err == nil
	if err == nil || f.failed != nil && err.Error() == f.failed.Error() || apierrors.IsNotFound(err) && f.read {
		return
	}
	f.failed = err
	fmt.Fprintln(r.errOut, "note:", err)
}
