// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// topologyKind compares what a PodSet says of topology with what the flavor has.
func (a *assigner) topologyKind(ps *kueue.PodSet, flavor *kueue.ResourceFlavor) *Reason {
	switch asks, has := kueuelib.IsExplicitlyRequestingTopology(*ps), flavor.Spec.TopologyName != nil; {
	case !asks && has && !a.Cluster.onlyTopologies(a.cq):
		return lasts(Topology, "the flavor is for topology-aware scheduling only, which the PodSet does not ask for",
			"annotate the pods of replicated job %s with kueue.x-k8s.io/podset-unconstrained-topology: \"true\" to use flavor %s", ps.Name, flavor.Name)
	case asks && !has:
		r := lasts(Topology, "the PodSet asks for a topology, and the flavor has none",
			"set spec.topologyName of ResourceFlavor %s, or take the topology annotation from the pods of replicated job %s", flavor.Name, ps.Name)
		if slices.ContainsFunc(a.Cluster.flavorsOf(a.cq), func(f *kueue.ResourceFlavor) bool { return f != nil && f.Spec.TopologyName != nil }) {
			r.Remedy = "" // Another flavor of the queue is for such jobs.
		}
		return r
	case asks && has:
		return a.noLevel(ps, flavor)
	}
	return nil
}

// noLevel is for a PodSet that names a level which the topology of a flavor does not have.
func (a *assigner) noLevel(ps *kueue.PodSet, flavor *kueue.ResourceFlavor) *Reason {
	topology := inventory.Find(a.Cluster.Topologies, "", string(*flavor.Spec.TopologyName))
	if topology == nil || ps.TopologyRequest == nil {
		return nil
	}
	levels := kueuelib.Levels(topology)
	// A request that names none takes any node.
	level := ptr.Deref(ps.TopologyRequest.Required, ptr.Deref(ps.TopologyRequest.Preferred, ""))
	if level == "" || slices.Contains(levels, level) {
		return nil
	}
	return lasts(Topology, fmt.Sprintf("topology %s of the flavor has no level %s, which the PodSet asks for", topology.Name, level),
		"name one of %s in the annotation of replicated job %s; flavor %s has no other", strings.Join(levels, ", "), ps.Name, flavor.Name)
}

// topologyFit asks Kueue's own placement, with nodes as they are, then empty and ready: what does not fit there never will.
func (a *assigner) topologyFit(ps *kueue.PodSet, flavor *kueue.ResourceFlavor) *Reason {
	if !a.places(flavor) || !a.Cluster.Saw(inventory.Pods) || !a.Cluster.Saw(inventory.Workloads) {
		return nil
	}
	why := a.noPlacement(a.Cluster.now, ps, flavor)
	if why == "" {
		return nil
	}
	// Kueue's own words count the nodes, and why they do not do.
	if a.noPlacement(a.Cluster.empty, ps, flavor) == "" {
		wait := "wait until pods nearby have ended"
		if slices.ContainsFunc(a.Cluster.NodesOf(flavor), func(node *corev1.Node) bool { return !inventory.Ready(node) }) {
			wait = "wait until nodes are back that are cordoned or not ready, or pods nearby have ended"
		}
		return &Reason{Code: Topology, Message: why, Remedy: wait + a.raise()}
	}
	if instead := a.instead(ps, flavor); instead != "" {
		return lasts(Topology, why, "%s in the annotation of replicated job %s: it does not fit on flavor %s even when its nodes are empty",
			instead, ps.Name, flavor.Name)
	}
	return lasts(Topology, why, "%s of replicated job %s: they do not fit on flavor %s with any topology request, even when its nodes are empty",
		a.ask("fewer or smaller pods"), ps.Name, flavor.Name)
}

// places reports whether Kueue looks for nodes in a flavor before it gives quota, and not after an admission check.
func (a *assigner) places(flavor *kueue.ResourceFlavor) bool {
	queue := a.Cluster.now.ClusterQueue(kueue.ClusterQueueReference(a.cq.Name))
	return flavor.Spec.TopologyName != nil && queue != nil && (a.Cluster.Saw(inventory.AdmissionChecks) || len(inventory.Checks(a.cq)) == 0) &&
		!queue.HasMultiKueueAdmissionCheck() && !queue.HasProvRequestAdmissionCheck(kueue.ResourceFlavorReference(flavor.Name))
}

// instead names the request nearest to that of a PodSet which would fit on empty nodes; empty for none.
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
	levels := kueuelib.Levels(topology)
	for _, level := range slices.Backward(levels[:max(0, slices.Index(levels, *ps.TopologyRequest.Required))]) {
		if fits(kueue.PodSetTopologyRequest{Required: &level}) {
			return "require " + level + ", a wider level,"
		}
	}
	if fits(kueue.PodSetTopologyRequest{Preferred: ps.TopologyRequest.Required}) {
		return "prefer " + *ps.TopologyRequest.Required + " instead of requiring it"
	}
	return ""
}

// noPlacement is why a PodSet does not fit below a topology; empty where it does, or Kueue would not come to look.
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
