// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// Load reads the cluster. What the user may not list is recorded in Unseen; every other
// error ends it.
func Load(ctx context.Context, c client.Reader) (*Inventory, error) {
	l := &loader{client: c, inventory: &Inventory{}}
	read(ctx, l, "pods", &corev1.PodList{}, &l.inventory.Pods)
	l.quota(ctx)
	return l.inventory, l.err
}

// LoadForQuota is Load with no more pods than Kueue's scheduler looks at: those on nodes, where there
// are topologies, that it has not placed itself.
func LoadForQuota(ctx context.Context, c client.Reader) (*Inventory, error) {
	l := &loader{client: c, inventory: &Inventory{}}
	l.quota(ctx)
	if len(l.inventory.Topologies) > 0 {
		l.otherPods(ctx)
	}
	return l.inventory, l.err
}

// otherPods reads page by page, and keeps what counts.
func (l *loader) otherPods(ctx context.Context) {
	page := func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		var list corev1.PodList
		return &list, l.client.List(ctx, &list, &client.ListOptions{Limit: options.Limit, Continue: options.Continue, Raw: &options})
	}
	err := pager.New(page).EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error {
		if pod := obj.(*corev1.Pod); scheduler.TakesOfTopology(pod) {
			l.inventory.Pods = append(l.inventory.Pods, *pod)
		}
		return nil
	})
	l.note("pods", err)
}

// quota reads all kinds but pods.
func (l *loader) quota(ctx context.Context) {
	i := l.inventory
	read(ctx, l, "nodes", &corev1.NodeList{}, &i.Nodes)
	read(ctx, l, "resourceflavors.kueue.x-k8s.io", &kueue.ResourceFlavorList{}, &i.Flavors)
	read(ctx, l, "topologies.kueue.x-k8s.io", &kueue.TopologyList{}, &i.Topologies)
	read(ctx, l, "clusterqueues.kueue.x-k8s.io", &kueue.ClusterQueueList{}, &i.ClusterQueues)
	read(ctx, l, "cohorts.kueue.x-k8s.io", &kueue.CohortList{}, &i.Cohorts)
	read(ctx, l, "localqueues.kueue.x-k8s.io", &kueue.LocalQueueList{}, &i.LocalQueues)
	read(ctx, l, "admissionchecks.kueue.x-k8s.io", &kueue.AdmissionCheckList{}, &i.AdmissionChecks)
	read(ctx, l, "workloads.kueue.x-k8s.io", &kueue.WorkloadList{}, &i.Workloads)
	l.runtimeClasses(ctx)
	for n := range i.Workloads {
		i.SetOverhead(i.Workloads[n].Spec.PodSets)
	}
}

// runtimeClasses are not noted where the user may not list them: few take anything of quota.
func (l *loader) runtimeClasses(ctx context.Context) {
	unseen := l.inventory.Unseen
	read(ctx, l, "runtimeclasses.node.k8s.io", &nodev1.RuntimeClassList{}, &l.inventory.RuntimeClasses)
	l.inventory.Unseen = unseen
}

// loader stops at the first error that is not about permissions.
type loader struct {
	client    client.Reader
	inventory *Inventory
	err       error
}

// read reads the objects of a kind, sorted.
func read[T any, P interface {
	*T
	client.Object
}](ctx context.Context, l *loader, kind string, list client.ObjectList, to *[]T) {
	if l.err != nil || !l.note(kind, l.client.List(ctx, list)) {
		return
	}
	l.err = meta.EachListItem(list, func(item runtime.Object) error {
		*to = append(*to, *item.(P))
		return nil
	})
	slices.SortFunc(*to, func(a, b T) int {
		x, y := P(&a), P(&b)
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
}

// note reports whether a kind could be listed, and takes down why not.
func (l *loader) note(kind string, err error) bool {
	switch {
	case apierrors.IsForbidden(err):
		l.inventory.Unseen = append(l.inventory.Unseen, Unseen{Kind: kind})
	case meta.IsNoMatchError(err):
		l.err = fmt.Errorf("the cluster has no %s: install Kueue 0.19 or later (%w)", kind, err)
	case err != nil:
		l.err = fmt.Errorf("listing %s: %w", kind, err)
	}
	return err == nil
}
