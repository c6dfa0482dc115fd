// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
)

const a100 = "NVIDIA-A100-SXM4-80GB"

var teamTaint = corev1.Taint{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}

func TestPools(t *testing.T) {
	const quotaPath = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"
	above := func(commands ...string) Finding {
		return found(Warning, "QuotaAboveNodes", "ResourceFlavor h100", commands...)
	}
	quota := func(kind, name, value string) string { return patchCommand(kind, name, "replace", quotaPath, value) }
	withoutNodes := func(name string, commands ...string) Finding {
		return Finding{Severity: Warning, Reason: "FlavorWithoutNodes", Object: "ResourceFlavor " + name, Commands: commands}
	}
	withoutFlavor := func(node string) Finding {
		return Finding{Severity: Warning, Reason: "NodesWithoutFlavor", Object: "Node " + node, Commands: []string{generatePools}}
	}
	eachFinds(t, map[string]broken{
		"a flavor that no node has, with quota": on(func(f *Facts) {
			f.Flavors = append(f.Flavors, flavor("b200", "NVIDIA-B200"))
			f.ClusterQueues = append(f.ClusterQueues, clusterQueue("more", "b200", "8"))
		}).finds(withoutNodes("b200", generatePools)),
		"a flavor that no node has, without quota": on(func(f *Facts) { f.Flavors = append(f.Flavors, flavor("b200", "NVIDIA-B200")) }),
		"a flavor whose label is misspelled": on(func(f *Facts) { f.Flavors[0].Spec.NodeLabels[gpu.ProductLabel] = "H100" }).
			finds(withoutNodes("h100", `kubectl patch resourceflavor h100 --type=json -p '[{"op":"replace","path":"/spec/nodeLabels","value":{"nvidia.com/gpu.product":"NVIDIA-H100-80GB-HBM3"}}]'`),
				withoutFlavor("gpu-0")),
		"a misspelled flavor that may mean either of two pools": on(func(f *Facts) {
			f.Flavors[0].Spec.NodeLabels[gpu.ProductLabel] = "H100"
			f.Nodes = append(f.Nodes, gpuNode("other-0", a100))
		}).finds(withoutNodes("h100", generatePools), withoutFlavor("gpu-0"), withoutFlavor("other-0")),
		"a misspelled flavor with a topology, which cannot change its labels": on(func(f *Facts) {
			f.Flavors[0].Spec.NodeLabels[gpu.ProductLabel] = "H100"
			f.Flavors[0].Spec.TopologyName = new(kueue.TopologyReference("racks"))
		}).finds(withoutNodes("h100", generatePools), withoutFlavor("gpu-0")),
		"GPU nodes in no flavor": on(func(f *Facts) { f.Nodes = append(f.Nodes, gpuNode("other-0", a100), gpuNode("other-1", a100)) }).
			finds(withoutFlavor("other-0")),
		"GPU nodes in a flavor for other resources": on(func(f *Facts) {
			f.Nodes = append(f.Nodes, gpuNode("other-0", a100))
			f.Flavors = append(f.Flavors, flavor("cpus", a100))
			f.ClusterQueues = append(f.ClusterQueues, clusterQueue("cpus", "cpus", "4"))
			f.ClusterQueues[1].Spec.ResourceGroups[0].Flavors[0].Resources[0].Name = corev1.ResourceCPU
		}).finds(withoutFlavor("other-0")),
		"nodes without GPUs": on(func(f *Facts) { f.Nodes = append(f.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cpu-0"}}) }),
		"no flavor at all":   on(func(f *Facts) { f.Flavors, f.ClusterQueues, f.LocalQueues = nil, nil, nil }),
		"a quota above the nodes": on(func(f *Facts) { f.ClusterQueues[0] = clusterQueue("gpus", "h100", "24") }).
			finds(above(quota("clusterqueue", "gpus", "16"))),
		"what is reserved stays, and the others give way": on(func(f *Facts) {
			f.ClusterQueues = append(f.ClusterQueues, clusterQueue("more", "h100", "8"))
			f.ClusterQueues[0].Status.FlavorsReservation = []kueue.FlavorUsage{{Name: "h100", Resources: []kueue.ResourceUsage{{Name: "nvidia.com/gpu", Total: resource.MustParse("14")}}}}
		}).finds(above(quota("clusterqueue", "gpus", "14"), quota("clusterqueue", "more", "2"))),
		"nobody is left with nothing, also where that does not do": on(func(f *Facts) {
			f.ClusterQueues = append(f.ClusterQueues, clusterQueue("more", "h100", "8"))
			f.ClusterQueues[0].Status.FlavorsReservation = []kueue.FlavorUsage{{Name: "h100", Resources: []kueue.ResourceUsage{{Name: "nvidia.com/gpu", Total: resource.MustParse("16")}}}}
		}).finds(above(quota("clusterqueue", "more", "1"))),
		"what one holds now does not make its share larger": on(func(f *Facts) {
			f.ClusterQueues = append(f.ClusterQueues, clusterQueue("more", "h100", "16"))
			f.ClusterQueues[0].Status.FlavorsReservation = []kueue.FlavorUsage{{Name: "h100", Resources: []kueue.ResourceUsage{{Name: "nvidia.com/gpu", Total: resource.MustParse("6")}}}}
		}).finds(above(quota("clusterqueue", "gpus", "8"), quota("clusterqueue", "more", "8"))),
		"two quotas above the nodes: both give way": on(func(f *Facts) { f.ClusterQueues = append(f.ClusterQueues, clusterQueue("more", "h100", "8")) }).
			finds(above(quota("clusterqueue", "gpus", "11"), quota("clusterqueue", "more", "5"))),
		"a quota of a cohort counts, and several give way": on(func(f *Facts) {
			f.Nodes = f.Nodes[:1]
			f.Cohorts = []kueue.Cohort{{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: kueue.CohortSpec{
				ResourceGroups: clusterQueue("", "h100", "10").Spec.ResourceGroups}}}
		}).finds(above(quota("clusterqueue", "gpus", "5"), quota("cohort", "all", "3"))),
		"quotas of flavors that share nodes count together": on(func(f *Facts) {
			f.Flavors = append(f.Flavors, flavor("any", ""), flavor("same", h100))
			f.Flavors[1].Spec.NodeLabels = nil
			f.ClusterQueues = append(f.ClusterQueues, clusterQueue("more", "same", "4"), clusterQueue("any", "any", "2"))
		}).finds(above(quota("clusterqueue", "gpus", "12"), quota("clusterqueue", "any", "1"), quota("clusterqueue", "more", "3"))),
		"a flavor that is in excess by itself comes first": on(func(f *Facts) {
			f.Flavors = append(f.Flavors, flavor("same", h100))
			f.ClusterQueues = append(f.ClusterQueues, clusterQueue("more", "same", "20"))
		}).warns("QuotaAboveNodes", "ResourceFlavor same", quota("clusterqueue", "more", "16")),
		"flavors that share nodes, with quotas for all of them": on(func(f *Facts) {
			f.Flavors = append(f.Flavors, flavor("same", h100))
			f.ClusterQueues = []kueue.ClusterQueue{clusterQueue("gpus", "h100", "8"), clusterQueue("more", "same", "8")}
		}),
		"a quota of what no node has": on(func(f *Facts) {
			quotas := &f.ClusterQueues[0].Spec.ResourceGroups[0].Flavors[0].Resources
			*quotas = append(*quotas, kueue.ResourceQuota{Name: "example.com/credits", NominalQuota: resource.MustParse("100")})
		}),
		"a taint that Kueue does not know of": on(func(f *Facts) { f.Nodes[1] = gpuNode("gpu-1", h100, teamTaint) }).
			fails("TaintNotTolerated", "ResourceFlavor h100",
				`kubectl patch resourceflavor h100 --type=json -p '[{"op":"add","path":"/spec/tolerations","value":[{"key":"team","operator":"Exists","effect":"NoSchedule"}]}]'`),
		"a taint under a topology": on(func(f *Facts) {
			f.Nodes[1] = gpuNode("gpu-1", h100, teamTaint)
			f.Flavors[0].Spec.TopologyName = new(kueue.TopologyReference("racks"))
		}).fails("TaintNotTolerated", "ResourceFlavor h100",
			"kubectl taint nodes -l 'nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3' team:NoSchedule-"),
		"a taint that the flavor tolerates": on(func(f *Facts) {
			f.Nodes[1] = gpuNode("gpu-1", h100, teamTaint)
			f.Flavors[0].Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}
		}),
		"a taint that a rule of the manager's configuration is for": on(func(f *Facts) {
			f.Nodes[1] = gpuNode("gpu-1", h100, teamTaint)
			f.managerConfig("tolerationRules: [{resources: [nvidia.com/*], tolerations: [{key: team, operator: Exists}]}]")
		}),
		"a taint that the flavor declares": on(func(f *Facts) {
			f.Nodes[1] = gpuNode("gpu-1", h100, teamTaint)
			f.Flavors[0].Spec.NodeTaints = []corev1.Taint{teamTaint}
		}),
		"a cordoned node": on(func(f *Facts) {
			f.Nodes[1] = gpuNode("gpu-1", h100, corev1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule})
		}),
	})
}
