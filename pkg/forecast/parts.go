// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// About returns the question with no more of the world than matters to a Workload; nil where its queue leads nowhere.
func (q *Question) About(wl *kueue.Workload) *Question {
	worlds, rootOf := split(q.World)
	root := rootOf(wl)
	if worlds[root] == nil {
		return nil
	}
	part := *q
	part.World = worlds[root]
	elsewhere := func(e Entrant) bool { return rootOf(e.Workload) != root }
	part.Entrants = slices.DeleteFunc(slices.Clone(q.Entrants), elsewhere)
	part.Arrivals = slices.DeleteFunc(slices.Clone(q.Arrivals), func(a Arrival) bool { return elsewhere(a.Entrant) })
	return &part
}

// split returns the parts of a world by a name of each, and the function that tells which a Workload is in. Nothing in one
// matters to another: they share neither quota, below the same root cohort, nor nodes, by flavors with a topology.
func split(world *scheduler.World) (map[string]*scheduler.World, func(*kueue.Workload) string) {
	r := rootsOf(world)
	parts := map[string]*scheduler.World{}
	for n := range world.ClusterQueues {
		cq := &world.ClusterQueues[n]
		root := r.root(queueNode(cq.Name))
		if parts[root] == nil {
			part := *world
			part.ClusterQueues, part.LocalQueues = nil, nil
			parts[root] = &part
		}
		parts[root].ClusterQueues = append(parts[root].ClusterQueues, *cq)
	}
	roots := map[string]string{}
	for n := range world.LocalQueues {
		lq := &world.LocalQueues[n]
		root := r.root(queueNode(string(lq.Spec.ClusterQueue)))
		if parts[root] != nil {
			parts[root].LocalQueues = append(parts[root].LocalQueues, *lq)
			roots[lq.Namespace+"/"+lq.Name] = root
		}
	}
	return parts, func(wl *kueue.Workload) string {
		if wl.Status.Admission != nil { // Its queue may lead elsewhere by now.
			return r.root(queueNode(string(wl.Status.Admission.ClusterQueue)))
		}
		return roots[wl.Namespace+"/"+string(wl.Spec.QueueName)]
	}
}

// roots joins what matters to each other: a node leads to another of its part, or to nothing.
type roots map[string]string

func queueNode(name string) string  { return "ClusterQueue/" + name }
func cohortNode(name string) string { return "Cohort/" + name }

func rootsOf(world *scheduler.World) roots {
	r := roots{}
	for n := range world.Cohorts {
		if parent := world.Cohorts[n].Spec.ParentName; parent != "" {
			r.join(cohortNode(world.Cohorts[n].Name), cohortNode(string(parent)))
		}
	}
	placed := sets.New[kueue.ResourceFlavorReference]()
	for n := range world.Flavors {
		if world.Flavors[n].Spec.TopologyName != nil {
			placed.Insert(kueue.ResourceFlavorReference(world.Flavors[n].Name))
		}
	}
	for n := range world.ClusterQueues {
		cq := &world.ClusterQueues[n]
		if cq.Spec.CohortName != "" {
			r.join(queueNode(cq.Name), cohortNode(string(cq.Spec.CohortName)))
		}
		for _, group := range cq.Spec.ResourceGroups {
			if slices.ContainsFunc(group.Flavors, func(f kueue.FlavorQuotas) bool { return placed.Has(f.Name) }) {
				// Flavors with a topology may pick the same nodes: all such queues are one part.
				r.join(queueNode(cq.Name), "nodes")
			}
		}
	}
	return r
}

func (r roots) root(node string) string {
	for r[node] != "" {
		node = r[node]
	}
	return node
}

func (r roots) join(a, b string) {
	if a, b = r.root(a), r.root(b); a != b {
		r[a] = b
	}
}
