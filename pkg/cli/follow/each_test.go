// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestEach(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	away := &url.Error{Op: "Get", URL: "https://api", Err: io.EOF}
	wrong := errors.New("cannot be printed")
	cases := map[string]struct {
		// looks fail one after the other; the last one is the end.
		looks []error
		use   error
		took  time.Duration
		notes string
		want  error
	}{
		"nothing goes wrong":         {looks: []error{nil}},
		"no answer":                  {looks: []error{nil, away, away, nil}, took: 2 * again, notes: "note: Get \"https://api\": EOF; trying again\n"},
		"two failures":               {looks: []error{away, nil, away, nil}, took: 2 * again, notes: strings.Repeat("note: Get \"https://api\": EOF; trying again\n", 2)},
		"too much asked":             {looks: []error{apierrors.NewTooManyRequests("later", 1), nil}, took: again, notes: "note: later; trying again\n"},
		"rights that are gone":       {looks: []error{nil, fmt.Errorf("looking: %w", apierrors.NewForbidden(pods, "", nil))}, want: apierrors.NewForbidden(pods, "", nil)},
		"kinds that may not be seen": {looks: []error{nil, exit.With(exit.Unseen, fmt.Errorf("looking: %w", wrong))}, want: wrong},
		"an object that is gone":     {looks: []error{apierrors.NewNotFound(pods, "a")}, want: apierrors.NewNotFound(pods, "a")},
		"a user that is not known":   {looks: []error{apierrors.NewUnauthorized("")}, want: apierrors.NewUnauthorized("")},
		"an error that lasts":        {looks: []error{nil, fmt.Errorf("looking: %w", Lasting(wrong))}, want: wrong},
		"what is seen is not taken":  {looks: []error{nil}, use: wrong, want: wrong},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, n := time.Now(), 0
				changed := make(chan struct{}, len(tc.looks))
				look := func(context.Context) (int, error) {
					n++
					return n, tc.looks[n-1]
				}
				var notes strings.Builder
				err := Each(t.Context(), changed, &notes, look, func(seen int) (bool, error) {
					changed <- struct{}{}
					return seen == len(tc.looks), tc.use
				})
				expect.That(t, (tc.want != nil || err == nil) && (tc.want == nil || strings.Contains(fmt.Sprint(err), tc.want.Error())),
					"Error %v, want %v", err, tc.want)
				expect.Same(t, "Unexpected notes", tc.notes, notes.String())
				expect.Same(t, "Unexpected time and number of looks", []any{tc.took, len(tc.looks)}, []any{time.Since(begin), n})
			})
		})
	}
}

// TestEachWithoutChanges is about what only time changes.
func TestEachWithoutChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin, looks := time.Now(), 0
		look := func(context.Context) (int, error) {
			looks++
			return looks, nil
		}
		err := Each(t.Context(), nil, io.Discard, look, func(seen int) (bool, error) { return seen == 3, nil })
		took := time.Since(begin)
		expect.That(t, err == nil && took == 2*unchanged, "3 looks in %s, want %s: %v", took, 2*unchanged, err)
	})
}
