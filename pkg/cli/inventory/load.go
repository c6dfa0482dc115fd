// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// Load reads the cluster. What the user may not list is recorded in Unseen; every other error ends it.
func Load(ctx context.Context, c client.Client) (*Inventory, error) {
	l := &loader{client: c}
	l.all(ctx)
	return &l.Inventory, l.err
}

// LoadAll reads all that can be read, and returns why the other kinds cannot.
func LoadAll(ctx context.Context, c client.Client) (*Inventory, map[string]error) {
	l := &loader{client: c, unread: map[string]error{}}
	l.all(ctx)
	return &l.Inventory, l.unread
}

// LoadForQuota is Load with no more pods than Kueue's scheduler looks at: those on nodes, where there
// are topologies, that it has not placed itself.
func LoadForQuota(ctx context.Context, c client.Client) (*Inventory, error) {
	l := &loader{client: c}
	l.quota(ctx)
	if len(l.Topologies) > 0 {
		l.otherPods(ctx)
	}
	return &l.Inventory, l.err
}

func (l *loader) otherPods(ctx context.Context) {
	page := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		var list corev1.PodList
		return &list, l.client.List(ctx, &list, &client.ListOptions{Limit: options.Limit, Continue: options.Continue, Raw: &options})
	}
	err := pager.New(page).EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		if pod := obj.(*corev1.Pod); scheduler.TakesOfTopology(pod) {
			l.Pods = append(l.Pods, *pod)
		}
		return nil
	})
	l.note(Pods, err)
}

func (l *loader) all(ctx context.Context) {
	read(ctx, l, Pods, &l.Pods)
	l.quota(ctx)
}

// quota reads all kinds but pods.
func (l *loader) quota(ctx context.Context) {
	read(ctx, l, Nodes, &l.Nodes)
	read(ctx, l, Flavors, &l.Flavors)
	read(ctx, l, Topologies, &l.Topologies)
	read(ctx, l, ClusterQueues, &l.ClusterQueues)
	read(ctx, l, Cohorts, &l.Cohorts)
	read(ctx, l, LocalQueues, &l.LocalQueues)
	read(ctx, l, AdmissionChecks, &l.AdmissionChecks)
	read(ctx, l, Workloads, &l.Workloads)
	// RuntimeClasses are not noted where the user may not list them: few take anything of quota.
	unseen := l.Unseen
	read(ctx, l, "runtimeclasses.node.k8s.io", &l.RuntimeClasses)
	l.Unseen = unseen
	l.DeviceClasses, _ = List[resourcev1.DeviceClass](ctx, l.client)
	for n := range l.Workloads {
		l.SetOverhead(l.Workloads[n].Spec.PodSets)
	}
}

// loader stops at the first error that is not about permissions, unless all are taken down in unread.
type loader struct {
	Inventory
	client client.Client
	unread map[string]error
	err    error
}

// read reads the objects of a kind, sorted.
func read[T any, P Object[T]](ctx context.Context, l *loader, kind string, to *[]T) {
	if l.err != nil {
		return
	}
	found, err := List[T, P](ctx, l.client)
	l.note(kind, err)
	slices.SortFunc(found, func(a, b T) int {
		x, y := P(&a), P(&b)
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
	*to = found
}

// List lists the objects of a kind.
func List[T any, P Object[T]](ctx context.Context, c client.Client, options ...client.ListOption) (found []T, err error) {
	kind, err := c.GroupVersionKindFor(P(new(T)))
	if err != nil {
		return nil, err
	}
	list, err := c.Scheme().New(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err == nil {
		err = c.List(ctx, list.(client.ObjectList), options...)
	}
	if err != nil {
		return nil, err
	}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		found = append(found, *item.(P))
		return nil
	})
	return found, err
}

func (l *loader) note(kind string, err error) {
	switch {
	case err == nil:
	case l.unread != nil:
		l.unread[kind] = err
	case apierrors.IsForbidden(err):
		l.Unseen = append(l.Unseen, kind)
	case meta.IsNoMatchError(err):
		l.err = fmt.Errorf("the cluster has no %s: install Kueue 0.19 or later (%w)", kind, err)
	default:
		l.err = fmt.Errorf("listing %s: %w", kind, err)
	}
}
