// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/provenance"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// told is what a verdict comes down to.
type told struct {
	Flavor   string
	Fits     bool
	Assigned bool
	Messages []string
}

// tell has each flavor of each PodSet judged.
func (c changes) tell(verdicts ...told) row[[]told] { return row[[]told]{c, verdicts} }

func TestFlavors(t *testing.T) {
	maintenance := corev1.Taint{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule}
	h100, a100 := told{Flavor: "h100", Fits: true}, told{Flavor: "a100", Messages: []string{"ClusterQueue gpus has 16 GPUs at the most"}}
	skipped := func(message string) told { return told{Flavor: "h100", Messages: []string{message}} }
	warned := func(message string) told { return told{Flavor: "h100", Fits: true, Messages: []string{message}} }
	pod := func(change func(*corev1.PodSpec)) func(*scene) {
		return func(s *scene) { change(&s.Workload.Spec.PodSets[0].Template.Spec) }
	}
	a100Fits := told{Flavor: "a100", Fits: true}
	untopological := told{Flavor: "a100", Messages: []string{"the PodSet asks for a topology, and the flavor has none", a100.Messages[0]}}
	eachScene(t, "verdicts", map[string]row[[]told]{
		"room in the first, the second is too small": given().tell(h100, a100),
		"quota in use":                    given(taken("h100", 3)).tell(skipped("8 of 32 GPUs are free"), a100),
		"a smaller job that fits in both": given(func(s *scene) { s.Workload.Spec.PodSets[0].Count = 2 }).tell(h100, a100Fits),
		"a second replicated job finds what the first one leaves": given(taken("h100", 1), withPodSets(podSet("node", 2), podSet("launcher", 2))).
			tell(h100, a100Fits, skipped("8 of 32 GPUs are free"), a100Fits),
		"a second replicated job, with the first one more than there ever is": given(ofH100, withPodSets(podSet("launcher", 1), podSet("node", 4))).
			tell(h100, skipped("ClusterQueue gpus has 32 GPUs at the most")),
		"the borrowing limit, for ever": given(lent("16", "32", resource.NewQuantity(8, resource.DecimalSI), nil)).
			tell(skipped("ClusterQueue gpus has 16 GPUs of its own and may borrow no more than 8 GPUs, though cohort all has more")),
		"the borrowing limit, for now": given(taken("h100", 2), lent("16", "48", resource.NewQuantity(16, resource.DecimalSI), nil)).
			tell(skipped("ClusterQueue gpus has 16 GPUs of its own and may borrow no more than 16 GPUs, though cohort all has more")),
		"borrowed from the cohort": given(lent("0", "32", nil, nil)).tell(h100),
		"a lending limit":          given(lent("0", "32", nil, resource.NewQuantity(8, resource.DecimalSI))).tell(skipped("ClusterQueue gpus has 8 GPUs at the most")),
		"a taint of the flavor": given(func(s *scene) { s.inventory.Flavors[0].Spec.NodeTaints = []corev1.Taint{maintenance} }).
			tell(skipped("taint maintenance:NoSchedule of the flavor is not tolerated"), a100),
		"a taint that the flavor itself tolerates": given(func(s *scene) {
			s.inventory.Flavors[0].Spec.NodeTaints = []corev1.Taint{maintenance}
			s.inventory.Flavors[0].Spec.Tolerations = []corev1.Toleration{{Key: "maintenance", Operator: corev1.TolerationOpExists}}
		}).tell(h100, a100),
		"a taint of all nodes that the flavor does not name": given(ofH100, func(s *scene) {
			for i := range s.inventory.Nodes {
				s.inventory.Nodes[i].Spec.Taints = []corev1.Taint{maintenance}
			}
		}).tell(warned("taint maintenance:NoSchedule of the flavor's nodes is not tolerated: Kueue does not look at that, so pods stay Pending")),
		"nodes that are cordoned or not ready": given(ofH100, func(s *scene) {
			for i, key := range []string{corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable, corev1.TaintNodeNotReady, corev1.TaintNodeUnschedulable} {
				s.inventory.Nodes[i].Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffectNoSchedule}}
			}
		}).tell(warned("the flavor's nodes that would do are cordoned or not ready: Kueue does not look at that, so pods stay Pending")),
		"nodes under pressure, and one that is for others whatever its state": given(ofH100, func(s *scene) {
			for i := range s.inventory.Nodes {
				s.inventory.Nodes[i].Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeDiskPressure, Effect: corev1.TaintEffectNoSchedule}}
			}
			s.inventory.Nodes[3].Spec.Taints = append(s.inventory.Nodes[3].Spec.Taints, maintenance)
		}).tell(warned("the flavor's nodes that would do are tainted with node.kubernetes.io/disk-pressure: Kueue does not look at that, so pods stay Pending")),
		"a cordoned node beside others": given(ofH100, cordoned(0)).tell(h100),
		"the only node that is large enough is cordoned": given(ofH100, cordoned(3), pod(func(p *corev1.PodSpec) { p.Containers[0].Resources = kit.GPUResources("16") }), func(s *scene) {
			s.Workload.Spec.PodSets[0].Count = 1
			s.inventory.Nodes[3].Status.Allocatable[kit.GPU] = resource.MustParse("16")
		}).tell(warned("the flavor's nodes that would do are cordoned: Kueue does not look at that, so pods stay Pending")),
		"a pod larger than any node, cordoned or not": given(ofH100, cordoned(3), pod(func(p *corev1.PodSpec) { p.Containers[0].Resources = kit.GPUResources("16") }), func(s *scene) { s.Workload.Spec.PodSets[0].Count = 1 }).
			tell(warned("a pod asks for 16 GPUs, and the largest node of the flavor, h100-0, has 8: Kueue does not look at that, so pods stay Pending")),
		"a node selector for another flavor, with its owner": given(ofH100, pod(func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{"pool": "a100", "disk": "fast"} }), func(s *scene) {
			byRuntime := provenance.Setting{Source: provenance.Source{Kind: provenance.Runtime}}
			s.Fields = []provenance.Field{{Job: "node", Path: "spec.template.spec.nodeSelector[pool]", Setting: byRuntime}}
		}).tell(skipped("node selector pool=a100 of runtime torch asks for other nodes than the flavor's (pool=h100)")),
		"a node selector that no node has": given(pod(func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{"disk": "fast"} }), taken("a100", 2)).
			tell(warned("node selector disk=fast matches no node of the flavor: Kueue does not look at that, so pods stay Pending"),
				told{Flavor: "a100", Messages: []string{"node selector disk=fast matches no node of the flavor: Kueue does not look at that, so pods stay Pending", a100.Messages[0]}}),
		"a node selector of the RuntimeClass that no node has": given(ofH100, pod(func(p *corev1.PodSpec) { p.RuntimeClassName = new("kata") }), func(s *scene) {
			s.inventory.RuntimeClasses = []nodev1.RuntimeClass{{ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"sandbox": "kata"}}}}
		}).tell(warned("RuntimeClass kata wants nodes with sandbox=kata, and no node of the flavor is so: Kueue does not look at that, so pods stay Pending")),
		"a node selector of the RuntimeClass that the flavor's nodes have": given(ofH100, pod(func(p *corev1.PodSpec) { p.RuntimeClassName = new("kata") }), func(s *scene) {
			s.inventory.RuntimeClasses = []nodev1.RuntimeClass{{ObjectMeta: metav1.ObjectMeta{Name: "kata"}, Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"rack": "h100-rack-0"}}}}
		}).tell(h100),
		"an affinity to other nodes": given(pod(func(p *corev1.PodSpec) {
			p.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "pool", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"h100"}}}}},
			}}}
		})).tell(skipped("its node affinity asks for other nodes than the flavor's (pool=h100)"), a100),
		"a flavor without nodes": given(withoutH100).
			tell(warned("no node has the flavor's labels pool=h100: Kueue does not look at that, so pods stay Pending"), a100),
		"a flavor without nodes, of jobs that run in other clusters": given(withoutH100, checkedBy(kueue.MultiKueueControllerName)).tell(h100, a100),
		"a flavor without nodes, which are made on request":          given(withoutH100, checkedBy(kueue.ProvisioningRequestControllerName)).tell(h100, a100),
		"a flavor whose nodes were made on request and are gone": given(withoutH100, checkedBy(kueue.ProvisioningRequestControllerName), ofH100, placed).
			tell(told{Flavor: "h100", Fits: true, Assigned: true, Messages: []string{"no node has the flavor's labels pool=h100: Kueue does not look at that, so pods stay Pending"}}),
		"a flavor that does not exist": given(func(s *scene) { s.inventory.Flavors = s.inventory.Flavors[1:] }).
			tell(skipped("ResourceFlavor h100 does not exist"), a100Fits),
		"a resource that the ClusterQueue does not have": given(pod(func(p *corev1.PodSpec) {
			p.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Gi")}
		})).tell(told{Messages: []string{"ClusterQueue gpus has no quota for memory"}}, h100, a100),
		"a resource that the ClusterQueue does not have, and Kueue leaves out": given(asking(corev1.ResourceMemory, "64Gi"), counting(configapi.Resources{ExcludeResourcePrefixes: []string{"mem"}})).
			tell(h100, a100),
		"a resource that the ClusterQueue does not have, and Kueue asks of none": given(asking(corev1.ResourceMemory, "64Gi"), counting(configapi.Resources{QuotaCheckStrategy: new(configapi.QuotaCheckIgnoreUndeclared)})).
			tell(h100, a100),
		"a resource that Kueue counts as GPUs": given(ofH100, asking(corev1.ResourceMemory, "8"), counting(configapi.Resources{Transformations: []configapi.ResourceTransformation{
			{Input: corev1.ResourceMemory, Strategy: new(configapi.Replace), Outputs: corev1.ResourceList{kit.GPU: resource.MustParse("1")}},
		}})).tell(skipped("ClusterQueue gpus has 32 GPUs at the most")),
		"a job that asks for nothing, where pods are counted": given(ofH100, pod(func(p *corev1.PodSpec) { p.Containers[0].Resources = corev1.ResourceRequirements{} }), func(s *scene) {
			group := &s.inventory.ClusterQueues[0].Spec.ResourceGroups[0]
			group.CoveredResources[0], group.Flavors[0].Resources[0].Name = corev1.ResourcePods, corev1.ResourcePods
		}).tell(h100),
		"an admission check that nobody looks after": given(func(s *scene) {
			s.inventory.AdmissionChecks = []kueue.AdmissionCheck{activeCheck("budget"), {ObjectMeta: metav1.ObjectMeta{Name: "provision"}, Spec: kueue.AdmissionCheckSpec{ControllerName: "example.com/provision"}}}
			s.inventory.ClusterQueues[0].Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{
				{Name: "budget"}, {Name: "provision", OnFlavors: []kueue.ResourceFlavorReference{"h100"}},
			}}
		}).tell(skipped("admission check provision is not active: its controller example.com/provision has not answered"), a100Fits),
		"a topology that fits": given(topology(&kueue.PodSetTopologyRequest{Preferred: new("rack")})).tell(h100, untopological),
		"a topology that is too small": given(topology(&kueue.PodSetTopologyRequest{Required: new("rack")})).
			tell(skipped(`topology "racks" allows to fit only 2 out of 4 pod(s)`), untopological),
		"a level that the topology does not have": given(topology(&kueue.PodSetTopologyRequest{Required: new("block")})).
			tell(skipped("topology racks of the flavor has no level block, which the PodSet asks for"), untopological),
		"a flavor for topologies only": given(topology(nil)).
			tell(skipped("the flavor is for topology-aware scheduling only, which the PodSet does not ask for"), a100),
		"a topology all of whose nodes are cordoned": given(onlyTopologies, ofH100, cordoned(0, 1, 2, 3)).tell(skipped("the flavor's nodes that would do are cordoned")),
		"a topology whose quota is in use": given(onlyTopologies, taken("h100", 3)).
			tell(skipped("8 of 32 GPUs are free"), told{Flavor: "a100", Messages: []string{`topology "racks" allows to fit only 2 out of 4 pod(s)`, a100.Messages[0]}}),
		"a flavor that has nothing of what is asked": given(func(s *scene) {
			s.inventory.ClusterQueues[0] = clusterQueue("gpus", "", quota("cpu", "0"), quota("h100", "32"))
			s.inventory.Flavors = append(s.inventory.Flavors, flavor("cpu"))
		}).tell(told{Flavor: "cpu", Messages: []string{"ClusterQueue gpus has no quota of it for nvidia.com/gpu"}}, h100),
		"a ClusterQueue that is stopped":   given(func(s *scene) { s.inventory.ClusterQueues[0].Spec.StopPolicy = new(kueue.Hold) }).tell(h100, a100),
		"a job that has its quota":         given(admitted).tell(told{Flavor: "h100", Fits: true, Assigned: true}, a100),
		"a user who may not see Workloads": given(taken("h100", 4), unseenKind(inventory.Workloads)).tell(h100, a100),
	}, func(f *Facts) []told {
		return expect.Each(Flavors(f), func(v Verdict) told {
			return told{v.Flavor, v.Fits, v.Assigned, expect.Each(v.Reasons, func(r Reason) string { return r.Message })}
		})
	})
}

// withPodSets is the job of several replicated jobs.
func withPodSets(all ...kueue.PodSet) func(*scene) {
	return func(s *scene) { s.Workload.Spec.PodSets = all }
}

// asking has each pod ask for something beside its GPUs.
func asking(name corev1.ResourceName, amount string) func(*scene) {
	return func(s *scene) {
		s.Workload.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests[name] = resource.MustParse(amount)
	}
}

// counting has Kueue count by a configuration.
func counting(by configapi.Resources) func(*scene) {
	return func(s *scene) { s.Kueue = &configapi.Configuration{Resources: &by} }
}

// withoutH100 leaves flavor h100 without nodes.
func withoutH100(s *scene) { s.inventory.Nodes = s.inventory.Nodes[4:] }

// A flavor with a topology takes no change of its tolerations.
func TestRemedyOfATaint(t *testing.T) {
	maintenance := []corev1.Taint{{Key: "maintenance", Effect: corev1.TaintEffectNoSchedule}}
	declared := func(s *scene) { s.inventory.Flavors[0].Spec.NodeTaints = maintenance }
	undeclared := func(s *scene) {
		for n := range s.inventory.Nodes {
			s.inventory.Nodes[n].Spec.Taints = maintenance
		}
	}
	const job = "add a toleration of maintenance to replicated job node by the runtime or a patch"
	remedy := func(c changes, want string) row[string] { return row[string]{c, want} }
	eachScene(t, "remedy", map[string]row[string]{
		"of the flavor":                   remedy(given(ofH100, declared), "add a toleration of maintenance to spec.tolerations of ResourceFlavor h100, or to replicated job node by the runtime or a patch"),
		"of one with a topology":          remedy(given(ofH100, declared, topology(nil)), job),
		"of the nodes of one with levels": remedy(given(ofH100, undeclared, topology(nil)), job),
	}, func(f *Facts) string { return StateOf(f).Remedy })
}

// checkedBy has a controller check what gets quota.
func checkedBy(controller string) func(*scene) {
	return func(s *scene) {
		s.inventory.AdmissionChecks = []kueue.AdmissionCheck{activeCheck("check")}
		s.inventory.AdmissionChecks[0].Spec.ControllerName = controller
		s.inventory.ClusterQueues[0].Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "check"}}}
	}
}

// cordoned has nodes of h100 take no pods.
func cordoned(of ...int) func(*scene) {
	return func(s *scene) {
		for _, i := range of {
			s.inventory.Nodes[i].Spec.Unschedulable = true
			s.inventory.Nodes[i].Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
		}
	}
}

// topology adds two levels to flavor h100, of which the job asks for something.
func topology(request *kueue.PodSetTopologyRequest) func(*scene) {
	return func(s *scene) {
		s.inventory.Topologies = []kueue.Topology{*kit.Topology("racks", "rack", corev1.LabelHostname)}
		s.inventory.Flavors[0].Spec.TopologyName = new(kueue.TopologyReference("racks"))
		s.Workload.Spec.PodSets[0].TopologyRequest = request
	}
}

// onlyTopologies has all flavors have the levels of topology, of which the job asks for none.
func onlyTopologies(s *scene) {
	topology(nil)(s)
	s.inventory.Flavors[1].Spec.TopologyName = s.inventory.Flavors[0].Spec.TopologyName
}

// lent has ClusterQueue gpus in a cohort with a lender. Limits are of what the first borrows and the
// second lends, where there are any.
func lent(own, lenders string, borrowing, lending *resource.Quantity) func(*scene) {
	return func(s *scene) {
		s.inventory.ClusterQueues = []kueue.ClusterQueue{
			clusterQueue("gpus", "all", quota("h100", own)), clusterQueue("lender", "all", quota("h100", lenders)),
		}
		s.inventory.ClusterQueues[0].Spec.ResourceGroups[0].Flavors[0].Resources[0].BorrowingLimit = borrowing
		s.inventory.ClusterQueues[1].Spec.ResourceGroups[0].Flavors[0].Resources[0].LendingLimit = lending
	}
}

func TestAmounts(t *testing.T) {
	s := newScene(taken("h100", 1), lent("32", "16", nil, nil))
	want := []Amount{{Resource: kit.GPU, Requested: 32, Free: new(int64(40)), Quota: 32, Max: 48}}
	expect.Same(t, "Unexpected amounts", want, Flavors(s.facts(t))[0].Amounts)
}

// asksOf has a job of some nodes ask for something of the racks of flavor h100, which are two of 2 nodes, in a queue with quota for more.
func asksOf(nodes int32, request *kueue.PodSetTopologyRequest) func(*scene) {
	return func(s *scene) {
		topology(request)(s)
		s.inventory.ClusterQueues[0] = clusterQueue("gpus", "", quota("h100", "64"))
		s.Workload.Spec.PodSets[0].Count = nodes
	}
}

// busyRacks has a pod of nobody's on a node of each rack.
func busyRacks(s *scene) {
	for _, name := range []string{"h100-0", "h100-2"} {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "other"}, Spec: podSet("node", 1).Template.Spec}
		pod.Spec.NodeName, pod.Status.Phase = name, corev1.PodRunning
		s.inventory.Pods = append(s.inventory.Pods, pod)
	}
}

// TestStateOfTopologies expects advice that Kueue's own placement would take on empty nodes.
func TestStateOfTopologies(t *testing.T) {
	fits := func(asked, found string) string {
		return ", flavor h100: topology \"racks\" allows to fit only " + found + " out of " + asked + " pod(s)" + alone
	}
	const (
		waitsForNodes = "wait until nodes are back that are cordoned or not ready, or pods nearby have ended"
		otherwise     = " in the annotation of replicated job node: it does not fit on flavor h100 even when its nodes are empty"
		smaller       = "create the job again, since spec.trainer cannot change, and ask for fewer or smaller pods of replicated job node: they do not fit on flavor h100 with any topology request, even when its nodes are empty"
	)
	required := func(level string) *kueue.PodSetTopologyRequest { return &kueue.PodSetTopologyRequest{Required: &level} }
	eachScene(t, "state", map[string]row[State]{
		"nodes are cordoned": given(onlyTopologies, ofH100, cordoned(0, 1)).is(Waiting, string(Topology), waits+": needs 32 GPUs"+fits("4", "2"), waitsForNodes),
		"pods of others are in each rack": given(asksOf(2, required("rack")), busyRacks, func(s *scene) {
			s.inventory.Topologies[0].Spec.Levels = s.inventory.Topologies[0].Spec.Levels[:1]
		}).is(Waiting, string(Topology), waits+": needs 16 GPUs"+fits("2", "1"), "wait until pods nearby have ended"),
		"a wider level would do": given(asksOf(2, required(corev1.LabelHostname))).stuck(Waiting, string(Topology),
			waits+": needs 16 GPUs"+fits("2", "1"), "require rack, a wider level,"+otherwise),
		"no level is wide enough": given(asksOf(4, required("rack"))).stuck(Waiting, string(Topology),
			waits+": needs 32 GPUs"+fits("4", "2"), "prefer rack instead of requiring it"+otherwise),
		"preferred already": given(asksOf(5, &kueue.PodSetTopologyRequest{Preferred: new("rack")})).stuck(Waiting, string(Topology),
			waits+": needs 40 GPUs"+fits("5", "4"), smaller),
		"more than all nodes": given(asksOf(5, required("rack"))).stuck(Waiting, string(Topology), waits+": needs 40 GPUs"+fits("5", "2"), smaller),
	}, StateOf, cmpopts.IgnoreFields(State{}, "Since", "Cause"))
}
