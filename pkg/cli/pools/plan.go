// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

const (
	// cohort joins the teams' ClusterQueues.
	cohort = "gpu-pools"
	// managedBy marks what generate made.
	managedByLabel, managedBy = "app.kubernetes.io/managed-by", "kubectl-trainjob"
)

type plan struct {
	documents []document
	// remarks are for people: what was left out and why, and what stands in the way.
	remarks []string
	// theirs are the planned objects that are there and that somebody else made.
	theirs []string
}

// document is an object with a comment above it, which may be empty.
type document struct {
	comment string
	object  client.Object
}

// newPlan makes the objects for the nodes of an inventory. It fails when there is no GPU
// pool that a flavor could pick.
func newPlan(i *inventory.Inventory, teams []team, o options) (*plan, error) {
	all := gpu.Pools(i.Nodes)
	pools := slices.DeleteFunc(slices.Clone(all), func(pool gpu.Pool) bool { return pool.NodeLabels == nil })
	remarks := aboutPools(all, pools, i.Nodes)
	if !slices.ContainsFunc(pools, hasGPUs) {
		return nil, errors.New(strings.Join(append([]string{"no node has NVIDIA GPUs to give and a label that tells it from others: " +
			"is the GPU operator, or the device plugin with GPU Feature Discovery, running? Where an autoscaler makes such nodes, have it make one: " + autoscalerPage}, remarks...), "; "))
	}
	p := &plan{remarks: append(remarks, aboutScaling(pools)...)}
	onlyTainted := !slices.ContainsFunc(pools, takesAny)
	flavors := kueuelib.Map(pools, func(pool *gpu.Pool) *kueue.ResourceFlavor { return flavorOf(pool, onlyTainted) })
	if o.topology {
		if err := p.addTopologies(pools, flavors); err != nil {
			return nil, err
		}
	}
	for n := range pools {
		p.add(describe(&pools[n]), flavors[n])
	}
	quotas := newQuotas(i, pools, teams, o.unit)
	for n, t := range teams {
		p.add(fmt.Sprintf("%s has %d of %d shares.", t.namespace, t.share, sum(teams)), clusterQueueOf(t, quotas.of(n)))
	}
	for _, t := range teams {
		p.add("", &kueue.LocalQueue{
			ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: o.queue},
			Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(t.namespace)},
		})
	}
	p.remarks = append(p.remarks, quotas.rounding()...)
	p.compare(i)
	return p, nil
}

func (p *plan) add(comment string, object client.Object) {
	object.GetObjectKind().SetGroupVersionKind(kueue.SchemeGroupVersion.WithKind(kindOf(object)))
	object.SetLabels(map[string]string{managedByLabel: managedBy})
	p.documents = append(p.documents, document{comment, object})
}

func hasGPUs(pool gpu.Pool) bool { return len(pool.Resources) > 0 }

// takesAny reports whether pods without GPUs get onto a pool's nodes.
func takesAny(pool gpu.Pool) bool { return !hasGPUs(pool) || len(pool.Taints) == 0 }

func sum(teams []team) int64 {
	var sum int64
	for _, t := range teams {
		sum += t.share
	}
	return sum
}

// addTopologies adds those of the pools, and has their flavors name them. A ClusterQueue whose
// flavors do not all have a topology admits jobs that ask for none to those without one
// only, so it is all pools or nothing.
func (p *plan) addTopologies(pools []gpu.Pool, flavors []*kueue.ResourceFlavor) error {
	topologies := map[string]*kueue.Topology{}
	for n, pool := range pools {
		levels := gpu.Levels(pool.Nodes)
		if !slices.Contains(levels, corev1.LabelHostname) {
			return fmt.Errorf("--topology: nodes of pool %s have no label %s, which a topology ends with: label them, or leave the flag out", pool.Name, corev1.LabelHostname)
		}
		topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: topologyName(levels)}}
		for _, level := range levels {
			topology.Spec.Levels = append(topology.Spec.Levels, kueue.TopologyLevel{NodeLabel: level})
		}
		topologies[topology.Name] = topology
		flavors[n].Spec.TopologyName = ptr.To(kueue.TopologyReference(topology.Name))
	}
	for _, name := range slices.Sorted(maps.Keys(topologies)) {
		p.add("", topologies[name])
	}
	p.remarks = append(p.remarks, aboutTopology)
	return nil
}

// topologyName follows from the levels, which cannot be changed: zone-clique-hostname.
func topologyName(levels []string) string {
	var names []string
	for _, level := range levels {
		_, name, _ := strings.Cut(level, "/")
		for _, prefix := range []string{"gce-topology-", "network-", "rdma.", "gpu."} {
			name = strings.TrimPrefix(name, prefix)
		}
		names = append(names, strings.ReplaceAll(name, "_", "-"))
	}
	return strings.Join(names, "-")
}

// flavorOf makes a pool's flavor. Taints that the pods tolerate by themselves go into
// nodeTaints: there they keep pods without GPUs away, which would not get onto the nodes.
// All others the flavor has to tolerate; where all pools are tainted, these too, since pods
// without GPUs can go nowhere else.
func flavorOf(pool *gpu.Pool, onlyTainted bool) *kueue.ResourceFlavor {
	flavor := &kueue.ResourceFlavor{
		ObjectMeta: metav1.ObjectMeta{Name: pool.Name},
		Spec:       kueue.ResourceFlavorSpec{NodeLabels: pool.NodeLabels},
	}
	for _, taint := range pool.Taints {
		if onlyTainted || !tolerated(pool, taint) {
			toleration := corev1.Toleration{Key: taint.Key, Operator: corev1.TolerationOpEqual, Value: taint.Value, Effect: taint.Effect}
			if taint.Value == "" {
				toleration.Operator = corev1.TolerationOpExists
			}
			flavor.Spec.Tolerations = append(flavor.Spec.Tolerations, toleration)
		} else {
			flavor.Spec.NodeTaints = append(flavor.Spec.NodeTaints, taint)
		}
	}
	return flavor
}

// tolerated reports whether pods that ask for a pool's GPUs tolerate a taint by themselves.
func tolerated(pool *gpu.Pool, taint corev1.Taint) bool {
	return !slices.ContainsFunc(pool.Resources, func(name corev1.ResourceName) bool { return !gpu.Tolerated(taint, name) })
}

// clusterQueueOf makes a team's ClusterQueue. What it lends it gets back, if need be by
// preemption; among a team's own jobs priority counts. Its weight divides what is free where
// Kueue's configuration has fair sharing on.
func clusterQueueOf(t team, group kueue.ResourceGroup) *kueue.ClusterQueue {
	return &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: t.namespace},
		Spec: kueue.ClusterQueueSpec{
			CohortName:        cohort,
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: t.namespace}},
			Preemption: &kueue.ClusterQueuePreemption{
				ReclaimWithinCohort: kueue.PreemptionPolicyAny,
				WithinClusterQueue:  kueue.PreemptionPolicyLowerPriority,
			},
			FairSharing:    &kueue.FairSharing{Weight: resource.NewQuantity(t.share, resource.DecimalSI)},
			ResourceGroups: []kueue.ResourceGroup{group},
		},
	}
}

// write prints the documents as kubectl apply takes them.
func (p *plan) write(out io.Writer) error {
	for _, document := range p.documents {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(document.object)
		if err != nil {
			return fmt.Errorf("%s: %w", key(document.object), err)
		}
		delete(content, "status")
		fmt.Fprintln(out, "---")
		if document.comment != "" {
			fmt.Fprintln(out, "#", document.comment)
		}
		if err := show.Encode(out, show.YAML, content); err != nil {
			return err
		}
	}
	return nil
}
