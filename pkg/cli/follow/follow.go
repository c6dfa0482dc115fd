// SPDX-License-Identifier: Apache-2.0

// Package follow tells commands that something in the cluster has changed.
//
// Changes and Watch watch kinds, Each looks again after every change.
package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
)

const (
	// again is after how long a watch that ended, or a look that failed, is tried again.
	again = time.Second
	// unwatched is after how long a kind counts as changed whose watch is refused.
	unwatched = 10 * time.Second
)

// Kind is what to watch: the list names the kind, the options what of it.
type Kind struct {
	List    client.ObjectList
	Options []client.ListOption
}

// Changes returns a channel that has something to read after a change of one of the kinds, at
// most once every calm, until ctx ends. What cannot be watched counts as changed now and then.
func Changes(ctx context.Context, c client.WithWatch, calm time.Duration, kinds ...Kind) <-chan struct{} {
	w := Watch(ctx, calm)
	w.Add(c, kinds...)
	return w.Changed
}

// Watching is Changes of kinds in several clusters, which may come later.
type Watching struct {
	// Changed has something to read after a change.
	Changed <-chan struct{}

	ctx    context.Context
	events chan struct{}
}

// Watch begins without any kind.
func Watch(ctx context.Context, calm time.Duration) *Watching {
	events, changed := make(chan struct{}, 1), make(chan struct{})
	go func() {
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
				return
			case <-events:
			}
			select {
			case <-ctx.Done():
			case changed <- struct{}{}:
				pause(ctx, calm)
			}
		}
	}()
	return &Watching{Changed: changed, ctx: ctx, events: events}
}

// Add watches kinds in one more cluster.
func (w *Watching) Add(c client.WithWatch, kinds ...Kind) {
	for _, kind := range kinds {
		go watchKind(w.ctx, c, kind, w.events)
	}
}

// watchKind notes every event, and begins again when the API server ends the watch. Every
// beginning counts as a change: what was deleted before it, no event tells. So does every watch that
// is refused: a look tells why.
func watchKind(ctx context.Context, c client.WithWatch, kind Kind, events chan<- struct{}) {
	for ctx.Err() == nil {
		w, err := c.Watch(ctx, kind.List, kind.Options...)
		note(events)
		if err != nil {
			pause(ctx, unwatched)
			continue
		}
		for range w.ResultChan() {
			note(events)
		}
		w.Stop()
		pause(ctx, again)
	}
}

// note leaves one event: one that nobody has looked at yet is as good as two.
func note(events chan<- struct{}) {
	select {
	case events <- struct{}{}:
	default:
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// unchanged is the longest time between two looks: some states only time brings.
const unchanged = 30 * time.Second

// Each looks now, after each change and now and then, and hands on what was seen, until use says that
// it is over, or ctx ends. A look that fails for a reason that may pass, such as an API server that
// starts again, is noted and repeated; every other error is returned, as those of use are.
func Each[T any](ctx context.Context, changed <-chan struct{}, errOut io.Writer, look func(context.Context) (T, error), use func(T) (over bool, err error)) error {
	noted := ""
	for {
		seen, err := look(ctx)
		if ctx.Err() != nil {
			return nil
		}
		retry := time.After(unchanged)
		switch {
		case err == nil:
			noted = ""
			if over, err := use(seen); over || err != nil {
				return err
			}
		case !Passes(err):
			return err
		default:
			retry = time.After(again)
			if text := err.Error(); text != noted {
				fmt.Fprintf(errOut, "note: %s; trying again\n", text)
				noted = text
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-retry:
		}
	}
}

// Lasting marks an error that another look would have, too.
func Lasting(err error) error { return &lasting{err} }

type lasting struct{ error }

func (l *lasting) Unwrap() error { return l.error }

// Passes reports whether an error may be gone the next time: not one that the API server
// answers a wrong request with, or one of a user who may not ask.
func Passes(err error) bool {
	if _, lasts := errors.AsType[*lasting](err); lasts || exit.Code(err) == exit.Unseen {
		return false
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return true
	}
	switch code := answer.Status().Code; code {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusGone, http.StatusTooManyRequests:
		return true
	default:
		return code >= http.StatusInternalServerError
	}
}
