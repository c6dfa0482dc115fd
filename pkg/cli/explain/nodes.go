// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
)

// nodes looks whether the pods may run on the flavor's nodes. Only the first reason counts, as for Kueue.
func (a *assigner) nodes(ps *kueue.PodSet, name kueue.ResourceFlavorReference) *Reason {
	flavor := a.Cluster.Flavor(name)
	if flavor == nil {
		if !a.Cluster.Saw(inventory.Flavors) {
			return nil
		}
		return lasts(FlavorMissing, fmt.Sprintf("ResourceFlavor %s does not exist", name),
			"create ResourceFlavor %s, or take it out of ClusterQueue %s, which admits nothing until then", name, a.cq.Name)
	}
	if r := a.topologyKind(ps, flavor); r != nil {
		return r
	}
	pod := &ps.Template.Spec
	tolerations := slices.Concat(pod.Tolerations, flavor.Spec.Tolerations)
	if taint := inventory.Untolerated(flavor.Spec.NodeTaints, tolerations); taint != nil {
		what := fmt.Sprintf("taint %s of the flavor is not tolerated", taint.ToString())
		if flavor.Spec.TopologyName != nil { // The API server takes no change of such a flavor.
			return lasts(Taint, what, "add a toleration of %s to replicated job %s by the runtime or a patch", taint.Key, ps.Name)
		}
		return lasts(Taint, what,
			"add a toleration of %s to spec.tolerations of ResourceFlavor %s, or to replicated job %s by the runtime or a patch", taint.Key, name, ps.Name)
	}
	if !inventory.Selects(pod, flavor) {
		what := a.selection(ps, func(key, value string) bool {
			has, ok := flavor.Spec.NodeLabels[key]
			return !ok || has == value
		})
		return lasts(Selector, fmt.Sprintf("%s asks for other nodes than the flavor's (%s)", what, labels.Set(flavor.Spec.NodeLabels)),
			"take %s out of replicated job %s, or name labels of this flavor", what, ps.Name)
	}
	if !a.Cluster.Saw(inventory.Nodes) || a.needsNone(ps, name) {
		return nil
	}
	if r := a.nodeFor(ps, flavor, tolerations); r != nil {
		if !a.places(flavor) {
			r.Warning, r.Message = true, r.Message+": Kueue does not look at that, so pods stay Pending"
		}
		return r
	}
	return cmp.Or(a.topologyFit(ps, flavor), a.ofRuntimeClass(ps, flavor))
}

// needsNone reports whether a PodSet needs no node that is there: it runs elsewhere, or nodes are made for it.
func (a *assigner) needsNone(ps *kueue.PodSet, name kueue.ResourceFlavorReference) bool {
	placed := a.condition(kueue.WorkloadAdmitted) != nil && assigns(a.Workload.Status.Admission, ps.Name, name)
	return a.Cluster.LeadsAway(a.cq, name) || a.Cluster.MakesNodes(a.cq, name) && !placed
}

// ofRuntimeClass looks whether any node of the flavor is what the RuntimeClass selects, which the API server adds to pods.
func (a *assigner) ofRuntimeClass(ps *kueue.PodSet, flavor *kueue.ResourceFlavor) *Reason {
	class, found := a.Cluster.RuntimeClass(&ps.Template.Spec), a.Cluster.NodesOf(flavor)
	if class == nil || class.Scheduling == nil || len(found) == 0 {
		return nil
	}
	selector := labels.Set(class.Scheduling.NodeSelector)
	if slices.ContainsFunc(found, func(n *corev1.Node) bool { return selector.AsSelector().Matches(labels.Set(n.Labels)) }) {
		return nil
	}
	r := lasts(Selector, fmt.Sprintf("RuntimeClass %s wants nodes with %s, and no node of the flavor is so: Kueue does not look at that, so pods stay Pending", class.Name, selector),
		"take runtimeClassName %s out of replicated job %s, or label nodes of flavor %s so", class.Name, ps.Name, flavor.Name)
	r.Warning = true
	return r
}

// nodeFor looks whether any node of the flavor is what the scheduler would take.
func (a *assigner) nodeFor(ps *kueue.PodSet, flavor *kueue.ResourceFlavor, tolerations []corev1.Toleration) *Reason {
	found := a.Cluster.NodesOf(flavor)
	if len(found) == 0 {
		return lasts(NoNode, fmt.Sprintf("no node has the flavor's labels %s", labels.Set(flavor.Spec.NodeLabels)),
			"label nodes so, or fix spec.nodeLabels of ResourceFlavor %s; with an autoscaler, nothing", flavor.Name)
	}
	var taint *corev1.Taint
	var usable, away []*corev1.Node
	for _, node := range found {
		switch lasting := inventory.Untolerated(gpu.Lasting(node), tolerations); {
		case !matches(&ps.Template.Spec, node):
		case lasting != nil:
			taint = lasting
		case inventory.Untolerated(node.Spec.Taints, tolerations) != nil:
			away = append(away, node)
		default:
			usable = append(usable, node)
		}
	}
	all := slices.Concat(usable, away)
	switch {
	case len(all) > 0 && a.tooLarge(ps, flavor.Name, all) != nil:
		return a.tooLarge(ps, flavor.Name, all)
	case len(usable) > 0 && a.tooLarge(ps, flavor.Name, usable) == nil:
		return nil
	case len(away) > 0:
		return unavailable(away, tolerations)
	case taint != nil:
		what := fmt.Sprintf("taint %s of the flavor's nodes is not tolerated", taint.ToString())
		if flavor.Spec.TopologyName != nil {
			return lasts(Taint, what, "add a toleration of %s to replicated job %s by the runtime or a patch", taint.Key, ps.Name)
		}
		return lasts(Taint, what,
			"add the taint to spec.nodeTaints and a toleration of %s to spec.tolerations of ResourceFlavor %s, or the toleration to replicated job %s",
			taint.Key, flavor.Name, ps.Name)
	}
	what := a.selection(ps, func(key, value string) bool {
		return slices.ContainsFunc(found, func(n *corev1.Node) bool { return n.Labels[key] == value })
	})
	return lasts(Selector, what+" matches no node of the flavor", "take %s out of replicated job %s, or label nodes of flavor %s so", what, ps.Name, flavor.Name)
}

// unavailable is for pods whose nodes have taints that come and go: a cordon, or the state of the node.
func unavailable(away []*corev1.Node, tolerations []corev1.Toleration) *Reason {
	first := map[string]string{}
	for _, node := range slices.Backward(away) {
		switch taint := inventory.Untolerated(node.Spec.Taints, tolerations); taint.Key {
		case corev1.TaintNodeUnschedulable:
			first["cordoned"] = node.Name
		case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable:
			first["not ready"] = node.Name
		default:
			first["tainted with "+taint.Key] = node.Name
		}
	}
	r := &Reason{Code: Unavailable, Message: "the flavor's nodes that would do are " + strings.Join(slices.Sorted(maps.Keys(first)), " or "), Remedy: "wait until they are back"}
	if node := first["cordoned"]; node != "" {
		r.Remedy += ", or have whoever cordoned them end that: kubectl uncordon " + node
	}
	return r
}

// tooLarge looks whether one pod is more than each of some nodes has, were it empty.
func (a *assigner) tooLarge(ps *kueue.PodSet, flavor string, on []*corev1.Node) *Reason {
	asked := perPodOf(ps, nil)
	has := func(node *corev1.Node, name corev1.ResourceName) int64 {
		return kueuelib.ResourceValue(name, node.Status.Allocatable[name])
	}
	for _, name := range sortedResources(asked) {
		largest := slices.MaxFunc(on, func(a, b *corev1.Node) int { return cmp.Compare(has(a, name), has(b, name)) })
		if most := has(largest, name); asked[name] > most && !a.Cluster.Untold(on, name) {
			message := fmt.Sprintf("a pod asks for %s, and the largest node of the flavor, %s, has %s", quantity(name, asked[name]), largest.Name, number(name, most))
			return lasts(TooLarge, message, "%s of replicated job %s, and for more pods; or add larger nodes to flavor %s", a.ask("less per pod"), ps.Name, flavor)
		}
	}
	return nil
}

// matches reports whether a pod takes a node by its labels. An affinity that cannot be read takes none, as for the scheduler.
func matches(pod *corev1.PodSpec, node *corev1.Node) bool {
	ok, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *pod}).Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: node.Labels}})
	return ok && err == nil
}

// selection names what of a PodSet's node selection is to blame, and who set it: keys that do not match, or else all of it.
func (a *assigner) selection(ps *kueue.PodSet, match func(key, value string) bool) string {
	selector, affinity := ps.Template.Spec.NodeSelector, ps.Template.Spec.Affinity
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(selector)) {
		if match(key, selector[key]) {
			continue
		}
		part := []string{fmt.Sprintf("node selector %s=%s", key, selector[key])}
		for _, field := range a.Fields {
			if field.Job == string(ps.Name) && field.Path == "spec.template.spec.nodeSelector["+key+"]" {
				part = append(part, owner(a.Facts, field.Source))
			}
		}
		parts = append(parts, strings.Join(part, " of "))
	}
	switch {
	case len(parts) > 0:
		return strings.Join(parts, " and ")
	case affinity != nil && affinity.NodeAffinity != nil && affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil:
		return "its node affinity"
	}
	return "its node selector " + labels.Set(selector).String()
}

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
	topology, request := inventory.Find(a.Cluster.Topologies, "", string(*flavor.Spec.TopologyName)), ptr.Deref(ps.TopologyRequest, kueue.PodSetTopologyRequest{})
	// A request that names none takes any node.
	level := ptr.Deref(request.Required, ptr.Deref(request.Preferred, ""))
	if topology == nil || level == "" || slices.Contains(kueuelib.Levels(topology), level) {
		return nil
	}
	return lasts(Topology, fmt.Sprintf("topology %s of the flavor has no level %s, which the PodSet asks for", topology.Name, level),
		"name one of %s in the annotation of replicated job %s; flavor %s has no other", strings.Join(kueuelib.Levels(topology), ", "), ps.Name, flavor.Name)
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
