// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
)

// aboutPools tells which nodes are in no flavor, and how to get them into one. Those of picked are in one.
func aboutPools(all, picked []gpu.Pool, nodes []corev1.Node) []string {
	var remarks []string
	for _, pool := range all {
		if pool.NodeLabels == nil {
			names := inventory.Names(pool.Nodes)
			remarks = append(remarks, fmt.Sprintf("left out %s %s: no label tells them from other nodes; give them one and run this again: kubectl label node %s %s=%s",
				show.Count(len(names), "node"), strings.Join(names, ", "), strings.Join(names, " "), gpu.PoolLabel, pool.Name))
		}
	}
	for n := range nodes {
		if node := &nodes[n]; gpu.Broken(node) {
			remarks = append(remarks, fmt.Sprintf("node %s is a %s by its labels but has no GPUs to give, so quotas are without them: look at its device plugin", node.Name, gpu.Product(node)))
		}
	}
	var away []string
	for _, pool := range picked {
		away = append(away, inventory.Names(slices.DeleteFunc(slices.Clone(pool.Nodes), inventory.Ready))...)
	}
	for n := range picked {
		if own := inventory.Names(slices.DeleteFunc(slices.Clone(picked[n].Nodes), func(node *corev1.Node) bool { return !keepsAway(&picked[n], node) })); len(own) > 0 {
			remarks = append(remarks, fmt.Sprintf("quotas of %s count %s with taints that others of it do not have, which keep its jobs away: %s; have them off, or give these and the others different values of label %s, and run this again",
				picked[n].Name, show.Count(len(own), "node"), strings.Join(own, ", "), gpu.PoolLabel))
		}
	}
	if len(away) > 0 {
		remarks = append(remarks, fmt.Sprintf("quotas count %s to which pods cannot come, cordoned or not ready: %s; jobs that are admitted to them wait: delete nodes that do not come back, and run this again",
			show.Count(len(away), "node"), strings.Join(away, ", ")))
	}
	if !slices.ContainsFunc(picked, takesAny) {
		remarks = append(remarks, "no pool is for pods without GPUs: those that ask for cpu or memory go to nodes with GPUs, and those that ask for nothing, as initializers may, stay Pending unless some other node takes them")
	}
	return remarks
}

// keepsAway reports whether a node has a lasting taint that neither pods that ask for the pool's GPUs nor its flavor tolerate.
func keepsAway(pool *gpu.Pool, node *corev1.Node) bool {
	return slices.ContainsFunc(gpu.Lasting(node), func(taint corev1.Taint) bool {
		return !slices.Contains(pool.Taints, taint) && !tolerated(pool, taint)
	})
}

const autoscalerPage = "docs/pools.md#with-an-autoscaler"

// aboutScaling tells of nodes that an autoscaler may have made, which takes them away again.
func aboutScaling(pools []gpu.Pool) []string {
	var labels []string
	for _, pool := range pools {
		for _, node := range pool.Nodes {
			if label := gpu.NodePoolLabel(node); label != "" {
				labels = append(labels, label)
			}
		}
	}
	if len(labels) == 0 {
		return nil
	}
	slices.Sort(labels)
	return []string{fmt.Sprintf("nodes are of groups (%s), and quotas count those that are there: where an autoscaler makes and removes them, "+
		"set nominalQuota to what a pool may grow to, and do not apply again: %s", strings.Join(slices.Compact(labels), ", "), autoscalerPage)}
}

// aboutTopology is what a topology costs: Kueue finds no room for a pod that asks for nothing.
const aboutTopology = "with a topology Kueue admits no TrainJob with a replicated job that asks for nothing, such as torchtune's initializers: have its runtime ask for some cpu, or leave --topology out"

// rounding tells where the teams' parts are not their shares, or no whole nodes.
func (q *quotas) rounding() []string {
	var remarks []string
	shares := sum(q.teams)
	for n, t := range q.teams {
		var have, all int64
		var where, uneven []string
		for p := range q.pools {
			var gpus int64
			for _, part := range q.parts[p] {
				all += part.nodes
				gpus += part.gpus
			}
			part := q.parts[p][n]
			if have += part.nodes; part.nodes > 0 {
				where = append(where, fmt.Sprintf("%d of %s", part.nodes, q.pools[p].Name))
			}
			if part.gpus*shares != gpus*t.share {
				uneven = append(uneven, fmt.Sprintf("%d of %d GPUs of %s", part.gpus, gpus, q.pools[p].Name))
			}
		}
		due := fmt.Sprintf("where its share of %d in %d would be %.1f", t.share, shares, float64(all)*float64(t.share)/float64(shares))
		switch {
		case len(uneven) == 0:
		case have*shares == all*t.share:
			remarks = append(remarks, fmt.Sprintf("%s has %s, where its share is %d in %d: shares are whole nodes", t.namespace, strings.Join(uneven, ", "), t.share, shares))
		case have == 0:
			remarks = append(remarks, fmt.Sprintf("%s has no node of %d, %s, and only borrows GPUs: give it a larger share, or divide by --share-unit=%s", t.namespace, all, due, singleGPUs))
		default:
			remarks = append(remarks, fmt.Sprintf("%s has %d of %s (%s), %s: shares are whole nodes", t.namespace, have, show.Count(int(all), "node"), strings.Join(where, ", "), due))
		}
	}
	return append(remarks, q.broken()...)
}

// broken tells of pools that are divided through nodes.
func (q *quotas) broken() []string {
	var remarks []string
	for p := range q.pools {
		pool := &q.pools[p]
		if pool.Slicing != gpu.WholeGPUs {
			continue
		}
		whole := slices.DeleteFunc(slices.Clone(pool.Nodes), gpu.Broken)
		perNode := size(slices.MinFunc(whole, func(a, b *corev1.Node) int { return cmp.Compare(size(a, *pool), size(b, *pool)) }), *pool)
		if slices.ContainsFunc(q.parts[p], func(part part) bool {
			has := part.amounts[pool.Resources[0]]
			return part.nodes == 0 && has.Value()%perNode != 0
		}) {
			remarks = append(remarks, fmt.Sprintf("quotas of %s are no whole nodes of %d %s: what a team has beyond whole nodes does not come back for a job of whole nodes while others borrow", pool.Name, perNode, pool.Resources[0]))
		}
	}
	return remarks
}

// takesNothing fails where a planned object is there that somebody else made: kubectl apply would
// change it, and kubectl delete with the same text delete it.
func (p *plan) takesNothing() error {
	if len(p.theirs) == 0 {
		return nil
	}
	return fmt.Errorf("there already, and not made by this command: %s; applying what it writes would change them, and deleting it delete them: "+
		"give teams or --queue other names, or go on with --overwrite", strings.Join(p.theirs, ", "))
}

// compare tells what is there already and does not go with the plan.
func (p *plan) compare(i *inventory.Inventory) {
	planned := map[string]client.Object{}
	for _, document := range p.documents {
		planned[key(document.object)] = document.object
	}
	var remarks, overlaps, empty []string
	for _, obj := range slices.Concat(inventory.Objects(i.Topologies), inventory.Objects(i.Flavors), inventory.Objects(i.ClusterQueues), inventory.Objects(i.LocalQueues)) {
		name, ours := key(obj), obj.GetLabels()[managedByLabel] == managedBy
		want, isPlanned := planned[name]
		if isPlanned && !ours {
			p.theirs = append(p.theirs, name)
		}
		switch refused := immutable(obj, want); {
		case refused != "":
			remarks = append(remarks, fmt.Sprintf("%s is there and applying this to it is refused: %s", name, refused))
		case isPlanned && !ours:
			remarks = append(remarks, fmt.Sprintf("%s was not made by this command: applying this changes it", name))
		case isPlanned:
			remarks = append(remarks, moved(i, obj, want)...)
		case !isPlanned && ours:
			counts := ""
			switch obj.(type) {
			case *kueue.ClusterQueue:
				counts = "its quota counts beside that of the others, so GPUs are promised twice: set it to 0, and "
			case *kueue.ResourceFlavor:
				if held := heldOf(i, kueue.ResourceFlavorReference(obj.GetName())); len(held) > 0 {
					counts = fmt.Sprintf("jobs hold %s of it, and by the new quotas Kueue promises these again: apply this once they have ended, and ", strings.Join(held, ", "))
				}
			}
			remarks = append(remarks, fmt.Sprintf("%s was made by an earlier run and is not needed any more: %sdelete it once nothing uses it: kubectl delete %s", name, counts, deletion(obj)))
		}
		if flavor, ok := obj.(*kueue.ResourceFlavor); ok && !ours {
			overlaps = append(overlaps, p.overlaps(i, flavor)...)
			if !isPlanned {
				empty = append(empty, emptyFlavor(i, flavor)...)
			}
		}
	}
	p.remarks = slices.Concat(p.remarks, remarks, overlaps, empty)
}

// moved tells of a flavor that picks other nodes by the plan, while jobs have quota for those of before.
func moved(i *inventory.Inventory, have, want client.Object) []string {
	flavor, ok := have.(*kueue.ResourceFlavor)
	if !ok || slices.Equal(i.NodesOf(flavor), i.NodesOf(want.(*kueue.ResourceFlavor))) {
		return nil
	}
	held := heldOf(i, kueue.ResourceFlavorReference(flavor.Name))
	if len(held) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("ResourceFlavor %s picks other nodes from now on: jobs hold %s of it on those of before, which Kueue then promises again: apply this once they have ended",
		flavor.Name, strings.Join(held, ", "))}
}

// heldOf tells how much of the GPUs of a flavor is reserved, by resource.
func heldOf(i *inventory.Inventory, flavor kueue.ResourceFlavorReference) []string {
	sums := map[corev1.ResourceName]*resource.Quantity{}
	for n := range i.ClusterQueues {
		for _, usage := range i.ClusterQueues[n].Status.FlavorsReservation {
			for _, of := range usage.Resources {
				if usage.Name != flavor || !gpu.IsResource(of.Name) || of.Total.IsZero() {
					continue
				}
				if sums[of.Name] == nil {
					sums[of.Name] = &resource.Quantity{}
				}
				sums[of.Name].Add(of.Total)
			}
		}
	}
	var held []string
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		held = append(held, fmt.Sprintf("%s %s", sums[name], name))
	}
	return held
}

// emptyFlavor tells of a flavor of others that no node matches, and who has quota for it.
func emptyFlavor(i *inventory.Inventory, flavor *kueue.ResourceFlavor) []string {
	if len(i.NodesOf(flavor)) > 0 {
		return nil
	}
	name := kueue.ResourceFlavorReference(flavor.Name)
	var users []string
	for m := range i.ClusterQueues {
		cq := &i.ClusterQueues[m]
		has := slices.ContainsFunc(cq.Spec.ResourceGroups, func(group kueue.ResourceGroup) bool {
			return slices.ContainsFunc(group.Flavors, func(f kueue.FlavorQuotas) bool { return f.Name == name })
		})
		if has && !i.LeadsAway(cq, name) && !i.MakesNodes(cq, name) {
			users = append(users, cq.Name)
		}
	}
	if len(users) == 0 {
		return nil
	}
	return []string{fmt.Sprintf("no node has the labels of ResourceFlavor %s, for which ClusterQueue %s has quota: what is admitted to it stays Pending, unless an autoscaler makes such nodes",
		name, strings.Join(users, ", "))}
}

// deletion is an object as kubectl delete takes it.
func deletion(obj client.Object) string {
	text := strings.ToLower(kindOf(obj)) + " " + obj.GetName()
	if obj.GetNamespace() != "" {
		text += " -n " + obj.GetNamespace()
	}
	return text
}

// immutable tells what the API server would refuse of an object's change to what is planned, which may be nil.
func immutable(have, want client.Object) string {
	if want == nil {
		return ""
	}
	switch have := have.(type) {
	case *kueue.LocalQueue:
		if have.Spec.ClusterQueue != want.(*kueue.LocalQueue).Spec.ClusterQueue {
			return fmt.Sprintf("it belongs to ClusterQueue %s for good; give --queue another name", have.Spec.ClusterQueue)
		}
	case *kueue.ResourceFlavor:
		want := want.(*kueue.ResourceFlavor)
		same := maps.Equal(have.Spec.NodeLabels, want.Spec.NodeLabels) && ptr.Equal(have.Spec.TopologyName, want.Spec.TopologyName) &&
			equality.Semantic.DeepEqual(have.Spec.Tolerations, want.Spec.Tolerations)
		if have.Spec.TopologyName != nil && !same {
			return "a flavor with a topology keeps it, and its labels and tolerations; when no job runs on it, take it out of its ClusterQueues and delete it first"
		}
	case *kueue.Topology:
		if !equality.Semantic.DeepEqual(have.Spec, want.(*kueue.Topology).Spec) {
			return "a topology keeps its levels; when no job runs by it, delete it first"
		}
	}
	return ""
}

// overlaps tells of planned flavors whose nodes a flavor of others picks, too.
func (p *plan) overlaps(i *inventory.Inventory, other *kueue.ResourceFlavor) []string {
	var remarks []string
	for _, document := range p.documents {
		if flavor, ok := document.object.(*kueue.ResourceFlavor); ok && other.Name != flavor.Name && i.Share(other, flavor) {
			remarks = append(remarks, fmt.Sprintf("ResourceFlavor %s picks nodes of %s, too: as long as a ClusterQueue has quota for it, these count twice", other.Name, flavor.Name))
		}
	}
	return remarks
}

// key names an object as people do: "LocalQueue vision/gpus".
func key(obj client.Object) string {
	return kindOf(obj) + " " + strings.TrimPrefix(client.ObjectKeyFromObject(obj).String(), "/")
}

func kindOf(obj client.Object) string { return strings.TrimPrefix(fmt.Sprintf("%T", obj), "*v1beta2.") }

// describe tells what a pool has: "4 nodes with 32 nvidia.com/gpu".
func describe(pool *gpu.Pool) string {
	text := show.Count(len(pool.Nodes), "node")
	var amounts []string
	for _, name := range pool.Resources {
		total := inventory.Allocatable(pool.Nodes, name)
		amounts = append(amounts, fmt.Sprintf("%s %s", total.String(), name))
	}
	if len(amounts) == 0 {
		return text + " without GPUs."
	}
	text += " with " + strings.Join(amounts, ", ")
	switch pool.Slicing {
	case gpu.MIG:
		return text + ", slices of GPUs."
	case gpu.Shared:
		return text + ", shared GPUs."
	}
	return text + "."
}
