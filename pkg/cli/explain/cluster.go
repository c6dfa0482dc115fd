// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// Cluster is what TrainJobs compete for, as Kueue's scheduler sees it.
type Cluster struct {
	*inventory.Inventory

	// now is what there is, stopped queues taken as running: that they are stopped is told
	// on its own, and without what makes ClusterQueues inactive because the user may not see it. unlimited is now without the borrowing limits of ClusterQueues, empty is
	// now without anybody's pods, and with all nodes ready.
	now, unlimited, empty *scheduler.Snapshot
	// asked are the Workloads of the jobs of a table, which are decided about in one play.
	asked sets.Set[client.ObjectKey]
	// decided is remembered of forecasts.
	decided map[question]*scheduler.Decision
	// lines are who waits in each ClusterQueue, and places who is how many-th there; nil before they are asked for.
	lines  map[kueue.ClusterQueueReference][]*kueue.Workload
	places map[types.UID]int
}

// NewCluster makes the scheduler's view of an inventory. The error is of one that Kueue
// could not work with either: cohorts in a circle.
func NewCluster(ctx context.Context, i *inventory.Inventory) (*Cluster, error) {
	c := &Cluster{Inventory: i, decided: map[question]*scheduler.Decision{}}
	active := i.World().Changed(func(spec *kueue.ClusterQueueSpec) {
		spec.StopPolicy = nil
		if !i.Saw(inventory.AdmissionChecks) {
			spec.AdmissionChecksStrategy = nil
		}
	})
	if !i.Saw(inventory.Topologies) {
		active.Flavors = slices.Clone(active.Flavors)
		for n := range active.Flavors {
			active.Flavors[n].Spec.TopologyName = nil
		}
	}
	var err error
	if c.now, err = active.Snapshot(ctx, i.Workloads); err != nil {
		return nil, err
	}
	idle := *active
	idle.Pods, idle.Nodes = nil, atTheirBest(i.Nodes)
	if c.empty, err = idle.Snapshot(ctx, nil); err != nil {
		return nil, err
	}
	c.unlimited, err = active.Changed(func(spec *kueue.ClusterQueueSpec) {
		for grant := range inventory.Grants(spec.ResourceGroups) {
			grant.Quota.BorrowingLimit = nil
		}
	}).Snapshot(ctx, i.Workloads)
	return c, err
}

// atTheirBest returns nodes as they are once nobody cordons them, and they are ready.
func atTheirBest(nodes []corev1.Node) []corev1.Node {
	best := slices.Clone(nodes)
	for i := range best {
		node := best[i].DeepCopy()
		node.Spec.Unschedulable, node.Spec.Taints = false, gpu.Lasting(node)
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		best[i] = *node
	}
	return best
}

// The kinds of what is made of a TrainJob, beside pods.
const (
	jobSets   = "jobsets.jobset.x-k8s.io"
	childJobs = "jobs.batch"
)

// flavorsOf returns the flavors of a ClusterQueue, nil for one that is not there.
func (c *Cluster) flavorsOf(cq *kueue.ClusterQueue) (all []*kueue.ResourceFlavor) {
	for grant := range inventory.Grants(cq.Spec.ResourceGroups) {
		all = append(all, c.Flavor(grant.Flavor))
	}
	return all
}

// onlyTopologies reports whether all flavors of a ClusterQueue have a topology: then all
// of its PodSets are placed by topology.
func (c *Cluster) onlyTopologies(cq *kueue.ClusterQueue) bool {
	return !slices.ContainsFunc(c.flavorsOf(cq), func(f *kueue.ResourceFlavor) bool { return f == nil || f.Spec.TopologyName == nil })
}

// find returns the first item that is wanted, or nil.
func find[T any](items []T, wanted func(*T) bool) *T {
	for i := range items {
		if wanted(&items[i]) {
			return &items[i]
		}
	}
	return nil
}
