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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		pods := watch.NewFake()
		c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
				return pods, nil
			},
		}).Build()
		changed := Changes(ctx, c, time.Minute, Kind{List: &corev1.PodList{}})
		begin := time.Now()
		<-changed
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("The beginning was told after %s", waited)
		}
		for range 3 {
			pods.Add(&corev1.Pod{})
		}
		<-changed
		if waited := time.Since(begin); waited != time.Minute {
			t.Errorf("The first changes were told after %s", waited)
		}
		begin = time.Now()
		pods.Add(&corev1.Pod{})
		<-changed
		if waited := time.Since(begin); waited != time.Minute {
			t.Errorf("Another change was told after %s", waited)
		}
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
		"not allowed": apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", nil),
		"not known":   apierrors.NewUnauthorized("the token has ended"),
		"no answer":   io.EOF,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
					Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
						return nil, refused
					},
				}).Build()
				changed := Changes(ctx, c, time.Millisecond, Kind{List: &corev1.PodList{}})
				begin := time.Now()
				for range 4 {
					<-changed
				}
				if took := time.Since(begin); took != 3*unwatched {
					t.Errorf("4 changes in %s, want %s", took, 3*unwatched)
				}
				cancel()
				synctest.Wait()
			})
		})
	}
}

// TestChangesOfManyWatches is about an API server that ends every watch at once, such as one
// behind a proxy.
func TestChangesOfManyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		watches := 0
		c := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
				watches++
				return watch.NewEmptyWatch(), nil
			},
		}).Build()
		changed := Changes(ctx, c, time.Millisecond, Kind{List: &corev1.PodList{}})
		begin := time.Now()
		for range 5 {
			<-changed
		}
		if took := time.Since(begin); took != 4*again || watches != 5 {
			t.Errorf("%d watches in %s, and a change told at the beginning of 5", watches, took)
		}
		cancel()
		synctest.Wait()
	})
}
