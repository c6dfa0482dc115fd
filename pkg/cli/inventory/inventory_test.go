// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func node(name, pool, gpus string, change ...func(*corev1.Node)) corev1.Node {
	n := kit.ReadyNode(name, map[string]string{"pool": pool}, "nvidia.com/gpu", gpus)
	return *kit.With(n, change...)
}

func pod(node, gpus string, phase corev1.PodPhase) corev1.Pod {
	spec := kit.PodRequests("nvidia.com/gpu", gpus)
	spec.NodeName = node
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: node + gpus + string(phase)}, Spec: spec, Status: corev1.PodStatus{Phase: phase}}
}

func flavor(name string) kueue.ResourceFlavor { return *kit.PlainFlavor(name, "pool", name) }

func clusterQueue(name, cohort, nominal, reserved, borrowed string) kueue.ClusterQueue {
	cq := kit.ClusterQueue(name, kit.Quota{Flavor: "h100", GPUs: nominal})
	cq.Spec.CohortName = kueue.CohortReference(cohort)
	cq.Status.FlavorsReservation = []kueue.FlavorUsage{{Name: "h100", Resources: []kueue.ResourceUsage{
		{Name: kit.GPU, Total: resource.MustParse(reserved), Borrowed: resource.MustParse(borrowed)},
	}}}
	return *cq
}

func waiting(queue, gpus string, count int32) kueue.Workload {
	return *kit.Workload("team", queue+gpus, queue, time.Time{}, kit.PodSet("node", count, "nvidia.com/gpu", gpus))
}

func holding(wl kueue.Workload, cq string) kueue.Workload {
	wl.Name += "-holds"
	return *kit.With(&wl, kit.Assigned(cq, "h100"), kit.Is(kueue.WorkloadQuotaReserved, ""))
}

func localQueue(name, cq string) kueue.LocalQueue { return *kit.LocalQueue("team", name, cq) }

func names(nodes []*corev1.Node) []string {
	return expect.Each(nodes, func(n *corev1.Node) string { return n.Name })
}

func TestNodes(t *testing.T) {
	h100 := flavor("h100")
	i := &Inventory{
		Nodes: []corev1.Node{
			node("a", "h100", "8"),
			node("b", "h100", "8", func(n *corev1.Node) { n.Spec.Unschedulable = true }),
			node("c", "other", "4"),
		},
		Pods: []corev1.Pod{
			pod("a", "2", corev1.PodRunning), pod("a", "4", corev1.PodSucceeded), pod("b", "1", corev1.PodPending),
			pod("c", "4", corev1.PodRunning), pod("", "8", corev1.PodPending),
		},
		Flavors: []kueue.ResourceFlavor{h100},
	}
	picked := i.NodesOf(&h100)
	there, used := Allocatable(picked, kit.GPU), i.UsedOn(picked, kit.GPU, func(*corev1.Pod) bool { return true })
	got := map[string]any{
		"picked": names(picked), "unpicked": names(i.NodesOfNoFlavor()),
		"ready": []bool{Ready(picked[0]), Ready(picked[1]), Ready(&corev1.Node{})},
		"there": there.String(), "used": used.String(),
	}
	want := map[string]any{"picked": []string{"a", "b"}, "unpicked": []string{"c"}, "ready": []bool{true, false, false}, "there": "16", "used": "3"}
	expect.Same(t, "Unexpected nodes", want, got)
}

func TestQuotas(t *testing.T) {
	stopped := clusterQueue("a", "", "16", "0", "0")
	stopped.Spec.StopPolicy = ptr.To(kueue.Hold)
	limited := func(cq kueue.ClusterQueue, borrowing, lending string) kueue.ClusterQueue {
		q := &cq.Spec.ResourceGroups[0].Flavors[0].Resources[0]
		if borrowing != "" {
			q.BorrowingLimit = new(resource.MustParse(borrowing))
		}
		if lending != "" {
			q.LendingLimit = new(resource.MustParse(lending))
		}
		return cq
	}
	// amounts are free, borrowed and lent of each ClusterQueue.
	type amounts = map[kueue.ClusterQueueReference][3]string
	type row struct {
		queues []kueue.ClusterQueue
		holds  []kueue.Workload
		want   amounts
	}
	expect.Rows(t, map[string]row{
		"alone, free is what is not reserved": {queues: []kueue.ClusterQueue{clusterQueue("a", "", "16", "6", "0")},
			holds: []kueue.Workload{holding(waiting("q", "2", 3), "a")}, want: amounts{"a": {"10", "0", "0"}}},
		"in a cohort, what others have not used can be borrowed": {queues: []kueue.ClusterQueue{clusterQueue("a", "all", "16", "6", "0"), clusterQueue("b", "all", "8", "0", "0")},
			holds: []kueue.Workload{holding(waiting("q", "2", 3), "a")}, want: amounts{"a": {"18", "0", "0"}, "b": {"18", "0", "0"}}},
		"what is lent is missing for its owner": {queues: []kueue.ClusterQueue{clusterQueue("a", "all", "16", "22", "6"), clusterQueue("b", "all", "8", "0", "0")},
			holds: []kueue.Workload{holding(waiting("q", "22", 1), "a")}, want: amounts{"a": {"2", "6", "0"}, "b": {"2", "0", "6"}}},
		"limits on borrowing and lending hold": {queues: []kueue.ClusterQueue{
			limited(clusterQueue("a", "all", "16", "0", "0"), "2", ""), limited(clusterQueue("b", "all", "8", "0", "0"), "", "3"),
		}, want: amounts{"a": {"18", "0", "0"}, "b": {"24", "0", "0"}}},
		"a stopped ClusterQueue has nothing free": {queues: []kueue.ClusterQueue{stopped}, want: amounts{"a": {"0", "0", "0"}}},
		"quota taken away below what is held leaves nothing free, not less": {queues: []kueue.ClusterQueue{clusterQueue("a", "", "4", "6", "2")},
			holds: []kueue.Workload{holding(waiting("q", "2", 3), "a")}, want: amounts{"a": {"0", "2", "0"}}},
	}, func(t *testing.T, tc row) {
		i := &Inventory{Flavors: []kueue.ResourceFlavor{flavor("h100")}, ClusterQueues: tc.queues, Workloads: tc.holds}
		quotas := expect.Must(i.Quotas(t.Context()))(t)
		got := amounts{}
		for _, q := range quotas {
			got[q.ClusterQueue] = [3]string{q.Free.String(), q.Borrowed.String(), q.Lent.String()}
		}
		expect.Same(t, "Unexpected free, borrowed, lent", tc.want, got)
	})
}

func TestDemand(t *testing.T) {
	h100 := flavor("h100")
	elsewhere := waiting("q", "8", 1)
	elsewhere.Name = "elsewhere"
	elsewhere.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"pool": "a100"}
	limitOnly := waiting("q", "1", 1)
	container := &limitOnly.Spec.PodSets[0].Template.Spec.Containers[0].Resources
	container.Requests, container.Limits = nil, container.Requests
	inactive := waiting("q", "16", 1)
	inactive.Spec.Active = new(bool)
	i := &Inventory{
		Flavors:       []kueue.ResourceFlavor{h100},
		ClusterQueues: []kueue.ClusterQueue{clusterQueue("a", "", "16", "0", "0")},
		LocalQueues:   []kueue.LocalQueue{localQueue("q", "a"), localQueue("to-nowhere", "b")},
		Workloads: []kueue.Workload{
			waiting("q", "2", 3), limitOnly, elsewhere, inactive,
			waiting("to-nowhere", "4", 1), waiting("no-queue", "5", 1), holding(waiting("q", "8", 1), "a"),
		},
	}
	expect.Same(t, "Unexpected demand", resource.MustParse("7"), i.Demand(&h100, kit.GPU, nil))
	i.Workloads = append(i.Workloads, waiting("q", "9000000000000000", 2000))
	expect.Same(t, "Unexpected demand of one that asks for all there could be", int64(math.MaxInt64), ptr.To(i.Demand(&h100, kit.GPU, nil)).Value())
}

func TestRefuses(t *testing.T) {
	affinity := func(key, value string) *corev1.Affinity {
		return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}},
			}}},
		}}}
	}
	taint := corev1.Taint{Key: "team", Value: "vision", Effect: corev1.TaintEffectNoSchedule}
	toleration := corev1.Toleration{Key: "team", Operator: corev1.TolerationOpExists}
	type row struct {
		pod    corev1.PodSpec
		flavor kueue.ResourceFlavorSpec
		want   bool
	}
	expect.Rows(t, map[string]row{
		"nothing against it":                        {},
		"a selector for these nodes":                {pod: corev1.PodSpec{NodeSelector: map[string]string{"pool": "h100"}}},
		"a selector for others":                     {pod: corev1.PodSpec{NodeSelector: map[string]string{"pool": "a100"}}, want: true},
		"a selector that the flavor knows not":      {pod: corev1.PodSpec{NodeSelector: map[string]string{"zone": "a"}}},
		"an affinity for other nodes":               {pod: corev1.PodSpec{Affinity: affinity("pool", "a100")}, want: true},
		"an affinity that the flavor knows not":     {pod: corev1.PodSpec{Affinity: affinity("zone", "a")}},
		"an affinity without required terms":        {pod: corev1.PodSpec{Affinity: &corev1.Affinity{}}},
		"a taint that nobody tolerates":             {flavor: kueue.ResourceFlavorSpec{NodeTaints: []corev1.Taint{taint}}, want: true},
		"a taint that the pods tolerate":            {flavor: kueue.ResourceFlavorSpec{NodeTaints: []corev1.Taint{taint}}, pod: corev1.PodSpec{Tolerations: []corev1.Toleration{toleration}}},
		"a taint that the flavor itself tolerates":  {flavor: kueue.ResourceFlavorSpec{NodeTaints: []corev1.Taint{taint}, Tolerations: []corev1.Toleration{toleration}}},
		"a taint that only says what is preferable": {flavor: kueue.ResourceFlavorSpec{NodeTaints: []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectPreferNoSchedule}}}},
	}, func(t *testing.T, tc row) {
		f := flavor("h100")
		f.Spec.NodeTaints, f.Spec.Tolerations = tc.flavor.NodeTaints, tc.flavor.Tolerations
		expect.Same(t, "Unexpected refusal", tc.want, Refuses(&f, &tc.pod))
	})
}

func TestLoadGoesOnWithoutWhatIsForbidden(t *testing.T) {
	b, a := node("b", "h100", "8"), node("a", "h100", "8")
	c := kit.Fake(kit.Scheme(trainjob.AddToScheme), &b, &a).WithInterceptorFuncs(kit.Refusing(func(object any, _ client.ObjectKey) error {
		if _, ok := object.(*kueue.ClusterQueueList); ok {
			return kit.Forbidden("clusterqueues")
		}
		return nil
	})).Build()
	i := expect.Must(Load(t.Context(), c))(t)
	expect.Same(t, "Unexpected nodes", []string{"a", "b"}, []string{i.Nodes[0].Name, i.Nodes[1].Name})
	expect.That(t, !i.Saw(ClusterQueues) && i.Saw(Nodes), "Unexpected kinds unseen: %v", i.Unseen)
	all, unread := LoadAll(t.Context(), c)
	expect.That(t, len(all.Nodes) == 2 && len(unread) == 1 && unread[ClusterQueues] != nil, "Unexpected kinds unread: %v", unread)
}

// TestSnapshotWithoutAdmission is about a Workload whose status says that it has quota, and not which:
// Kueue's webhook refuses such a status, and was not there for all.
func TestSnapshotWithoutAdmission(t *testing.T) {
	wl := kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "wl"}}
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
	expect.Must((&Inventory{Workloads: []kueue.Workload{wl}}).Snapshot(t.Context()))(t)
}

func TestGrants(t *testing.T) {
	quotas := func(flavor string, resources ...kueue.ResourceQuota) kueue.FlavorQuotas {
		return kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(flavor), Resources: resources}
	}
	groups := []kueue.ResourceGroup{
		{Flavors: []kueue.FlavorQuotas{quotas("cpus", kueue.ResourceQuota{Name: "cpu"}, kueue.ResourceQuota{Name: "memory"})}},
		{},
		{Flavors: []kueue.FlavorQuotas{quotas("h100", kueue.ResourceQuota{Name: "nvidia.com/gpu"}), quotas("a100", kueue.ResourceQuota{Name: "nvidia.com/gpu"})}},
	}
	var got [][]string
	for grant := range Grants(groups) {
		got = append(got, []string{string(grant.Flavor), string(grant.Quota.Name), grant.Path})
	}
	want := [][]string{
		{"cpus", "cpu", "/spec/resourceGroups/0/flavors/0/resources/0"},
		{"cpus", "memory", "/spec/resourceGroups/0/flavors/0/resources/1"},
		{"h100", "nvidia.com/gpu", "/spec/resourceGroups/2/flavors/0/resources/0"},
		{"a100", "nvidia.com/gpu", "/spec/resourceGroups/2/flavors/1/resources/0"},
	}
	expect.Same(t, "Unexpected grants", want, got)
	for grant := range Grants(groups) {
		expect.That(t, grant.Quota == &groups[0].Flavors[0].Resources[0], "The quota is a copy of the object's")
		break
	}
}
