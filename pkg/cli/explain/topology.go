// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"slices"

	"github.com/go-logr/logr"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/resources"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// topologyKind compares what a PodSet says of topology with what the flavor has.
func (a *assigner) topologyKind(ps *kueue.PodSet, flavor *kueue.ResourceFlavor) *Reason {
	asks, has := kueuelib.IsExplicitlyRequestingTopology(*ps), flavor.Spec.TopologyName != nil
	switch {
	case !asks && has && !a.Cluster.onlyTopologies(a.cq):
		return reason(topologyOnly(flavor.Name, ps))
	case asks && !has:
		return reason(noTopology(flavor.Name, ps))
	case asks && has:
		topology := find(a.Cluster.Topologies, func(t *kueue.Topology) bool { return t.Name == string(*flavor.Spec.TopologyName) })
		if level := levelOf(ps.TopologyRequest); topology != nil && level != "" && !hasLevel(topology, level) {
			return reason(noLevel(flavor.Name, ps, topology, level))
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

func hasLevel(topology *kueue.Topology, level string) bool {
	return slices.ContainsFunc(topology.Spec.Levels, func(l kueue.TopologyLevel) bool { return l.NodeLabel == level })
}

// topologyFit asks Kueue's own placement, first with the nodes as they are and then with
// empty ones: what does not fit there never will.
func (a *assigner) topologyFit(ps *kueue.PodSet, flavor *kueue.ResourceFlavor) *Reason {
	if flavor.Spec.TopologyName == nil || !a.Cluster.Saw(pods) || !a.Cluster.Saw(workloads) {
		return nil
	}
	why := a.noPlacement(a.Cluster.now, ps, flavor)
	if why == "" {
		return nil
	}
	return reason(noRoom(flavor.Name, ps, why, a.noPlacement(a.Cluster.empty, ps, flavor) != ""))
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
		SinglePodRequests: resources.NewRequestsFromPodSpec(spec),
	}}}).Failure()
	if failure == nil {
		return ""
	}
	return failure.Reason
}
