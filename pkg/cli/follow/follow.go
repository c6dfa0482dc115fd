// SPDX-License-Identifier: Apache-2.0

// Package follow tells commands that something in the cluster has changed.
//
// Watch watches kinds, Each looks again after every change.
package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
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

// Job are those whose changes move a TrainJob on.
func Job(key client.ObjectKey) []Kind {
	in, named := client.InNamespace(key.Namespace), client.MatchingFields{metav1.ObjectNameField: key.Name}
	return []Kind{
		{List: &trainjob.List{}, Options: []client.ListOption{in, named}},
		{List: &kueue.WorkloadList{}, Options: []client.ListOption{in}},
		{List: &jobsetapi.JobSetList{}, Options: []client.ListOption{in, named}},
		{List: &corev1.PodList{}, Options: []client.ListOption{in, client.MatchingLabels{jobsetapi.JobSetNameKey: key.Name}}},
	}
}

// Watching is of kinds, in several clusters, which may come later.
type Watching struct {
	ctx  context.Context
	calm time.Duration
	// changes has something to read after a change: one that nobody has looked at yet is as good as two.
	changes chan struct{}
}

// Watch begins without any kind, and ends with ctx. Whoever looks after changes leaves calm between two looks.
func Watch(ctx context.Context, calm time.Duration) *Watching {
	return &Watching{ctx: ctx, calm: calm, changes: make(chan struct{}, 1)}
}

// Add watches kinds in one more cluster. What cannot be watched counts as changed now and then.
func (w *Watching) Add(c client.WithWatch, kinds ...Kind) *Watching {
	for _, kind := range kinds {
		go w.watch(c, kind)
	}
	return w
}

// watch notes every event, and begins again when the API server ends the watch. Every
// beginning counts as a change: what was deleted before it, no event tells. So does every watch that
// is refused: a look tells why.
func (w *Watching) watch(c client.WithWatch, kind Kind) {
	for w.ctx.Err() == nil {
		events, err := c.Watch(w.ctx, kind.List, kind.Options...)
		w.Note()
		if err != nil {
			pause(w.ctx, unwatched)
			continue
		}
		for range events.ResultChan() {
			w.Note()
		}
		events.Stop()
		pause(w.ctx, again)
	}
}

// Note notes a change.
func (w *Watching) Note() {
	select {
	case w.changes <- struct{}{}:
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

// Each looks now, after changes and now and then, and hands on what was seen, until use says that
// it is over, or ctx ends. A look that fails for a reason that may pass, such as an API server that
// starts again, is noted and repeated; every other error is returned, as those of use are.
func Each[T any](ctx context.Context, w *Watching, errOut io.Writer, look func(context.Context) (T, error), use func(T) (over bool, err error)) error {
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
		pause(ctx, w.calm)
		select {
		case <-ctx.Done():
			return nil
		case <-w.changes:
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
