// SPDX-License-Identifier: Apache-2.0

// Package record records every version of the objects that somebody watches as an outsider,
// with the admin's credentials and without Go types, or tells of them in their types as they come.
package record

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// again is the pause before a watch that ended is opened again.
const again = 100 * time.Millisecond

// Kind is one of the kinds that a Recorder watches.
type Kind struct {
	schema.GroupVersionResource
	// Namespace is empty for objects of the cluster.
	Namespace string
	// Ours picks the objects to record; nil records all.
	Ours func(*unstructured.Unstructured) bool
}

// Gap is a stretch of resource versions of which some of a kind may be missing, as after a restart of the API server.
type Gap struct {
	Resource string
	From, To uint64
}

// Recorder watches kinds and hands every version to its taker, one at a time, or keeps them.
type Recorder struct {
	api   dynamic.Interface
	feeds []*feed

	mu       sync.Mutex
	take     func(Version)
	versions []Version
	gaps     []Gap
	err      error
}

// feed is one kind, how far it has come, and its objects that are there.
type feed struct {
	Kind
	rv   string
	live map[types.UID]*unstructured.Unstructured
}

// Start lists and watches kinds until ctx ends. It calls take for every version, and without it keeps them.
func Start(ctx context.Context, api dynamic.Interface, kinds []Kind, take func(Version)) (*Recorder, error) {
	r := &Recorder{api: api, take: take}
	if take == nil {
		r.take = func(v Version) { r.versions = append(r.versions, v) }
	}
	for _, kind := range kinds {
		f := &feed{Kind: kind, live: map[types.UID]*unstructured.Unstructured{}}
		if err := r.list(ctx, f); err != nil {
			return nil, err
		}
		r.feeds = append(r.feeds, f)
	}
	for _, f := range r.feeds {
		go r.follow(ctx, f)
	}
	return r, nil
}

// Versions returns those that were kept, in the order of their resource versions.
func (r *Recorder) Versions() []Version {
	r.mu.Lock()
	defer r.mu.Unlock()
	return InOrder(r.versions)
}

// Live returns the objects that are there.
func (r *Recorder) Live() []*unstructured.Unstructured {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*unstructured.Unstructured
	for _, f := range r.feeds {
		all = slices.AppendSeq(all, maps.Values(f.live))
	}
	return all
}

// Gaps returns the stretches of which versions may be missing.
func (r *Recorder) Gaps() []Gap {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.gaps)
}

// CaughtUp reports by an error whether not every object that the API server lists is recorded as it is, or another is.
func (r *Recorder) CaughtUp(ctx context.Context) error {
	for _, f := range r.feeds {
		list, err := r.resource(f.Kind).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("listing %s: %w", f.Resource, err)
		}
		if err := r.compare(f, list.Items); err != nil {
			return err
		}
	}
	return nil
}

func (r *Recorder) compare(f *feed, items []unstructured.Unstructured) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	there := 0
	for i := range items {
		obj := &items[i]
		if !f.ours(obj) {
			continue
		}
		there++
		if live := f.live[obj.GetUID()]; live == nil || live.GetResourceVersion() != obj.GetResourceVersion() {
			return fmt.Errorf("%s %s is not recorded yet", f.Resource, obj.GetName())
		}
	}
	if gone := len(f.live) - there; gone > 0 {
		return fmt.Errorf("the deletion of %d %s is not recorded yet", gone, f.Resource)
	}
	return nil
}

// resource is of all namespaces where the kind names none.
func (r *Recorder) resource(k Kind) dynamic.ResourceInterface {
	return r.api.Resource(k.GroupVersionResource).Namespace(k.Namespace)
}

// follow goes on where a watch ended. Where the API server has forgotten that place, it lists again and notes the gap.
func (r *Recorder) follow(ctx context.Context, f *feed) {
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		if err := r.watch(ctx, f); apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			r.bridge(ctx, f)
		}
	}, again)
}

// watch takes versions until the watch ends.
func (r *Recorder) watch(ctx context.Context, f *feed) error {
	w, err := r.resource(f.Kind).Watch(ctx, metav1.ListOptions{ResourceVersion: f.rv, AllowWatchBookmarks: true})
	if err != nil {
		return err
	}
	defer w.Stop()
	for event := range w.ResultChan() {
		obj, ok := event.Object.(*unstructured.Unstructured)
		if !ok || event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		f.rv = obj.GetResourceVersion()
		if event.Type != watch.Bookmark {
			r.add(f, obj, event.Type == watch.Deleted)
		}
	}
	return nil
}

func (r *Recorder) bridge(ctx context.Context, f *feed) {
	gap, from := Gap{Resource: f.Resource}, f.rv
	err := r.list(ctx, f)
	if err != nil {
		// The next round comes here again.
		return
	}
	_, err = fmt.Sscan(from+" "+f.rv, &gap.From, &gap.To)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gaps, r.err = append(r.gaps, gap), err
}

// list takes the objects as they are now. Those that are there no more count as deleted now.
func (r *Recorder) list(ctx context.Context, f *feed) error {
	list, err := r.resource(f.Kind).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing %s: %w", f.Resource, err)
	}
	there := map[types.UID]bool{}
	for i := range list.Items {
		there[list.Items[i].GetUID()] = true
		r.add(f, &list.Items[i], false)
	}
	f.rv = list.GetResourceVersion()
	for uid, obj := range f.live {
		if !there[uid] {
			gone := obj.DeepCopy()
			gone.SetResourceVersion(f.rv)
			r.add(f, gone, true)
		}
	}
	return nil
}

// add takes a version, unless it is known.
func (r *Recorder) add(f *feed, obj *unstructured.Unstructured, deleted bool) {
	if !f.ours(obj) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	known := f.live[obj.GetUID()]
	if known != nil && known.GetResourceVersion() == obj.GetResourceVersion() && !deleted {
		return
	}
	rv, err := strconv.ParseUint(obj.GetResourceVersion(), 10, 64)
	if err != nil {
		r.err = fmt.Errorf("%s %s: %w", obj.GetKind(), obj.GetName(), err)
		return
	}
	if deleted {
		delete(f.live, obj.GetUID())
	} else {
		f.live[obj.GetUID()] = obj
	}
	r.take(Version{RV: rv, Deleted: deleted, Object: obj, At: time.Now()})
}

func (k Kind) ours(obj *unstructured.Unstructured) bool { return k.Ours == nil || k.Ours(obj) }

// Version is an object from one resource version on. All kinds lie in one etcd, so these are ordered over all kinds.
type Version struct {
	RV      uint64
	Deleted bool
	Object  *unstructured.Unstructured
	// At is when it was recorded.
	At time.Time
}

func (v Version) String() string {
	return fmt.Sprintf("%s %s at resourceVersion %d", v.Object.GetKind(), v.Object.GetName(), v.RV)
}

// InOrder sorts versions by resource version: watches of several kinds bring theirs independently of each other.
func InOrder(versions []Version) []Version {
	versions = slices.Clone(versions)
	slices.SortStableFunc(versions, func(a, b Version) int { return cmp.Compare(a.RV, b.RV) })
	return versions
}

// Follow tells of every version of objects of some kinds until ctx ends, of several kinds at the same
// time: those of one namespace, or all where that is empty. It returns when it knows what is there
// already. Informers begin again where a watch breaks off.
func Follow(
	ctx context.Context, config *rest.Config, scheme *runtime.Scheme, namespace string, tell func(obj client.Object, deleted bool), kinds ...client.Object,
) error {
	objects, err := cache.New(config, cache.Options{
		Scheme: scheme, DefaultNamespaces: map[string]cache.Config{namespace: {}}, DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return err
	}
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { tell(obj.(client.Object), false) },
		UpdateFunc: func(_, obj any) { tell(obj.(client.Object), false) },
		DeleteFunc: func(obj any) {
			if unseen, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = unseen.Obj
			}
			tell(obj.(client.Object), true)
		},
	}
	go objects.Start(ctx) //nolint:errcheck // it waits for the end of ctx, and fails where it is started twice
	for _, kind := range kinds {
		informer, err := objects.GetInformer(ctx, kind)
		if err == nil {
			_, err = informer.AddEventHandler(handler)
		}
		if err != nil {
			return fmt.Errorf("watching %T: %w", kind, err)
		}
	}
	return nil
}
