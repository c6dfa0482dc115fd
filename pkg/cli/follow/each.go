// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
)

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
