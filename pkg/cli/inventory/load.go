// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
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
	i := &Inventory{}
	l := &loader{client: c, inventory: i}
	i.Pods = list(ctx, l, "pods", &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod { return l.Items })
	l.quota(ctx)
	return i, l.err
}

// LoadForQuota is Load with no more pods than Kueue's scheduler looks at: those on nodes, where there
// are topologies, that it has not placed itself.
func LoadForQuota(ctx context.Context, c client.Reader) (*Inventory, error) {
	i := &Inventory{}
	l := &loader{client: c, inventory: i}
	l.quota(ctx)
	if len(i.Topologies) > 0 {
		l.otherPods(ctx)
	}
	return i, l.err
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
	i.Nodes = list(ctx, l, "nodes", &corev1.NodeList{}, func(l *corev1.NodeList) []corev1.Node { return l.Items })
	i.Flavors = list(ctx, l, "resourceflavors.kueue.x-k8s.io", &kueue.ResourceFlavorList{}, func(l *kueue.ResourceFlavorList) []kueue.ResourceFlavor { return l.Items })
	i.Topologies = list(ctx, l, "topologies.kueue.x-k8s.io", &kueue.TopologyList{}, func(l *kueue.TopologyList) []kueue.Topology { return l.Items })
	i.ClusterQueues = list(ctx, l, "clusterqueues.kueue.x-k8s.io", &kueue.ClusterQueueList{}, func(l *kueue.ClusterQueueList) []kueue.ClusterQueue { return l.Items })
	i.Cohorts = list(ctx, l, "cohorts.kueue.x-k8s.io", &kueue.CohortList{}, func(l *kueue.CohortList) []kueue.Cohort { return l.Items })
	i.LocalQueues = list(ctx, l, "localqueues.kueue.x-k8s.io", &kueue.LocalQueueList{}, func(l *kueue.LocalQueueList) []kueue.LocalQueue { return l.Items })
	i.AdmissionChecks = list(ctx, l, "admissionchecks.kueue.x-k8s.io", &kueue.AdmissionCheckList{}, func(l *kueue.AdmissionCheckList) []kueue.AdmissionCheck { return l.Items })
	i.Workloads = list(ctx, l, "workloads.kueue.x-k8s.io", &kueue.WorkloadList{}, func(l *kueue.WorkloadList) []kueue.Workload { return l.Items })
}

// loader stops at the first error that is not about permissions.
type loader struct {
	client    client.Reader
	inventory *Inventory
	err       error
}

// list returns the items of a kind, sorted.
func list[L client.ObjectList, T any, P interface {
	*T
	client.Object
}](ctx context.Context, l *loader, kind string, into L, items func(L) []T) []T {
	if l.err != nil || !l.note(kind, l.client.List(ctx, into)) {
		return nil
	}
	sorted := items(into)
	slices.SortFunc(sorted, func(a, b T) int {
		x, y := P(&a), P(&b)
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName()))
	})
	return sorted
}

// note reports whether a kind could be listed, and takes down why not.
func (l *loader) note(kind string, err error) bool {
	switch {
	case apierrors.IsForbidden(err):
		l.inventory.Unseen = append(l.inventory.Unseen, Unseen{Kind: kind, Err: err})
	case meta.IsNoMatchError(err):
		l.err = fmt.Errorf("the cluster has no %s: install Kueue 0.19 or later (%w)", kind, err)
	case err != nil:
		l.err = fmt.Errorf("listing %s: %w", kind, err)
	}
	return err == nil
}
