// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/kueue-trainer/kueue-trainer/test/faults/internal/history"
)

// recorded are the kinds whose every version is kept.
var recorded = []schema.GroupVersionResource{
	{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"},
	{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"},
	{Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"},
	{Group: "batch", Version: "v1", Resource: "jobs"},
	{Version: "v1", Resource: "pods"},
	flavors,
}

var flavors = schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "resourceflavors"}

// recorder watches the objects of one run as an outsider: past the proxy, with the
// admin's credentials, without Go types.
type recorder struct {
	api       dynamic.Interface
	namespace string
	// suffix is what the run's cluster-wide objects end in.
	suffix string

	mu       sync.Mutex
	versions []history.Version
	err      error
}

// record starts to watch; the watches end with ctx.
func record(ctx context.Context, api dynamic.Interface, namespace, suffix string) (*recorder, error) {
	r := &recorder{api: api, namespace: namespace, suffix: suffix}
	for _, gvr := range recorded {
		list, err := r.resource(gvr).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			r.add(&list.Items[i], false)
		}
		w, err := r.resource(gvr).Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
		if err != nil {
			return nil, err
		}
		go r.follow(w, gvr)
	}
	return r, nil
}

func (r *recorder) resource(gvr schema.GroupVersionResource) dynamic.ResourceInterface {
	if gvr == flavors {
		return r.api.Resource(gvr)
	}
	return r.api.Resource(gvr).Namespace(r.namespace)
}

// ours reports whether an object belongs to this run.
func (r *recorder) ours(obj *unstructured.Unstructured) bool {
	return obj.GetNamespace() != "" || strings.HasSuffix(obj.GetName(), r.suffix)
}

func (r *recorder) follow(w watch.Interface, gvr schema.GroupVersionResource) {
	for event := range w.ResultChan() {
		obj, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == watch.Error {
			r.fail(fmt.Errorf("watching %s: %v", gvr.Resource, event.Object))
			return
		}
		r.add(obj, event.Type == watch.Deleted)
	}
}

func (r *recorder) add(obj *unstructured.Unstructured, deleted bool) {
	if !r.ours(obj) {
		return
	}
	v, err := history.NewVersion(obj, deleted)
	if err != nil {
		r.fail(err)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.versions = append(r.versions, v)
}

func (r *recorder) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.err = err
}

// all gives what was recorded so far.
func (r *recorder) all() ([]history.Version, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.versions), r.err
}

// caughtUp reports, by an error, whether a version is still on its way: every object
// that the API server lists is recorded as it is, and no other is.
func (r *recorder) caughtUp(ctx context.Context) error {
	versions, err := r.all()
	if err != nil {
		return err
	}
	live := map[types.UID]string{}
	for _, v := range versions {
		if v.Deleted {
			delete(live, v.Object.GetUID())
		} else {
			live[v.Object.GetUID()] = v.Object.GetResourceVersion()
		}
	}
	for _, gvr := range recorded {
		list, err := r.resource(gvr).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			obj := &list.Items[i]
			if r.ours(obj) && live[obj.GetUID()] != obj.GetResourceVersion() {
				return fmt.Errorf("%s %s is not recorded yet", gvr.Resource, obj.GetName())
			}
			delete(live, obj.GetUID())
		}
	}
	if len(live) > 0 {
		return fmt.Errorf("the deletion of %d objects is not recorded yet", len(live))
	}
	return nil
}
