// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var teamTaint = corev1.Taint{Key: "team", Value: "a", Effect: corev1.TaintEffectNoSchedule}

func TestPools(t *testing.T) {
	const quotaPath = "/spec/resourceGroups/0/flavors/0/resources/0/nominalQuota"
	above := func(commands ...string) Finding {
		return found(Warning, "QuotaAboveNodes", "ResourceFlavor h100", commands...)
	}
	quota := func(kind, name, value string) string { return patchCommand(kind, name, "replace", quotaPath, value) }
	withoutNodes := func(name string, commands ...string) Finding {
		return found(Warning, "FlavorWithoutNodes", "ResourceFlavor "+name, commands...)
	}
	withoutFlavor := func(node string) Finding { return found(Warning, "NodesWithoutFlavor", "Node "+node, generatePools) }
	// Each adds to what a healthy installation has, or changes the first flavor or queue.
	flavors := func(all ...kueue.ResourceFlavor) func(*Facts) {
		return func(f *Facts) { f.Flavors = append(f.Flavors, all...) }
	}
	queues := func(all ...kueue.ClusterQueue) func(*Facts) {
		return func(f *Facts) { f.ClusterQueues = append(f.ClusterQueues, all...) }
	}
	nodes := func(all ...corev1.Node) func(*Facts) { return func(f *Facts) { f.Nodes = append(f.Nodes, all...) } }
	reserved := func(gpus string) func(*Facts) {
		return func(f *Facts) {
			f.ClusterQueues[0].Status.FlavorsReservation = []kueue.FlavorUsage{{Name: "h100", Resources: []kueue.ResourceUsage{{Name: kit.GPU, Total: resource.MustParse(gpus)}}}}
		}
	}
	misspelled := func(f *Facts) { f.Flavors[0].Spec.NodeLabels[gpu.ProductLabel] = "H100" }
	racked := func(f *Facts) { f.Flavors[0].Spec.TopologyName = new(kueue.TopologyReference("racks")) }
	nodesMade := func(f *Facts) {
		f.AdmissionChecks = []kueue.AdmissionCheck{{ObjectMeta: metav1.ObjectMeta{Name: "make"}, Spec: kueue.AdmissionCheckSpec{ControllerName: kueue.ProvisioningRequestControllerName},
			Status: kueue.AdmissionCheckStatus{Conditions: []metav1.Condition{{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue}}}}}
		last := &f.ClusterQueues[len(f.ClusterQueues)-1]
		last.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "make"}}}
	}
	oneTainted := func(f *Facts) { f.Nodes[1] = gpuNode("gpu-1", kit.H100, teamTaint) }
	tainted := func(f *Facts) {
		f.Nodes = []corev1.Node{gpuNode("gpu-0", kit.H100, teamTaint), gpuNode("gpu-1", kit.H100, teamTaint)}
	}
	eachFinds(t, map[string]broken{
		"a flavor that no node has, with quota": on(flavors(flavor("b200", "NVIDIA-B200")), queues(clusterQueue("more", "b200", "8"))).
			finds(withoutNodes("b200", generatePools)),
		"a flavor that no node has, without quota":                   on(flavors(flavor("b200", "NVIDIA-B200"))),
		"a flavor that no node has, whose nodes are made on request": on(flavors(flavor("b200", "NVIDIA-B200")), queues(clusterQueue("more", "b200", "8")), nodesMade),
		"a flavor whose label is misspelled": on(misspelled).
			finds(withoutNodes("h100", `kubectl patch resourceflavor h100 --type=json -p '[{"op":"replace","path":"/spec/nodeLabels","value":{"nvidia.com/gpu.product":"NVIDIA-H100-80GB-HBM3"}}]'`),
				withoutFlavor("gpu-0")),
		"a misspelled flavor that may mean either of two pools": on(misspelled, nodes(gpuNode("other-0", kit.A100))).
			finds(withoutNodes("h100", generatePools), withoutFlavor("gpu-0"), withoutFlavor("other-0")),
		"a misspelled flavor with a topology, which cannot change its labels": on(misspelled, racked).finds(withoutNodes("h100", generatePools), withoutFlavor("gpu-0")),
		"GPU nodes in no flavor": on(nodes(gpuNode("other-0", kit.A100), gpuNode("other-1", kit.A100))).finds(withoutFlavor("other-0")),
		"GPU nodes in a flavor for other resources": on(nodes(gpuNode("other-0", kit.A100)), flavors(flavor("cpus", kit.A100)), queues(*kit.ClusterQueue("cpus", kit.Quota{Flavor: "cpus", Of: "cpu", Amount: "4"}))).
			finds(withoutFlavor("other-0")),
		"GPU nodes in a flavor for what Kueue counts GPUs as": on(
			withKueue("integrations: {"+externalListed+"}\nresources: {transformations: [{input: nvidia.com/gpu, strategy: Replace, outputs: {example.com/credits: 2}}]}\n"),
			func(f *Facts) {
				f.ClusterQueues[0] = *kit.ClusterQueue("gpus", kit.Quota{Flavor: "h100", Of: "example.com/credits", Amount: "32"})
			}),
		"nodes without GPUs":      on(nodes(corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cpu-0"}})),
		"no flavor at all":        on(func(f *Facts) { f.Flavors, f.ClusterQueues, f.LocalQueues = nil, nil, nil }),
		"a quota above the nodes": on(func(f *Facts) { f.ClusterQueues[0] = clusterQueue("gpus", "h100", "24") }).finds(above(quota("clusterqueue", "gpus", "16"))),
		"a quota above the nodes, of which more are made on request": on(func(f *Facts) { f.ClusterQueues[0] = clusterQueue("gpus", "h100", "24") }, nodesMade),
		"a quota above the nodes beside one whose nodes are made": on(queues(clusterQueue("more", "h100", "8")), nodesMade, func(f *Facts) { f.ClusterQueues[0] = clusterQueue("gpus", "h100", "24") }).
			finds(above(quota("clusterqueue", "gpus", "16"))),
		"what is reserved stays, and the others give way": on(queues(clusterQueue("more", "h100", "8")), reserved("14")).
			finds(above(quota("clusterqueue", "gpus", "14"), quota("clusterqueue", "more", "2"))),
		"nobody is left with nothing, also where that does not do": on(queues(clusterQueue("more", "h100", "8")), reserved("16")).
			finds(above(quota("clusterqueue", "more", "1"))),
		"what is reserved is all that there is to lower": on(func(f *Facts) { f.Nodes = f.Nodes[:1] }, reserved("16")).
			finds(above("kubectl get workloads -A -o wide")),
		"what one holds now does not make its share larger": on(queues(clusterQueue("more", "h100", "16")), reserved("6")).
			finds(above(quota("clusterqueue", "gpus", "8"), quota("clusterqueue", "more", "8"))),
		"a quota of which more is lent than is to be left": on(func(f *Facts) {
			f.ClusterQueues[0] = clusterQueue("gpus", "h100", "24")
			f.ClusterQueues[0].Spec.ResourceGroups[0].Flavors[0].Resources[0].LendingLimit = new(resource.MustParse("20"))
		}).finds(above(patchCommand("clusterqueue", "gpus", "replace", strings.Replace(quotaPath, "nominalQuota", "lendingLimit", 1), "16"), quota("clusterqueue", "gpus", "16"))),
		"two quotas above the nodes: both give way": on(queues(clusterQueue("more", "h100", "8"))).
			finds(above(quota("clusterqueue", "gpus", "11"), quota("clusterqueue", "more", "5"))),
		"a quota of a cohort counts, and several give way": on(func(f *Facts) {
			f.Nodes = f.Nodes[:1]
			f.Cohorts = []kueue.Cohort{{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: kueue.CohortSpec{ResourceGroups: clusterQueue("", "h100", "10").Spec.ResourceGroups}}}
		}).finds(above(quota("clusterqueue", "gpus", "5"), quota("cohort", "all", "3"))),
		"quotas of flavors that share nodes count together": on(flavors(flavor("any", ""), flavor("same", kit.H100)), func(f *Facts) { f.Flavors[1].Spec.NodeLabels = nil },
			queues(clusterQueue("more", "same", "4"), clusterQueue("any", "any", "2"))).
			finds(above(quota("clusterqueue", "gpus", "12"), quota("clusterqueue", "any", "1"), quota("clusterqueue", "more", "3"))),
		"a flavor that is in excess by itself comes first": on(flavors(flavor("same", kit.H100)), queues(clusterQueue("more", "same", "20"))).
			warns("QuotaAboveNodes", "ResourceFlavor same", quota("clusterqueue", "more", "16")),
		"flavors that share nodes, with quotas for all of them": on(flavors(flavor("same", kit.H100)), func(f *Facts) {
			f.ClusterQueues = []kueue.ClusterQueue{clusterQueue("gpus", "h100", "8"), clusterQueue("more", "same", "8")}
		}),
		"a quota of what no node has": on(func(f *Facts) {
			quotas := &f.ClusterQueues[0].Spec.ResourceGroups[0].Flavors[0].Resources
			*quotas = append(*quotas, kueue.ResourceQuota{Name: "example.com/credits", NominalQuota: resource.MustParse("100")})
		}),
		"a quota of what a DeviceClass has, of which nodes do not tell": on(flavors(flavor("a100", kit.A100)), queues(clusterQueue("more", "a100", "8")), func(f *Facts) {
			f.Nodes = append(f.Nodes, *kit.ReadyNode("dra-0", map[string]string{gpu.ProductLabel: kit.A100}, "cpu", "96"))
			f.DeviceClasses = []resourcev1.DeviceClass{{Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new(string(kit.GPU))}}}
		}),
		"a quota of what no device plugin serves, of which nodes still tell": on(flavors(flavor("a100", kit.A100)), queues(clusterQueue("more", "a100", "8")), func(f *Facts) {
			f.Nodes = append(f.Nodes, *kit.ReadyNode("gone-0", map[string]string{gpu.ProductLabel: kit.A100}, "nvidia.com/gpu", "0"))
			f.DeviceClasses = []resourcev1.DeviceClass{{Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new(string(kit.GPU))}}}
		}).warns("QuotaAboveNodes", "ResourceFlavor a100", quota("clusterqueue", "more", "1")),
		"a taint that Kueue does not know of": on(tainted).fails("TaintNotTolerated", "ResourceFlavor h100",
			`kubectl patch resourceflavor h100 --type=json -p '[{"op":"add","path":"/spec/tolerations","value":[{"key":"team","operator":"Exists","effect":"NoSchedule"}]}]'`),
		"two taints that Kueue does not know of": on(tainted, func(f *Facts) {
			for n := range f.Nodes {
				f.Nodes[n].Spec.Taints = append(f.Nodes[n].Spec.Taints, corev1.Taint{Key: "zone", Effect: corev1.TaintEffectNoSchedule})
			}
		}).finds(found(Error, "TaintNotTolerated", "ResourceFlavor h100",
			`kubectl patch resourceflavor h100 --type=json -p '[{"op":"add","path":"/spec/tolerations","value":[{"key":"team","operator":"Exists","effect":"NoSchedule"}]}]'`),
			found(Error, "TaintNotTolerated", "ResourceFlavor h100",
				`kubectl patch resourceflavor h100 --type=json -p '[{"op":"add","path":"/spec/tolerations","value":[{"key":"team","operator":"Exists","effect":"NoSchedule"},{"key":"zone","operator":"Exists","effect":"NoSchedule"}]}]'`)),
		"a taint of some nodes, such as for maintenance": on(oneTainted).fails("TaintNotTolerated", "ResourceFlavor h100", "kubectl taint nodes gpu-1 team:NoSchedule-"),
		"a taint of some nodes under a topology":         on(oneTainted, racked).fails("TaintNotTolerated", "ResourceFlavor h100", "kubectl taint nodes gpu-1 team:NoSchedule-"),
		"a taint under a topology": on(tainted, racked).
			fails("TaintNotTolerated", "ResourceFlavor h100", "kubectl taint nodes -l 'nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3' team:NoSchedule-"),
		"a taint that the flavor tolerates": on(tainted, func(f *Facts) {
			f.Flavors[0].Spec.Tolerations = []corev1.Toleration{{Key: "team", Operator: corev1.TolerationOpExists}}
		}),
		"a taint that a rule of the manager's configuration is for": on(tainted, withManager("tolerationRules: [{resources: [nvidia.com/*], tolerations: [{key: team, operator: Exists}]}]")),
		"a taint that the flavor declares":                          on(tainted, func(f *Facts) { f.Flavors[0].Spec.NodeTaints = []corev1.Taint{teamTaint} }),
		"a cordoned node": on(func(f *Facts) {
			f.Nodes[1] = gpuNode("gpu-1", kit.H100, corev1.Taint{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoSchedule})
		}),
	})
}

func TestQuotaAboveCordonedNodes(t *testing.T) {
	f := with(t, func(f *Facts) { f.ClusterQueues[0] = clusterQueue("gpus", "h100", "24") }, func(f *Facts) { f.Nodes[1].Spec.Unschedulable = true })
	report := newReport(f)
	expect.Need(t, len(report.Findings) > 0, "Nothing found")
	expect.Same(t, "Unexpected problem", "Quotas promise 24 of nvidia.com/gpu, and the flavor's 2 nodes have 16, 8 of them on cordoned nodes (gpu-1).", report.Findings[0].Problem)
}
