// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// topologyKind compares what a PodSet says of topology with what the flavor has.
func (a *assigner) topologyKind(ps *kueue.PodSet, flavor *kueue.ResourceFlavor) *Reason {
	asks, has := kueuelib.IsExplicitlyRequestingTopology(*ps), flavor.Spec.TopologyName != nil
	switch {
	case !asks && has && !a.Cluster.onlyTopologies(a.cq):
		return new(topologyOnly(flavor.Name, ps))
	case asks && !has:
		return new(noTopology(flavor.Name, ps, a.anyTopology()))
	case asks && has:
		topology := inventory.Find(a.Cluster.Topologies, "", string(*flavor.Spec.TopologyName))
		if topology == nil {
			return nil
		}
		var levels []string
		for _, l := range topology.Spec.Levels {
			levels = append(levels, l.NodeLabel)
		}
		if level := levelOf(ps.TopologyRequest); level != "" && !slices.Contains(levels, level) {
			return new(noLevel(flavor.Name, ps, topology.Name, levels, level))
		}
	}
	return nil
}

// levelOf is the node label that a request names; empty where any node will do.
func levelOf(request *kueue.PodSetTopologyRequest) string {
	if request == nil {
		return ""
	}
	return ptr.Deref(request.Required, ptr.Deref(request.Preferred, ""))
}

// topologyFit asks Kueue's own placement, first with the nodes as they are and then with
// empty ones: what does not fit there never will.
func (a *assigner) topologyFit(ps *kueue.PodSet, flavor *kueue.ResourceFlavor) *Reason {
	if !a.places(flavor) || !a.Cluster.Saw(pods) || !a.Cluster.Saw(workloads) {
		return nil
	}
	why := a.noPlacement(a.Cluster.now, ps, flavor)
	if why == "" {
		return nil
	}
	if a.noPlacement(a.Cluster.empty, ps, flavor) == "" {
		return new(a.noRoom(why))
	}
	return new(neverRoom(flavor.Name, ps, why, a.instead(ps, flavor)))
}

// places reports whether Kueue looks for nodes in a flavor before it gives quota: where an admission
// check makes the nodes, or leads to other clusters, it looks later.
func (a *assigner) places(flavor *kueue.ResourceFlavor) bool {
	queue := a.Cluster.now.ClusterQueue(kueue.ClusterQueueReference(a.cq.Name))
	return flavor.Spec.TopologyName != nil && queue != nil &&
		!queue.HasMultiKueueAdmissionCheck() && !queue.HasProvRequestAdmissionCheck(kueue.ResourceFlavorReference(flavor.Name))
}

// needsTopology reports whether Kueue takes only a flavor with a topology for a PodSet. One of a
// group has that of the group.
func (a *assigner) needsTopology(ps *kueue.PodSet) bool {
	grouped := ps.TopologyRequest != nil && ps.TopologyRequest.PodSetGroupName != nil
	return ps.Count > 0 && !grouped && (kueuelib.IsExplicitlyRequestingTopology(*ps) || a.Cluster.onlyTopologies(a.cq))
}

// anyTopology reports whether a flavor of the ClusterQueue has a topology.
func (a *assigner) anyTopology() bool {
	return slices.ContainsFunc(a.Cluster.Flavors, func(f kueue.ResourceFlavor) bool {
		return f.Spec.TopologyName != nil && slices.ContainsFunc(a.cq.Spec.ResourceGroups, func(g kueue.ResourceGroup) bool {
			return slices.ContainsFunc(g.Flavors, func(q kueue.FlavorQuotas) bool { return string(q.Name) == f.Name })
		})
	})
}

// instead names the request nearest to that of a PodSet which would fit on empty nodes, as
// Kueue would place it; empty for none.
func (a *assigner) instead(ps *kueue.PodSet, flavor *kueue.ResourceFlavor) string {
	topology := inventory.Find(a.Cluster.Topologies, "", string(*flavor.Spec.TopologyName))
	if topology == nil || ps.TopologyRequest == nil || ps.TopologyRequest.Required == nil {
		return "" // What is preferred, or not asked for at all, is in nobody's way.
	}
	fits := func(request kueue.PodSetTopologyRequest) bool {
		other := ps.DeepCopy()
		other.TopologyRequest.Required, other.TopologyRequest.Preferred = request.Required, request.Preferred
		return a.noPlacement(a.Cluster.empty, other, flavor) == ""
	}
	asked := slices.IndexFunc(topology.Spec.Levels, func(l kueue.TopologyLevel) bool { return l.NodeLabel == *ps.TopologyRequest.Required })
	for _, level := range slices.Backward(topology.Spec.Levels[:max(0, asked)]) {
		if fits(kueue.PodSetTopologyRequest{Required: &level.NodeLabel}) {
			return "require " + level.NodeLabel + ", a wider level,"
		}
	}
	if fits(kueue.PodSetTopologyRequest{Preferred: ps.TopologyRequest.Required}) {
		return "prefer " + *ps.TopologyRequest.Required + " instead of requiring it"
	}
	return ""
}

// noPlacement returns Kueue's words for why a PodSet does not fit below a flavor's topology;
// empty where it does, or where Kueue would not come to look.
func (a *assigner) noPlacement(s *scheduler.Snapshot, ps *kueue.PodSet, flavor *kueue.ResourceFlavor) string {
	name := kueue.ResourceFlavorReference(flavor.Name)
	queue := s.ClusterQueue(kueue.ClusterQueueReference(a.cq.Name))
	if queue == nil || queue.TASFlavors[name] == nil {
		return ""
	}
	spec := ps.Template.Spec.DeepCopy()
	kueuelib.UseLimitsAsMissingRequests(spec)
	failure := queue.FindTopologyAssignmentsForWorkload(logr.NewContext(context.Background(), logr.Discard()), scheduler.TopologyRequests{name: {{
		PodSet: ps, Count: ps.Count, Flavor: name, Implied: !kueuelib.IsExplicitlyRequestingTopology(*ps),
		SinglePodRequests: kueuelib.RequestsOf(spec),
	}}}).Failure()
	if failure == nil {
		return ""
	}
	return failure.Reason
}
