// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

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

func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		pods := watch.NewFake()
		c := watching(func() (watch.Interface, error) { return pods, nil })
		changed := Changes(ctx, c, time.Minute, Kind{List: &corev1.PodList{}})
		begin := time.Now()
		<-changed
		expect.Same(t, "Unexpected wait for the beginning", time.Duration(0), time.Since(begin))
		for range 3 {
			pods.Add(&corev1.Pod{})
		}
		<-changed
		expect.Same(t, "Unexpected wait for changes", time.Minute, time.Since(begin))
		begin = time.Now()
		pods.Add(&corev1.Pod{})
		<-changed
		expect.Same(t, "Unexpected wait for changes", time.Minute, time.Since(begin))
		synctest.Wait()
		select {
		case <-changed:
			t.Error("Told of a change that was not there")
		case <-time.After(time.Hour):
		}
		cancel()
		pods.Stop()
		synctest.Wait()
	})
}

// TestChangesOfRefusedWatches is about users who may list and not watch, and API servers that are away.
func TestChangesOfRefusedWatches(t *testing.T) {
	for name, refused := range map[string]error{
		"not allowed": kit.Forbidden("pods"),
		"not known":   apierrors.NewUnauthorized("the token has ended"),
		"no answer":   io.EOF,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := watching(func() (watch.Interface, error) { return nil, refused })
				changed := Changes(t.Context(), c, time.Millisecond, Kind{List: &corev1.PodList{}})
				begin := time.Now()
				for range 4 {
					<-changed
				}
				expect.Same(t, "Unexpected time of 4 changes", 3*unwatched, time.Since(begin))
			})
		})
	}
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
		changed := Changes(t.Context(), c, time.Millisecond, Kind{List: &corev1.PodList{}})
		begin := time.Now()
		for range 5 {
			<-changed
		}
		expect.Same(t, "Unexpected time and number of watches", []any{4 * again, 5}, []any{time.Since(begin), watches})
	})
}
