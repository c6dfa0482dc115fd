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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// watching is a client whose watches begin so.
func watching(begin func() (watch.Interface, error)) client.WithWatch {
	return fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			return begin()
		},
	}).Build()
}

func TestEachAfterChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pods := watch.NewFake()
		defer pods.Stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer cancel()
		w := Watch(ctx, 10*time.Second).Add(watching(func() (watch.Interface, error) { return pods, nil }), Kind{List: &corev1.PodList{}})
		time.AfterFunc(25*time.Second, func() {
			for range 3 {
				pods.Add(&corev1.Pod{})
			}
		})
		begin := time.Now()
		var looks []time.Duration
		look := func(context.Context) (int, error) {
			looks = append(looks, time.Since(begin))
			return len(looks), nil
		}
		expect.NoError(t, Each(ctx, w, io.Discard, look, func(seen int) (bool, error) { return seen == 5, nil }))
		// At the beginning of the watch, at once after a change, of others after a while, and when nothing has changed for long.
		want := []time.Duration{0, 10 * time.Second, 25 * time.Second, 35 * time.Second, 65 * time.Second}
		expect.Same(t, "Unexpected times of looks", want, looks)
	})
}

// TestChangesOfRefusedWatches is about users who may list and not watch, and API servers that are away.
func TestChangesOfRefusedWatches(t *testing.T) {
	expect.Rows(t, map[string]error{
		"not allowed": kit.Forbidden("pods"),
		"not known":   apierrors.NewUnauthorized("the token has ended"),
		"no answer":   io.EOF,
	}, func(t *testing.T, refused error) {
		synctest.Test(t, func(t *testing.T) {
			c := watching(func() (watch.Interface, error) { return nil, refused })
			w := Watch(t.Context(), 0).Add(c, Kind{List: &corev1.PodList{}})
			begin := time.Now()
			for range 4 {
				<-w.changes
			}
			expect.Same(t, "Unexpected time of 4 changes", 3*unwatched, time.Since(begin))
		})
	})
}

// TestChangesOfManyWatches is about an API server that ends every watch at once, such as one
// behind a proxy.
func TestChangesOfManyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watches := 0
		c := watching(func() (watch.Interface, error) {
			watches++
			return watch.NewEmptyWatch(), nil
		})
		w := Watch(t.Context(), 0).Add(c, Kind{List: &corev1.PodList{}})
		begin := time.Now()
		for range 5 {
			<-w.changes
		}
		expect.Same(t, "Unexpected time and number of watches", []any{4 * again, 5}, []any{time.Since(begin), watches})
	})
}

func TestEach(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	away := &url.Error{Op: "Get", URL: "https://api", Err: io.EOF}
	wrong := errors.New("cannot be printed")
	type row struct {
		// looks fail one after the other; the last one is the end.
		looks []error
		use   error
		took  time.Duration
		notes string
		want  error
	}
	expect.Rows(t, map[string]row{
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
	}, func(t *testing.T, tc row) {
		synctest.Test(t, func(t *testing.T) {
			begin, n, w := time.Now(), 0, Watch(t.Context(), 0)
			look := func(context.Context) (int, error) {
				n++
				return n, tc.looks[n-1]
			}
			var notes strings.Builder
			err := Each(t.Context(), w, &notes, look, func(seen int) (bool, error) {
				w.Note()
				return seen == len(tc.looks), tc.use
			})
			expect.That(t, (tc.want != nil || err == nil) && (tc.want == nil || strings.Contains(fmt.Sprint(err), tc.want.Error())), "Error %v, want %v", err, tc.want)
			expect.Same(t, "Unexpected notes", tc.notes, notes.String())
			expect.Same(t, "Unexpected time and number of looks", []any{tc.took, len(tc.looks)}, []any{time.Since(begin), n})
		})
	})
}
