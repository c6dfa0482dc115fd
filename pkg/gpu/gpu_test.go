// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

type labelSet = map[string]string

func node(name string, allocatable corev1.ResourceList, labels labelSet, taints ...corev1.Taint) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.NodeSpec{Taints: taints},
		Status:     corev1.NodeStatus{Allocatable: allocatable},
	}
}

var (
	eightGPUs  = kit.Amounts("nvidia.com/gpu", "8")
	noGPUs     = kit.Amounts("cpu", "64")
	gkeTaint   = corev1.Taint{Key: "nvidia.com/gpu", Value: "present", Effect: corev1.TaintEffectNoSchedule}
	azureTaint = corev1.Taint{Key: "sku", Value: "gpu", Effect: corev1.TaintEffectNoSchedule}
	teamTaint  = corev1.Taint{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}
	spotTaint  = corev1.Taint{Key: "cloud.google.com/gke-spot", Value: "true", Effect: corev1.TaintEffectNoSchedule}
)

// pool is one by its name, labels and nodes.
type pool struct {
	Name      string
	Labels    labelSet
	Nodes     []string
	Resources []corev1.ResourceName
	Slicing   Slicing
	Taints    []corev1.Taint
}

type split struct {
	nodes []corev1.Node
	want  []pool
}

func of(nodes ...corev1.Node) split { return split{nodes: nodes} }

func (s split) make(pools ...pool) split { return split{s.nodes, pools} }

func TestPools(t *testing.T) {
	h100 := func(more ...string) labelSet {
		l := labelSet{ProductLabel: "NVIDIA-H100-80GB-HBM3"}
		for i := 0; i < len(more); i += 2 {
			l[more[i]] = more[i+1]
		}
		return l
	}
	whole := []corev1.ResourceName{Whole}
	// ofGPUs has whole ones.
	ofGPUs := func(name string, labels labelSet, nodes []string, taints ...corev1.Taint) pool {
		return pool{name, labels, nodes, whole, WholeGPUs, taints}
	}
	ofGKE := func(size string) labelSet { return labelSet{gkeAccelerator: "nvidia-h100-80gb", gkePartition: size} }
	gkeSlices := func(name, size string) corev1.Node { return node(name, eightGPUs, ofGKE(size)) }
	gkePool := func(node, size, name string) pool {
		return pool{Name: name, Labels: ofGKE(size), Nodes: []string{node}, Resources: whole, Slicing: MIG}
	}
	const machineSet = "machine.openshift.io/cluster-api-machineset"
	longName := strings.Repeat("x", 55)
	expect.Rows(t, map[string]split{
		"no nodes": of(),
		"nodes with the same product are one pool, sorted": of(node("b", eightGPUs, h100(), gkeTaint), node("a", eightGPUs, h100(), gkeTaint)).
			make(ofGPUs("h100-80gb-hbm3", h100(), []string{"a", "b"}, gkeTaint)),
		"two products are two pools, and nodes that labels pick without GPUs are one before them": of(
			node("h", eightGPUs, h100()),
			node("a", eightGPUs, labelSet{ProductLabel: "NVIDIA-A100-SXM4-80GB"}),
			node("c", noGPUs, labelSet{"eks.amazonaws.com/nodegroup": "workers"})).
			make(
				pool{Name: "cpu-workers", Labels: labelSet{"eks.amazonaws.com/nodegroup": "workers"}, Nodes: []string{"c"}},
				ofGPUs("a100-sxm4-80gb", labelSet{ProductLabel: "NVIDIA-A100-SXM4-80GB"}, []string{"a"}),
				ofGPUs("h100-80gb-hbm3", h100(), []string{"h"})),
		"nodes that no label picks have a pool without labels": of(node("c", noGPUs, nil), node("h", eightGPUs, h100())).
			make(pool{Name: "cpu", Nodes: []string{"c"}}, ofGPUs("h100-80gb-hbm3", h100(), []string{"h"})),
		"Windows nodes are no pool, with GPUs or without": of(
			node("a", eightGPUs, h100()),
			node("b", eightGPUs, labelSet{ProductLabel: "NVIDIA-A10", corev1.LabelOSStable: "windows"}),
			node("c", noGPUs, labelSet{machineSet: "windows", corev1.LabelOSStable: "windows"}),
			node("d", noGPUs, labelSet{machineSet: "marked"}, corev1.Taint{Key: "node.kubernetes.io/os", Value: "windows", Effect: corev1.TaintEffectNoSchedule})).
			make(ofGPUs("h100-80gb-hbm3", labelSet{ProductLabel: "NVIDIA-H100-80GB-HBM3"}, []string{"a"})),
		"control planes and tainted nodes without GPUs are no pool": of(
			node("a", noGPUs, labelSet{"node-role.kubernetes.io/control-plane": "", PoolLabel: "x"}),
			node("b", noGPUs, labelSet{PoolLabel: "y"}, corev1.Taint{Key: "CriticalAddonsOnly", Effect: corev1.TaintEffectNoSchedule})),
		"spot machines are a pool of their own, by the provider's node pool": of(
			node("a", eightGPUs, h100("cloud.google.com/gke-nodepool", "reserved"), gkeTaint),
			node("b", eightGPUs, h100("cloud.google.com/gke-nodepool", "spot"), gkeTaint, spotTaint)).
			make(
				ofGPUs("h100-80gb-hbm3-reserved", h100("cloud.google.com/gke-nodepool", "reserved"), []string{"a"}, gkeTaint),
				ofGPUs("h100-80gb-hbm3-spot", h100("cloud.google.com/gke-nodepool", "spot"), []string{"b"}, spotTaint, gkeTaint)),
		"one node under maintenance, or without its device plugin, stays in its pool": of(
			node("a", eightGPUs, h100(), gkeTaint),
			node("b", eightGPUs, h100(), gkeTaint, corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoExecute}),
			node("c", noGPUs, h100(), gkeTaint),
			node("d", eightGPUs, h100(), gkeTaint, corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule})).
			make(ofGPUs("h100-80gb-hbm3", h100(), []string{"a", "b", "c", "d"}, gkeTaint)),
		"MIG under the single strategy has a product of its own": of(
			node("a", eightGPUs, labelSet{ProductLabel: "NVIDIA-A100-SXM4-40GB"}),
			node("b", kit.Amounts("nvidia.com/gpu", "56"), labelSet{ProductLabel: "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", migConfigLabel: "all-1g.5gb"})).
			make(
				ofGPUs("a100-sxm4-40gb", labelSet{ProductLabel: "NVIDIA-A100-SXM4-40GB"}, []string{"a"}),
				pool{
					Name: "a100-sxm4-40gb-mig-1g-5gb", Nodes: []string{"b"}, Resources: whole, Slicing: MIG,
					Labels: labelSet{ProductLabel: "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb", migConfigLabel: "all-1g.5gb"},
				}),
		"MIG under the mixed strategy is told apart by MIG manager's label or by counts of slices": of(
			node("a", kit.Amounts("nvidia.com/mig-1g.10gb", "7"), h100(migConfigLabel, "all-1g.10gb")),
			node("b", kit.Amounts("nvidia.com/gpu", "4", "nvidia.com/mig-3g.40gb", "8"), h100("nvidia.com/mig-3g.40gb.count", "8")),
			node("c", eightGPUs, h100("nvidia.com/gpu.count", "8"))).
			make(
				ofGPUs("h100-80gb-hbm3-8", h100("nvidia.com/gpu.count", "8"), []string{"c"}),
				pool{
					Name: "h100-80gb-hbm3-mig-8", Labels: h100("nvidia.com/mig-3g.40gb.count", "8"), Nodes: []string{"b"},
					Resources: []corev1.ResourceName{Whole, "nvidia.com/mig-3g.40gb"}, Slicing: WholeGPUs,
				},
				pool{
					Name: "h100-80gb-hbm3-all-1g-10gb", Labels: h100(migConfigLabel, "all-1g.10gb"), Nodes: []string{"a"},
					Resources: []corev1.ResourceName{"nvidia.com/mig-1g.10gb"}, Slicing: MIG,
				}),
		"slices of GKE are named by their size, whatever others are there": of(gkeSlices("b", "3g.40gb")).make(gkePool("b", "3g.40gb", "h100-80gb-3g-40gb")),
		"slices of two sizes on GKE": of(gkeSlices("a", "1g.10gb"), gkeSlices("b", "3g.40gb")).
			make(gkePool("a", "1g.10gb", "h100-80gb-1g-10gb"), gkePool("b", "3g.40gb", "h100-80gb-3g-40gb")),
		"shared GPUs, renamed or not": of(
			node("a", kit.Amounts("nvidia.com/gpu", "40"), labelSet{ProductLabel: "NVIDIA-L4-SHARED", sharingLabel: "time-slicing", replicasLabel: "10"}),
			node("b", kit.Amounts("nvidia.com/gpu.shared", "20"), labelSet{ProductLabel: "NVIDIA-L40S", sharingLabel: "mps", replicasLabel: "5"})).
			make(
				pool{
					Name: "l4-shared-time-slicing-10", Nodes: []string{"a"}, Resources: whole, Slicing: Shared,
					Labels: labelSet{ProductLabel: "NVIDIA-L4-SHARED", sharingLabel: "time-slicing", replicasLabel: "10"},
				},
				pool{
					Name: "l40s-shared-mps-5", Nodes: []string{"b"}, Resources: []corev1.ResourceName{"nvidia.com/gpu.shared"}, Slicing: Shared,
					Labels: labelSet{ProductLabel: "NVIDIA-L40S", sharingLabel: "mps", replicasLabel: "5"},
				}),
		"without GPU Feature Discovery, the provider's labels do": of(
			node("a", eightGPUs, labelSet{"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, gkeTaint),
			node("b", eightGPUs, labelSet{"node.kubernetes.io/instance-type": "Standard_ND96isr_H100_v5", "kubernetes.azure.com/agentpool": "gpu"}, azureTaint),
			node("c", noGPUs, labelSet{"node.kubernetes.io/instance-type": "Standard_D8s_v5", "kubernetes.azure.com/agentpool": "nodepool1"})).
			make(
				pool{Name: "cpu-nodepool1", Labels: labelSet{"kubernetes.azure.com/agentpool": "nodepool1"}, Nodes: []string{"c"}},
				ofGPUs("h100-80gb", labelSet{"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, []string{"a"}, gkeTaint),
				ofGPUs("standard-nd96isr-h100-v5", labelSet{"node.kubernetes.io/instance-type": "Standard_ND96isr_H100_v5"}, []string{"b"}, azureTaint)),
		"names that would be the same are numbered": of(node("a", eightGPUs, labelSet{ProductLabel: "NVIDIA-L4"}), node("b", eightGPUs, labelSet{ProductLabel: "L4"})).
			make(
				ofGPUs("l4", labelSet{ProductLabel: "L4"}, []string{"b"}),
				ofGPUs("l4-2", labelSet{ProductLabel: "NVIDIA-L4"}, []string{"a"})),
		"long names that are the same up to their end are numbered": of(
			node("a", eightGPUs, h100(machineSet, longName+"-a")),
			node("b", eightGPUs, h100(machineSet, longName+"-b"), teamTaint)).
			make(
				ofGPUs("h100-80gb-hbm3-"+longName[:46]+"-2", h100(machineSet, longName+"-b"), []string{"b"}, teamTaint),
				ofGPUs("h100-80gb-hbm3-"+longName[:48], h100(machineSet, longName+"-a"), []string{"a"})),
	}, func(t *testing.T, tc split) {
		for _, order := range []string{"as given", "the other way"} {
			got := expect.Each(Pools(tc.nodes), func(p Pool) pool {
				names := expect.Each(p.Nodes, func(n *corev1.Node) string { return n.Name })
				return pool{p.Name, p.NodeLabels, names, p.Resources, p.Slicing, p.Taints}
			})
			expect.Same(t, fmt.Sprintf("Nodes %s: unexpected pools", order), tc.want, got, cmpopts.EquateEmpty())
			slices.Reverse(tc.nodes)
		}
	})
}

func TestTolerated(t *testing.T) {
	taint := func(key, value string, effect corev1.TaintEffect) corev1.Taint {
		return corev1.Taint{Key: key, Value: value, Effect: effect}
	}
	type row struct {
		taint corev1.Taint
		name  corev1.ResourceName
		want  bool
	}
	expect.Rows(t, map[string]row{
		"GKE's, for whole GPUs":                  {taint: gkeTaint, name: Whole, want: true},
		"the same on EKS, with another value":    {taint: taint("nvidia.com/gpu", "true", "NoSchedule"), name: Whole, want: true},
		"without a value, as OpenShift's docs":   {taint: taint("nvidia.com/gpu", "", "NoSchedule"), name: "nvidia.com/gpu.shared", want: true},
		"GKE's, for slices":                      {taint: gkeTaint, name: "nvidia.com/mig-1g.10gb", want: true},
		"the slice's own name":                   {taint: taint("nvidia.com/mig-1g.10gb", "", "NoSchedule"), name: "nvidia.com/mig-1g.10gb", want: true},
		"another slice's name":                   {taint: taint("nvidia.com/mig-1g.10gb", "", "NoSchedule"), name: Whole},
		"one that also drives running pods away": {taint: taint("nvidia.com/gpu", "true", "NoExecute"), name: Whole},
		"Azure's":                                {taint: azureTaint, name: Whole},
		"a spot pool's":                          {taint: spotTaint, name: Whole},
	}, func(t *testing.T, tc row) {
		expect.Same(t, "Unexpected answer whether it is tolerated", tc.want, Tolerated(tc.taint, tc.name))
	})
}

func TestLevels(t *testing.T) {
	const host = "kubernetes.io/hostname"
	levels := func(labels []labelSet) []string {
		return Levels(expect.Each(labels, func(l labelSet) *corev1.Node { return new(node("", nil, l)) }))
	}
	expect.Answers(t, levels, map[string]expect.Row[[]labelSet, []string]{
		"no nodes":               {},
		"the node itself":        {In: []labelSet{{host: "a"}, {host: "b"}}, Want: []string{host}},
		"a clique within a zone": {In: []labelSet{{host: "a", CliqueLabel: "x.1", "topology.kubernetes.io/zone": "z"}}, Want: []string{"topology.kubernetes.io/zone", CliqueLabel, host}},
		"a label that one node lacks is no level": {In: []labelSet{{host: "a", CliqueLabel: "x.1"}, {host: "b"}}, Want: []string{host}},
	})
}

func containers(all ...corev1.ResourceRequirements) []corev1.Container {
	return expect.Each(all, func(r corev1.ResourceRequirements) corev1.Container { return corev1.Container{Resources: r} })
}

func requests(amounts ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Requests: kit.Amounts(amounts...)}
}

func limits(amounts ...string) corev1.ResourceRequirements {
	return corev1.ResourceRequirements{Limits: kit.Amounts(amounts...)}
}

func TestIsResource(t *testing.T) {
	expect.Answers(t, IsResource, map[string]expect.Row[corev1.ResourceName, bool]{
		"a whole GPU":                             {In: "nvidia.com/gpu", Want: true},
		"a renamed shared GPU":                    {In: "nvidia.com/gpu.shared", Want: true},
		"a MIG profile":                           {In: "nvidia.com/mig-1g.10gb", Want: true},
		"a MIG profile with an attribute":         {In: "nvidia.com/mig-1g.10gb.me", Want: true},
		"a shared MIG profile":                    {In: "nvidia.com/mig-3g.40gb.shared", Want: true},
		"a name that only starts like a GPU":      {In: "nvidia.com/gpu-foo"},
		"a name that only starts like MIG":        {In: "nvidia.com/migx"},
		"a MIG prefix without a profile":          {In: "nvidia.com/mig-"},
		"a MIG prefix with only the suffix":       {In: "nvidia.com/mig-.shared"},
		"a doubled suffix":                        {In: "nvidia.com/gpu.shared.shared"},
		"another vendor":                          {In: "amd.com/gpu"},
		"another vendor's MIG":                    {In: "amd.com/mig-1g.10gb"},
		"the quota form of a whole GPU":           {In: "requests.nvidia.com/gpu"},
		"a GPU without a domain":                  {In: "gpu"},
		"NVIDIA's domain without a resource":      {In: "nvidia.com/"},
		"a core resource":                         {In: corev1.ResourceCPU},
		"upper case, which is another name":       {In: "nvidia.com/GPU"},
		"the empty name, as of an unset resource": {In: ""},
	})
}

func TestResources(t *testing.T) {
	of := func(pod corev1.PodSpec) []corev1.ResourceName { return Resources(&pod) }
	both := corev1.ResourceRequirements{Requests: kit.Amounts("nvidia.com/gpu", "0"), Limits: kit.Amounts("nvidia.com/gpu", "1")}
	expect.Answers(t, of, map[string]expect.Row[corev1.PodSpec, []corev1.ResourceName]{
		"no containers":                 {},
		"no GPUs":                       {In: corev1.PodSpec{Containers: containers(requests("cpu", "1", "amd.com/gpu", "1"))}},
		"limits only":                   {In: corev1.PodSpec{Containers: containers(limits("nvidia.com/gpu", "8"))}, Want: []corev1.ResourceName{"nvidia.com/gpu"}},
		"requests only":                 {In: corev1.PodSpec{Containers: containers(requests("nvidia.com/gpu", "8"))}, Want: []corev1.ResourceName{"nvidia.com/gpu"}},
		"init containers only":          {In: corev1.PodSpec{InitContainers: containers(limits("nvidia.com/mig-1g.10gb", "1"))}, Want: []corev1.ResourceName{"nvidia.com/mig-1g.10gb"}},
		"zero amounts":                  {In: corev1.PodSpec{InitContainers: containers(limits("nvidia.com/gpu.shared", "0")), Containers: containers(requests("nvidia.com/gpu", "0"))}},
		"a zero request beside a limit": {In: corev1.PodSpec{Containers: containers(both)}, Want: []corev1.ResourceName{"nvidia.com/gpu"}},
		"the same resource in many places stands once, and all are sorted": {In: corev1.PodSpec{
			InitContainers: containers(limits("nvidia.com/mig-3g.40gb", "1", "nvidia.com/gpu", "1")),
			Containers:     containers(requests("nvidia.com/mig-3g.40gb", "2", "nvidia.com/gpu.shared", "1"), limits("nvidia.com/mig-1g.10gb", "1", "nvidia.com/gpu", "1", "memory", "1Gi")),
		}, Want: []corev1.ResourceName{"nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"}},
	}, cmpopts.EquateEmpty())
}

func TestTolerations(t *testing.T) {
	exists := func(key string) corev1.Toleration {
		return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
	}
	of := func(asked corev1.ResourceRequirements) []corev1.Toleration {
		return Tolerations(&corev1.PodSpec{Containers: containers(asked)})
	}
	expect.Answers(t, of, map[string]expect.Row[corev1.ResourceRequirements, []corev1.Toleration]{
		"no GPUs, no tolerations": {In: limits("cpu", "1")},
		"whole GPUs have one key": {In: limits("nvidia.com/gpu", "8"), Want: []corev1.Toleration{exists("nvidia.com/gpu")}},
		"a MIG profile brings the provider's key and its own": {In: limits("nvidia.com/mig-1g.10gb", "1"),
			Want: []corev1.Toleration{exists("nvidia.com/gpu"), exists("nvidia.com/mig-1g.10gb")}},
		"shared GPUs too": {In: limits("nvidia.com/gpu.shared", "1"), Want: []corev1.Toleration{exists("nvidia.com/gpu"), exists("nvidia.com/gpu.shared")}},
		"whole and MIG together have no key twice": {In: limits("nvidia.com/mig-1g.10gb", "1", "nvidia.com/gpu", "1"),
			Want: []corev1.Toleration{exists("nvidia.com/gpu"), exists("nvidia.com/mig-1g.10gb")}},
	})
}
