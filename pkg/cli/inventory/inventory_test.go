// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

func node(name, pool, gpus string, change ...func(*corev1.Node)) corev1.Node {
	n := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pool": pool}}}
	n.Status.Allocatable = corev1.ResourceList{gpu.Whole: resource.MustParse(gpus)}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, c := range change {
		c(&n)
	}
	return n
}

func podSpec(gpus string) corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{gpu.Whole: resource.MustParse(gpus)},
	}}}}
}

func pod(node, gpus string, phase corev1.PodPhase) corev1.Pod {
	spec := podSpec(gpus)
	spec.NodeName = node
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: node + gpus + string(phase)}, Spec: spec, Status: corev1.PodStatus{Phase: phase}}
}

func flavor(name string) kueue.ResourceFlavor {
	return kueue.ResourceFlavor{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       kueue.ResourceFlavorSpec{NodeLabels: map[string]string{"pool": name}},
	}
}

func clusterQueue(name, cohort, nominal, reserved, borrowed string) kueue.ClusterQueue {
	return kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: kueue.ClusterQueueSpec{
			CohortName: kueue.CohortReference(cohort),
			ResourceGroups: []kueue.ResourceGroup{{
				CoveredResources: []corev1.ResourceName{gpu.Whole},
				Flavors: []kueue.FlavorQuotas{{Name: "h100", Resources: []kueue.ResourceQuota{
					{Name: gpu.Whole, NominalQuota: resource.MustParse(nominal)},
				}}},
			}},
		},
		Status: kueue.ClusterQueueStatus{FlavorsReservation: []kueue.FlavorUsage{{Name: "h100", Resources: []kueue.ResourceUsage{
			{Name: gpu.Whole, Total: resource.MustParse(reserved), Borrowed: resource.MustParse(borrowed)},
		}}}},
	}
}

func waiting(queue, gpus string, count int32) kueue.Workload {
	return kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Name: queue + gpus, Namespace: "team"},
		Spec: kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(queue), PodSets: []kueue.PodSet{
			{Name: "node", Count: count, Template: corev1.PodTemplateSpec{Spec: podSpec(gpus)}},
		}},
	}
}

func holding(wl kueue.Workload, cq kueue.ClusterQueueReference, total string) kueue.Workload {
	wl.Name += "-holds"
	wl.Status.Admission = &kueue.Admission{ClusterQueue: cq, PodSetAssignments: []kueue.PodSetAssignment{{
		Name:          "node",
		Flavors:       map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu.Whole: "h100"},
		ResourceUsage: corev1.ResourceList{gpu.Whole: resource.MustParse(total)},
	}}}
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
	return wl
}

func localQueue(name, cq string) kueue.LocalQueue {
	return kueue.LocalQueue{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team"},
		Spec:       kueue.LocalQueueSpec{ClusterQueue: kueue.ClusterQueueReference(cq)},
	}
}

func names(nodes []*corev1.Node) []string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return names
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
	there, used := Allocatable(picked, gpu.Whole), i.UsedOn(picked, gpu.Whole)
	got := map[string]any{
		"picked": names(picked), "unpicked": names(i.NodesOfNoFlavor()),
		"ready": []bool{Ready(picked[0]), Ready(picked[1]), Ready(&corev1.Node{})},
		"there": there.String(), "used": used.String(),
	}
	want := map[string]any{
		"picked": []string{"a", "b"}, "unpicked": []string{"c"}, "ready": []bool{true, false, false}, "there": "16", "used": "3",
	}
	kit.Same(t, "nodes", want, got)
}

func TestQuotas(t *testing.T) {
	stopped := func(cq kueue.ClusterQueue) kueue.ClusterQueue {
		hold := kueue.Hold
		cq.Spec.StopPolicy = &hold
		return cq
	}
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
	// free, borrowed and lent of each ClusterQueue
	cases := map[string]struct {
		inventory Inventory
		want      map[kueue.ClusterQueueReference][3]string
	}{
		"alone, free is what is not reserved": {
			inventory: Inventory{
				ClusterQueues: []kueue.ClusterQueue{clusterQueue("a", "", "16", "6", "0")},
				Workloads:     []kueue.Workload{holding(waiting("q", "2", 3), "a", "6")},
			},
			want: map[kueue.ClusterQueueReference][3]string{"a": {"10", "0", "0"}},
		},
		"in a cohort, what others have not used can be borrowed": {
			inventory: Inventory{
				ClusterQueues: []kueue.ClusterQueue{clusterQueue("a", "all", "16", "6", "0"), clusterQueue("b", "all", "8", "0", "0")},
				Workloads:     []kueue.Workload{holding(waiting("q", "2", 3), "a", "6")},
			},
			want: map[kueue.ClusterQueueReference][3]string{"a": {"18", "0", "0"}, "b": {"18", "0", "0"}},
		},
		"what is lent is missing for its owner": {
			inventory: Inventory{
				ClusterQueues: []kueue.ClusterQueue{clusterQueue("a", "all", "16", "22", "6"), clusterQueue("b", "all", "8", "0", "0")},
				Workloads:     []kueue.Workload{holding(waiting("q", "22", 1), "a", "22")},
			},
			want: map[kueue.ClusterQueueReference][3]string{"a": {"2", "6", "0"}, "b": {"2", "0", "6"}},
		},
		"limits on borrowing and lending hold": {
			inventory: Inventory{ClusterQueues: []kueue.ClusterQueue{
				limited(clusterQueue("a", "all", "16", "0", "0"), "2", ""), limited(clusterQueue("b", "all", "8", "0", "0"), "", "3"),
			}},
			want: map[kueue.ClusterQueueReference][3]string{"a": {"18", "0", "0"}, "b": {"24", "0", "0"}},
		},
		"a stopped ClusterQueue has nothing free": {
			inventory: Inventory{ClusterQueues: []kueue.ClusterQueue{stopped(clusterQueue("a", "", "16", "0", "0"))}},
			want:      map[kueue.ClusterQueueReference][3]string{"a": {"0", "0", "0"}},
		},
		"quota taken away below what is held leaves nothing free, not less": {
			inventory: Inventory{
				ClusterQueues: []kueue.ClusterQueue{clusterQueue("a", "", "4", "6", "2")},
				Workloads:     []kueue.Workload{holding(waiting("q", "2", 3), "a", "6")},
			},
			want: map[kueue.ClusterQueueReference][3]string{"a": {"0", "2", "0"}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.inventory.Flavors = []kueue.ResourceFlavor{flavor("h100")}
			quotas := kit.Must(tc.inventory.Quotas(context.Background()))(t)
			got := map[kueue.ClusterQueueReference][3]string{}
			for _, q := range quotas {
				got[q.ClusterQueue] = [3]string{q.Free.String(), q.Borrowed.String(), q.Lent.String()}
			}
			kit.Same(t, "free, borrowed, lent", tc.want, got)
		})
	}
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
			waiting("to-nowhere", "4", 1), waiting("no-queue", "5", 1), holding(waiting("q", "8", 1), "a", "8"),
		},
	}
	demand := i.Demand(&h100, gpu.Whole)
	kit.Same(t, "demand", "7", demand.String())
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
	cases := map[string]struct {
		pod    corev1.PodSpec
		flavor kueue.ResourceFlavorSpec
		want   string
	}{
		"nothing against it":                        {},
		"a selector for these nodes":                {pod: corev1.PodSpec{NodeSelector: map[string]string{"pool": "h100"}}},
		"a selector for others":                     {pod: corev1.PodSpec{NodeSelector: map[string]string{"pool": "a100"}}, want: "its node selector or affinity asks for other nodes"},
		"a selector that the flavor knows not":      {pod: corev1.PodSpec{NodeSelector: map[string]string{"zone": "a"}}},
		"an affinity for other nodes":               {pod: corev1.PodSpec{Affinity: affinity("pool", "a100")}, want: "its node selector or affinity asks for other nodes"},
		"an affinity that the flavor knows not":     {pod: corev1.PodSpec{Affinity: affinity("zone", "a")}},
		"an affinity without required terms":        {pod: corev1.PodSpec{Affinity: &corev1.Affinity{}}},
		"a taint that nobody tolerates":             {flavor: kueue.ResourceFlavorSpec{NodeTaints: []corev1.Taint{taint}}, want: "taint team=vision:NoSchedule is not tolerated"},
		"a taint that the pods tolerate":            {flavor: kueue.ResourceFlavorSpec{NodeTaints: []corev1.Taint{taint}}, pod: corev1.PodSpec{Tolerations: []corev1.Toleration{toleration}}},
		"a taint that the flavor itself tolerates":  {flavor: kueue.ResourceFlavorSpec{NodeTaints: []corev1.Taint{taint}, Tolerations: []corev1.Toleration{toleration}}},
		"a taint that only says what is preferable": {flavor: kueue.ResourceFlavorSpec{NodeTaints: []corev1.Taint{{Key: "team", Effect: corev1.TaintEffectPreferNoSchedule}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := flavor("h100")
			f.Spec.NodeTaints, f.Spec.Tolerations = tc.flavor.NodeTaints, tc.flavor.Tolerations
			kit.Same(t, "refusal", tc.want, Refuses(&f, &tc.pod))
		})
	}
}

func TestLoadGoesOnWithoutWhatIsForbidden(t *testing.T) {
	scheme := kit.Must(cluster.Scheme())(t)
	b, a := node("b", "h100", "8"), node("a", "h100", "8")
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(&b, &a).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*kueue.ClusterQueueList); ok {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "clusterqueues"}, "", nil)
			}
			return c.List(ctx, list, opts...)
		},
	}).Build()
	i := kit.Must(Load(context.Background(), c))(t)
	kit.Same(t, "nodes", []string{"a", "b"}, []string{i.Nodes[0].Name, i.Nodes[1].Name})
	if i.Saw("clusterqueues.kueue.x-k8s.io") || !i.Saw("nodes") {
		t.Errorf("Unexpected kinds unseen: %v", i.Unseen)
	}
}

// TestSnapshotWithoutAdmission is about a Workload whose status says that it has quota, and not which:
// Kueue's webhook refuses such a status, and was not there for all.
func TestSnapshotWithoutAdmission(t *testing.T) {
	wl := kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "wl"}}
	wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionTrue}}
	kit.Must((&Inventory{Workloads: []kueue.Workload{wl}}).Snapshot(t.Context()))(t)
}
