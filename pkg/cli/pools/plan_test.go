// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func gpuNode(name, product string, taints ...corev1.Taint) corev1.Node {
	labels := map[string]string{gpu.ProductLabel: product, corev1.LabelHostname: name}
	n := kit.ReadyNode(name, labels, "cpu", "96", "memory", "1Ti", "pods", "110", "hugepages-2Mi", "0", "nvidia.com/gpu", "8")
	n.Spec.Taints = taints
	return *n
}

func taint(key, value string) corev1.Taint {
	return corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}
}

const planned = `---
apiVersion: kueue.x-k8s.io/v1beta2
kind: Topology
metadata:
  labels:
    app.kubernetes.io/managed-by: kubectl-trainjob
  name: zone-clique-hostname
spec:
  levels:
  - nodeLabel: topology.kubernetes.io/zone
  - nodeLabel: nvidia.com/gpu.clique
  - nodeLabel: kubernetes.io/hostname
---
# 1 node with 8 nvidia.com/gpu.
apiVersion: kueue.x-k8s.io/v1beta2
kind: ResourceFlavor
metadata:
  labels:
    app.kubernetes.io/managed-by: kubectl-trainjob
  name: gb200
spec:
  nodeLabels:
    nvidia.com/gpu.product: NVIDIA-GB200
  tolerations:
  - effect: NoSchedule
    key: nvidia.com/gpu
    operator: Equal
    value: present
  - effect: NoSchedule
    key: sku
    operator: Equal
    value: gpu
  topologyName: zone-clique-hostname
---
# vision has 1 of 1 shares.
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata:
  labels:
    app.kubernetes.io/managed-by: kubectl-trainjob
  name: vision
spec:
  cohortName: gpu-pools
  fairSharing:
    weight: "1"
  namespaceSelector:
    matchLabels:
      kubernetes.io/metadata.name: vision
  preemption:
    reclaimWithinCohort: Any
    withinClusterQueue: LowerPriority
  resourceGroups:
  - coveredResources:
    - cpu
    - memory
    - nvidia.com/gpu
    flavors:
    - name: gb200
      resources:
      - name: cpu
        nominalQuota: "94"
      - name: memory
        nominalQuota: 1023Gi
      - name: nvidia.com/gpu
        nominalQuota: "8"
---
apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata:
  labels:
    app.kubernetes.io/managed-by: kubectl-trainjob
  name: gpus
  namespace: vision
spec:
  clusterQueue: vision
`

func TestPlan(t *testing.T) {
	node := gpuNode("a", "NVIDIA-GB200", taint("sku", "gpu"), taint("nvidia.com/gpu", "present"))
	node.Labels[corev1.LabelTopologyZone], node.Labels[gpu.CliqueLabel] = "z", "u.1"
	// DaemonSets' pods keep what they have, other pods come and go.
	pod := func(name, owner, cpu, memory string) corev1.Pod {
		p := corev1.Pod{Spec: kit.PodRequests("cpu", cpu, "memory", memory)}
		p.Name, p.OwnerReferences = name, []metav1.OwnerReference{{Kind: owner, Controller: ptr.To(true)}}
		p.Spec.NodeName = "a"
		return p
	}
	i := &inventory.Inventory{Nodes: []corev1.Node{node}, Pods: []corev1.Pod{pod("daemon", "DaemonSet", "1500m", "200Mi"), pod("job", "Job", "8", "64Gi")}}
	plan := expect.Must(newPlan(i, []team{{"vision", 1}}, options{queue: "gpus", unit: wholeNodes, topology: true}))(t)
	var out strings.Builder
	expect.NoError(t, plan.write(&out))
	expect.Same(t, "Unexpected manifest", planned, out.String())
}

// startsWith compares with beginnings.
var startsWith = gocmp.Comparer(func(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) })

func TestPlanRemarks(t *testing.T) {
	cpuNode := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "c", Labels: map[string]string{corev1.LabelHostname: "c"}}}
	broken := gpuNode("b", "NVIDIA-H100")
	broken.Status.Allocatable = kit.Amounts("cpu", "96")
	ours := map[string]string{managedByLabel: managedBy}
	flavor := func(name, product string, labels map[string]string, topology *kueue.TopologyReference) kueue.ResourceFlavor {
		f := kit.PlainFlavor(name, gpu.ProductLabel, product)
		f.Labels, f.Spec.TopologyName = labels, topology
		return *f
	}
	queue := func(name, clusterQueue string, labels map[string]string) kueue.LocalQueue {
		lq := kit.LocalQueue("vision", name, clusterQueue)
		lq.Labels = labels
		return *lq
	}
	holding := func(flavor, gpus string) kueue.ClusterQueue {
		return *kit.With(kit.ClusterQueue("of-"+flavor+gpus), func(cq *kueue.ClusterQueue) {
			cq.Status.FlavorsReservation = []kueue.FlavorUsage{{Name: kueue.ResourceFlavorReference(flavor), Resources: []kueue.ResourceUsage{
				{Name: corev1.ResourceCPU, Total: resource.MustParse("8")}, {Name: kit.GPU, Total: resource.MustParse(gpus)}}}}
		})
	}
	h100 := gpuNode("a", "NVIDIA-H100")
	tainted := gpuNode("a", "NVIDIA-H100", taint("nvidia.com/gpu", "present"))
	cordoned, notReady := gpuNode("d", "NVIDIA-H100"), gpuNode("e", "NVIDIA-H100")
	cordoned.Spec.Unschedulable, notReady.Status.Conditions[0].Status = true, corev1.ConditionUnknown
	scaled := gpuNode("a", "NVIDIA-H100")
	scaled.Labels["karpenter.sh/nodepool"] = "h100"
	hostname := ptr.To[kueue.TopologyReference]("hostname")
	type row struct {
		// nodes are h100 where they are left out.
		nodes         []corev1.Node
		flavors       []kueue.ResourceFlavor
		clusterQueues []kueue.ClusterQueue
		localQueues   []kueue.LocalQueue
		topologies    []kueue.Topology
		checks        []kueue.AdmissionCheck
		topology      bool
		// want are beginnings of the remarks.
		want []string
	}
	expect.Rows(t, map[string]row{
		"nothing to say": {},
		"nodes that no label tells apart": {nodes: []corev1.Node{h100, cpuNode},
			want: []string{"left out 1 node c: no label tells them from other nodes; give them one and run this again: kubectl label node c kueue-trainer.dev/pool=cpu"}},
		"nodes that an autoscaler may have made": {nodes: []corev1.Node{scaled}, want: []string{"nodes are of groups (karpenter.sh/nodepool), and quotas count those that are there"}},
		"a node without its device plugin":       {nodes: []corev1.Node{h100, broken}, want: []string{"node b is a NVIDIA-H100 by its labels but has no GPUs to give"}},
		"nodes to which pods cannot come": {nodes: []corev1.Node{h100, cordoned, notReady},
			want: []string{"quotas count 2 nodes to which pods cannot come, cordoned or not ready: d, e; jobs that are admitted to them wait"}},
		"nodes that keep all jobs away": {nodes: []corev1.Node{h100, gpuNode("b", "NVIDIA-H100", taint("nvidia.com/gpu", "present")), gpuNode("c", "NVIDIA-H100", taint("team", "a"))},
			want: []string{"quotas of h100 count 1 node with taints that others of it do not have, which keep its jobs away: c; have them off, or give these and the others different values of label kueue-trainer.dev/pool, and run this again"}},
		"GPU nodes that keep other pods away, and no others": {nodes: []corev1.Node{tainted},
			want: []string{"no pool is for pods without GPUs: those that ask for cpu or memory go to nodes with GPUs"}},
		"what an earlier run made": {flavors: []kueue.ResourceFlavor{flavor("h100", "NVIDIA-H100", ours, hostname)}, localQueues: []kueue.LocalQueue{queue("gpus", "vision", ours)},
			topology: true, want: []string{aboutTopology}},
		"an earlier run's topology": {flavors: []kueue.ResourceFlavor{flavor("h100", "NVIDIA-H100", ours, hostname)},
			want: []string{"ResourceFlavor h100 is there and applying this to it is refused: a flavor with a topology keeps it"}},
		"what is not needed any more": {flavors: []kueue.ResourceFlavor{flavor("a100", "NVIDIA-A100", ours, nil)},
			want: []string{"ResourceFlavor a100 was made by an earlier run and is not needed any more: delete it once nothing uses it: kubectl delete resourceflavor a100"}},
		"a flavor that is not needed any more, and of which jobs hold GPUs": {flavors: []kueue.ResourceFlavor{flavor("a100", "NVIDIA-A100", ours, nil)},
			clusterQueues: []kueue.ClusterQueue{holding("a100", "12"), holding("a100", "4"), holding("h100", "8")},
			want: []string{"ResourceFlavor a100 was made by an earlier run and is not needed any more: jobs hold 16 nvidia.com/gpu of it, and by the new quotas Kueue promises these again: " +
				"apply this once they have ended, and delete it once nothing uses it: kubectl delete resourceflavor a100"}},
		"an earlier run's flavor that picks other nodes, and of which jobs hold GPUs": {flavors: []kueue.ResourceFlavor{flavor("h100", "NVIDIA-A100", ours, nil)}, clusterQueues: []kueue.ClusterQueue{holding("h100", "8")},
			want: []string{"ResourceFlavor h100 picks other nodes from now on: jobs hold 8 nvidia.com/gpu of it on those of before, which Kueue then promises again: apply this once they have ended"}},
		"an earlier run's flavor that picks other nodes, and is free":    {flavors: []kueue.ResourceFlavor{flavor("h100", "NVIDIA-A100", ours, nil)}},
		"an earlier run's flavor that picks the same nodes, and is held": {flavors: []kueue.ResourceFlavor{flavor("h100", "NVIDIA-H100", ours, nil)}, clusterQueues: []kueue.ClusterQueue{holding("h100", "8")}},
		"the quota of a team that is none any more": {clusterQueues: []kueue.ClusterQueue{{ObjectMeta: metav1.ObjectMeta{Name: "speech", Labels: ours}}},
			want: []string{"ClusterQueue speech was made by an earlier run and is not needed any more: its quota counts beside that of the others, so GPUs are promised twice: " +
				"set it to 0, and delete it once nothing uses it: kubectl delete clusterqueue speech"}},
		"a queue of a team that is none any more": {localQueues: []kueue.LocalQueue{queue("old", "vision", ours)},
			want: []string{"LocalQueue vision/old was made by an earlier run and is not needed any more: delete it once nothing uses it: kubectl delete localqueue old -n vision"}},
		"a flavor of others that no node matches any more": {flavors: []kueue.ResourceFlavor{flavor("v100", "NVIDIA-V100", nil, nil), flavor("unused", "NVIDIA-P100", nil, nil)},
			clusterQueues: []kueue.ClusterQueue{*kit.ClusterQueue("old", kit.Quota{Flavor: "v100", GPUs: "8"})},
			want:          []string{"no node has the labels of ResourceFlavor v100, for which ClusterQueue old has quota"}},
		"a flavor that leads to other clusters": {flavors: []kueue.ResourceFlavor{flavor("v100", "NVIDIA-V100", nil, nil)},
			checks:        []kueue.AdmissionCheck{{ObjectMeta: metav1.ObjectMeta{Name: "workers"}, Spec: kueue.AdmissionCheckSpec{ControllerName: kueue.MultiKueueControllerName}}},
			clusterQueues: []kueue.ClusterQueue{*kit.With(kit.ClusterQueue("away", kit.Quota{Flavor: "v100", GPUs: "8"}), func(cq *kueue.ClusterQueue) { cq.Spec.AdmissionChecksStrategy = kit.Checks("workers") })}},
		"what somebody else made": {flavors: []kueue.ResourceFlavor{flavor("h100", "NVIDIA-H100", nil, nil), flavor("mine", "NVIDIA-H100", nil, nil)},
			want: []string{"ResourceFlavor h100 was not made by this command: applying this changes it", "ResourceFlavor mine picks nodes of h100, too"}},
		"what cannot be changed": {topologies: []kueue.Topology{{ObjectMeta: metav1.ObjectMeta{Name: "hostname", Labels: ours}}}, topology: true,
			flavors: []kueue.ResourceFlavor{flavor("h100", "NVIDIA-A100", ours, hostname)}, localQueues: []kueue.LocalQueue{queue("gpus", "language", nil)},
			want: []string{
				aboutTopology, "Topology hostname is there and applying this to it is refused", "ResourceFlavor h100 is there and applying this to it is refused",
				"LocalQueue vision/gpus is there and applying this to it is refused: it belongs to ClusterQueue language for good",
			}},
	}, func(t *testing.T, tc row) {
		if tc.nodes == nil {
			tc.nodes = []corev1.Node{h100}
		}
		i := &inventory.Inventory{Nodes: tc.nodes, Flavors: tc.flavors, ClusterQueues: tc.clusterQueues, LocalQueues: tc.localQueues, Topologies: tc.topologies, AdmissionChecks: tc.checks}
		plan := expect.Must(newPlan(i, []team{{"vision", 1}}, options{queue: "gpus", unit: wholeNodes, topology: tc.topology}))(t)
		expect.Same(t, "Unexpected remarks", tc.want, plan.remarks, startsWith, cmpopts.EquateEmpty())
	})
}

func TestWhatSomebodyElseMadeIsNotWritten(t *testing.T) {
	ours := map[string]string{managedByLabel: managedBy}
	named := func(labels map[string]string) *inventory.Inventory {
		flavor, cq, lq := kit.PlainFlavor("h100", gpu.ProductLabel, "NVIDIA-H100"), kit.ClusterQueue("vision"), kit.LocalQueue("vision", "gpus", "vision")
		flavor.Labels, cq.Labels, lq.Labels = labels, labels, labels
		return &inventory.Inventory{
			Nodes: []corev1.Node{gpuNode("a", "NVIDIA-H100")}, Flavors: []kueue.ResourceFlavor{*flavor, *kit.PlainFlavor("theirs", "pool", "b")},
			ClusterQueues: []kueue.ClusterQueue{*cq}, LocalQueues: []kueue.LocalQueue{*lq},
		}
	}
	expect.Rows(t, map[string]expect.Row[map[string]string, string]{
		"an earlier run's are written again": {In: ours},
		"a Helm chart's are not":             {In: map[string]string{managedByLabel: "Helm"}, Want: "ResourceFlavor h100, ClusterQueue vision, LocalQueue vision/gpus;"},
		"those of nobody we know are not":    {Want: "ResourceFlavor h100, ClusterQueue vision, LocalQueue vision/gpus;"},
	}, func(t *testing.T, tc expect.Row[map[string]string, string]) {
		plan := expect.Must(newPlan(named(tc.In), []team{{"vision", 1}}, options{queue: "gpus", unit: wholeNodes}))(t)
		expect.Says(t, plan.takesNothing(), tc.Want)
	})
}

func TestNoPlanWithoutGPUs(t *testing.T) {
	_, err := newPlan(&inventory.Inventory{Nodes: []corev1.Node{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}}, []team{{"vision", 1}}, options{})
	expect.Says(t, err, "no node has NVIDIA GPUs")
	expect.Says(t, err, "Where an autoscaler makes such nodes, have it make one")
}

func TestNoTopologyWithoutHostnames(t *testing.T) {
	node := gpuNode("a", "NVIDIA-H100")
	delete(node.Labels, corev1.LabelHostname)
	_, err := newPlan(&inventory.Inventory{Nodes: []corev1.Node{node}}, []team{{"vision", 1}}, options{topology: true})
	expect.Says(t, err, "nodes of pool h100 have no label kubernetes.io/hostname")
}

// Where they have none, TestPlan shows that they are let in.
func TestPodsWithoutGPUsAreKeptAwayWhereTheyHaveNodesOfTheirOwn(t *testing.T) {
	gke := taint("nvidia.com/gpu", "present")
	nodes := []corev1.Node{gpuNode("a", "NVIDIA-H100", gke), *kit.ReadyNode("c", map[string]string{gpu.PoolLabel: "cpu"}, "cpu", "8")}
	plan := expect.Must(newPlan(&inventory.Inventory{Nodes: nodes}, []team{{"vision", 1}}, options{queue: "gpus", unit: wholeNodes}))(t)
	var got []kueue.ResourceFlavorSpec
	for _, document := range plan.documents {
		if flavor, ok := document.object.(*kueue.ResourceFlavor); ok {
			got = append(got, flavor.Spec)
		}
	}
	want := []kueue.ResourceFlavorSpec{{}, {NodeTaints: []corev1.Taint{gke}}}
	expect.Same(t, "Unexpected flavors", want, got, cmpopts.IgnoreFields(kueue.ResourceFlavorSpec{}, "NodeLabels"))
}

func TestShares(t *testing.T) {
	of := func(product string, gpus ...string) (nodes []corev1.Node) {
		for n, amount := range gpus {
			nodes = append(nodes, gpuNode(fmt.Sprintf("%s-%d", product, n), product))
			nodes[n].Status.Allocatable[gpu.Whole] = resource.MustParse(amount)
		}
		return nodes
	}
	nodes := func(product string, n int) []corev1.Node { return of(product, slices.Repeat([]string{"8"}, n)...) }
	broken := gpuNode("b", "A")
	broken.Status.Allocatable = kit.Amounts("cpu", "96")
	type row struct {
		nodes []corev1.Node
		teams []int64
		unit  string
		// want are the GPUs of each team, by pool.
		want    [][]string
		remarks []string
	}
	expect.Rows(t, map[string]row{
		"whole nodes":                       {nodes: nodes("A", 4), teams: []int64{3, 1}, want: [][]string{{"24", "8"}}},
		"a node without GPUs is nobody's":   {nodes: append(nodes("A", 2), broken), teams: []int64{1, 1}, want: [][]string{{"8", "8"}}},
		"slices of GPUs by number":          {nodes: nodes("L4-SHARED", 1), teams: []int64{1, 1}, want: [][]string{{"4", "4"}}},
		"no share, no node, and no remarks": {nodes: nodes("A", 2), teams: []int64{0, 1}, want: [][]string{{"0", "16"}}},
		"what rounding gives in one pool is missed in the next": {nodes: append(nodes("A", 4), nodes("B", 4)...), teams: []int64{60, 40}, want: [][]string{{"16", "16"}, {"24", "8"}},
			remarks: []string{
				"team-0 has 5 of 8 nodes (2 of a, 3 of b), where its share of 60 in 100 would be 4.8",
				"team-1 has 3 of 8 nodes (2 of a, 1 of b), where its share of 40 in 100 would be 3.2",
			}},
		"pools of one node": {nodes: append(append(nodes("A", 1), nodes("B", 1)...), nodes("C", 1)...), teams: []int64{60, 40},
			want: [][]string{{"8", "0"}, {"0", "8"}, {"8", "0"}}, remarks: []string{"team-0 has 2 of 3 nodes (1 of a, 1 of c)", "team-1 has 1 of 3 nodes (1 of b)"}},
		"nodes with more GPUs and with fewer": {nodes: of("A", "8", "4", "8", "4"), teams: []int64{1, 1}, want: [][]string{{"12", "12"}}},
		"two small nodes for a large one":     {nodes: of("A", "4", "4", "8"), teams: []int64{1, 1}, want: [][]string{{"8", "8"}}},
		"many GPUs of one kind and few of another one": {nodes: append(of("A", "8"), of("T", "1", "1", "1", "1")...), teams: []int64{1, 1}, want: [][]string{{"8", "0"}, {"2", "2"}},
			remarks: []string{
				"team-0 has 3 of 5 nodes (1 of a, 2 of t), where its share of 1 in 2 would be 2.5",
				"team-1 has 2 of 5 nodes (2 of t), where its share of 1 in 2 would be 2.5",
			}},
		"as many nodes, of other GPUs": {nodes: append(of("A", "8"), of("T", "1")...), teams: []int64{1, 1}, want: [][]string{{"8", "0"}, {"0", "1"}},
			remarks: []string{
				"team-0 has 8 of 8 GPUs of a, 0 of 1 GPUs of t, where its share is 1 in 2: shares are whole nodes",
				"team-1 has 0 of 8 GPUs of a, 1 of 1 GPUs of t, where its share is 1 in 2: shares are whole nodes",
			}},
		"GPUs that come out as small nodes": {nodes: of("A", "8", "4", "8", "4"), teams: []int64{1, 1}, unit: singleGPUs, want: [][]string{{"12", "12"}}},
		"GPUs of nodes of which the first has none": {nodes: of("A", "0", "8"), teams: []int64{1, 3}, unit: singleGPUs, want: [][]string{{"2", "6"}},
			remarks: []string{"quotas of a are no whole nodes of 8 nvidia.com/gpu"}},
		"fewer nodes than teams": {nodes: nodes("A", 1), teams: []int64{60, 40}, want: [][]string{{"8", "0"}},
			remarks: []string{
				"team-0 has 1 of 1 node (1 of a), where its share of 60 in 100 would be 0.6",
				"team-1 has no node of 1, where its share of 40 in 100 would be 0.4, and only borrows GPUs",
			}},
		"GPUs": {nodes: nodes("A", 4), teams: []int64{60, 40}, unit: singleGPUs, want: [][]string{{"19", "13"}},
			remarks: []string{"quotas of a are no whole nodes of 8 nvidia.com/gpu"}},
		"GPUs that come out as nodes": {nodes: nodes("A", 4), teams: []int64{50, 50}, unit: singleGPUs, want: [][]string{{"16", "16"}}},
	}, func(t *testing.T, tc row) {
		var teams []team
		for n, share := range tc.teams {
			teams = append(teams, team{fmt.Sprintf("team-%d", n), share})
		}
		q := newQuotas(&inventory.Inventory{}, gpu.Pools(tc.nodes), teams, cmp.Or(tc.unit, wholeNodes))
		var got [][]string
		for p := range q.pools {
			var of []string
			for n := range teams {
				amount := q.parts[p][n].amounts[gpu.Whole]
				of = append(of, amount.String())
			}
			got = append(got, of)
		}
		expect.Same(t, "Unexpected GPUs", tc.want, got)
		expect.Same(t, "Unexpected remarks", tc.remarks, q.rounding(), startsWith, cmpopts.EquateEmpty())
	})
}

func TestDivided(t *testing.T) {
	type row struct {
		name  corev1.ResourceName
		total string
		teams []int64
		want  []string
	}
	expect.Rows(t, map[string]row{
		"all for one":                            {name: gpu.Whole, total: "64", teams: []int64{1}, want: []string{"64"}},
		"parts that come out even":               {name: gpu.Whole, total: "40", teams: []int64{60, 40}, want: []string{"24", "16"}},
		"the largest remainder gets the rest":    {name: gpu.Whole, total: "32", teams: []int64{60, 40}, want: []string{"19", "13"}},
		"of equal ones the first gets more":      {name: gpu.Whole, total: "8", teams: []int64{1, 1, 1}, want: []string{"3", "3", "2"}},
		"no share, no quota":                     {name: gpu.Whole, total: "8", teams: []int64{0, 1}, want: []string{"0", "8"}},
		"fewer than teams":                       {name: gpu.Whole, total: "1", teams: []int64{1, 1}, want: []string{"1", "0"}},
		"whole CPUs":                             {name: "cpu", total: "94500m", teams: []int64{1, 1}, want: []string{"47", "47"}},
		"thousandths where there are few":        {name: "cpu", total: "1930m", teams: []int64{1, 1}, want: []string{"965m", "965m"}},
		"memory in GiB":                          {name: "memory", total: "1056768Mi", teams: []int64{1, 1}, want: []string{"516Gi", "516Gi"}},
		"memory in MiB where there is little":    {name: "memory", total: "3000Mi", teams: []int64{1, 1}, want: []string{"1500Mi", "1500Mi"}},
		"nothing, where DaemonSets took it all":  {name: "memory", total: "-1Gi", teams: []int64{1, 1}, want: []string{"0", "0"}},
		"amounts that would overflow multiplied": {name: gpu.Whole, total: "9000000000000000000", teams: []int64{1 << 30, 1 << 30}, want: []string{"4500P", "4500P"}},
	}, func(t *testing.T, tc row) {
		teams := expect.Each(tc.teams, func(share int64) team { return team{"t", share} })
		parts := divided(corev1.ResourceList{tc.name: resource.MustParse(tc.total)}, teams)
		expect.Same(t, "Unexpected parts", tc.want, expect.Each(parts, func(part corev1.ResourceList) string { return part.Name(tc.name, "").String() }))
	})
}

func TestParseTeams(t *testing.T) {
	type row struct {
		args []string
		want []team
		err  string
	}
	expect.Rows(t, map[string]row{
		"sorted, whatever the order": {args: []string{"vision=60", "language=40"}, want: []team{{"language", 40}, {"vision", 60}}},
		"no share given":             {args: []string{"vision"}, err: "must be NAMESPACE=SHARE"},
		"a share below zero":         {args: []string{"vision=-1"}, err: "must be NAMESPACE=SHARE"},
		"no namespace":               {args: []string{"=1"}, err: "is no namespace"},
		"a team twice":               {args: []string{"vision=1", "vision=2"}, err: "given twice"},
		"nothing for anybody":        {args: []string{"vision=0"}, err: "all shares are 0"},
	}, func(t *testing.T, tc row) {
		got, err := (&generate{teams: tc.args}).parseTeams()
		expect.Says(t, err, tc.err)
		expect.Same(t, "Unexpected teams", tc.want, got, gocmp.AllowUnexported(team{}))
	})
}
