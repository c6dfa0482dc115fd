// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"context"
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
			Watch: func(_ context.Context, _ client.WithWatch, list client.ObjectList, _ ...client.ListOption) (watch.Interface, error) {
				if _, ok := list.(*corev1.PodList); ok {
					return pods, nil
				}
				return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil)
			},
		}).Build()
		changed := Changes(ctx, c, time.Minute, Kind{List: &corev1.PodList{}}, Kind{List: &corev1.NodeList{}})
		begin := time.Now()
		for range 3 {
			pods.Add(&corev1.Pod{})
		}
		<-changed
		if waited := time.Since(begin); waited != 0 {
			t.Errorf("The first change was told after %s", waited)
		}
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
