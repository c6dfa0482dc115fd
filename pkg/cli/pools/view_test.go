// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// someCluster has two H100 nodes of which one is cordoned, a flavor for them, a team with
// quota for it that holds 8 GPUs of which 6 run, and nodes of no flavor.
func someCluster() *inventory.Inventory {
	cordoned := gpuNode("h1", "NVIDIA-H100")
	cordoned.Spec.Unschedulable = true
	other := gpuNode("l0", "NVIDIA-L4")
	cpu := *kit.ReadyNode("c0", nil, "cpu", "32")
	h0 := gpuNode("h0", "NVIDIA-H100")
	for _, node := range []*corev1.Node{&h0, &cordoned} {
		node.Labels[gpu.MemoryLabel] = "81559"
	}
	usage := func(total string) []kueue.FlavorUsage {
		return []kueue.FlavorUsage{{Name: "h100", Resources: []kueue.ResourceUsage{{Name: gpu.Whole, Total: resource.MustParse(total)}}}}
	}
	pod := corev1.Pod{Spec: kit.PodRequests("nvidia.com/gpu", "6")}
	pod.Spec.NodeName, pod.Labels = "h0", map[string]string{"kueue.x-k8s.io/podset": "node"}
	vision := kit.ClusterQueue("vision", kit.Quota{Flavor: "h100", GPUs: "16"})
	group := &vision.Spec.ResourceGroups[0]
	group.CoveredResources = append(group.CoveredResources, "nvidia.com/gpu.shared")
	group.Flavors[0].Resources = append(group.Flavors[0].Resources, kueue.ResourceQuota{Name: "nvidia.com/gpu.shared"})
	vision.Status.FlavorsReservation, vision.Status.FlavorsUsage = usage("8"), usage("6")
	return &inventory.Inventory{
		Nodes: []corev1.Node{cpu, h0, cordoned, other}, Pods: []corev1.Pod{pod},
		Flavors: []kueue.ResourceFlavor{*kit.PlainFlavor("h100", gpu.ProductLabel, "NVIDIA-H100")}, ClusterQueues: []kueue.ClusterQueue{*vision},
	}
}

// held is a Workload with quota of h100, of a job where owner is set.
func held(namespace, owner string, gpus string) kueue.Workload {
	wl := kit.Workload(namespace, owner+gpus, "", time.Time{}, kit.PodSet("node", 1, "nvidia.com/gpu", gpus))
	if owner != "" {
		wl.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(owner), Controller: ptr.To(true)}}
	}
	return *kit.With(wl, kit.Assigned("vision", "h100"), kit.Is(kueue.WorkloadQuotaReserved, ""))
}

func TestUsers(t *testing.T) {
	i := someCluster()
	over := held("team", "jane-1", "7")
	kit.Is(kueue.WorkloadFinished, "")(&over)
	i.Workloads = []kueue.Workload{held("team", "jane-1", "2"), held("team", "jane-2", "3"), held("other", "", "1"), held("team", "nobodys", "1"), over}
	expect.Rows(t, map[string]expect.Row[map[types.UID]string, string]{
		"by user, the largest first":  {In: map[types.UID]string{"jane-1": "jane", "jane-2": "jane", "nobodys": ""}, Want: "team/jane 5, other 1, team 1"},
		"by namespace, with no label": {In: map[types.UID]string{}, Want: "team 6, other 1"},
	}, func(t *testing.T, tc expect.Row[map[types.UID]string, string]) {
		expect.Same(t, "Unexpected users", tc.Want, usersText(expect.Must(newView(t.Context(), i, tc.In, nil))(t).Pools[0].ClusterQueues[0].Users))
	})
}

func unseen(kinds ...string) func(*inventory.Inventory) {
	return func(i *inventory.Inventory) {
		i.Unseen = append(i.Unseen, kinds...)
	}
}

func TestTable(t *testing.T) {
	type row struct {
		change       func(*inventory.Inventory)
		counts       *configapi.Resources
		format, want string
		// figures are the first line of the table; else want is all there is.
		figures string
	}
	expect.Rows(t, map[string]row{
		"every figure": {want: `
POOL          RESOURCE         NODES   ALLOCATABLE   QUOTA   RESERVED   RUNNING   PENDING   FREE   CLUSTERQUEUES
h100          nvidia.com/gpu   1/2     8             16      8          6         0         0      vision
<no flavor>   nvidia.com/gpu   1/1     8             -       -          0         -         -      <none>
<no flavor>   cpu              1/1     32            -       -          0         -         -      <none>
`},
		"what runs on a cordoned node takes nothing from the others": {change: func(i *inventory.Inventory) { i.Pods[0].Spec.NodeName = "h1" }, figures: "h100 nvidia.com/gpu 1/2 8 16 8 6 0 6 vision"},
		"devices of DRA, by a name without a slash": {figures: "h100 whole-gpus 1/1 0 16 0 0 0 0 vision",
			change: func(i *inventory.Inventory) {
				i.Nodes, i.Pods = i.Nodes[:1], nil
				i.Flavors[0].Spec.NodeLabels = nil
				group := &i.ClusterQueues[0].Spec.ResourceGroups[0]
				group.CoveredResources = []corev1.ResourceName{"whole-gpus"}
				group.Flavors[0].Resources = []kueue.ResourceQuota{{Name: "whole-gpus", NominalQuota: resource.MustParse("16")}}
				i.ClusterQueues[0].Status.FlavorsReservation, i.ClusterQueues[0].Status.FlavorsUsage = nil, nil
			}},
		"what Kueue counts GPUs as": {change: func(i *inventory.Inventory) {
			i.Nodes = i.Nodes[1:2]
			i.LocalQueues = []kueue.LocalQueue{*kit.LocalQueue("team", "q", "vision")}
			i.Workloads = []kueue.Workload{*kit.Workload("team", "a", "q", time.Time{}, kit.PodSet("node", 2, "nvidia.com/gpu", "3"))}
			group := &i.ClusterQueues[0].Spec.ResourceGroups[0]
			group.CoveredResources = []corev1.ResourceName{"example.com/credits"}
			group.Flavors[0].Resources = []kueue.ResourceQuota{{Name: "example.com/credits", NominalQuota: resource.MustParse("16")}}
			i.ClusterQueues[0].Status.FlavorsReservation, i.ClusterQueues[0].Status.FlavorsUsage = nil, nil
		}, counts: &configapi.Resources{Transformations: []configapi.ResourceTransformation{{
			Input: gpu.Whole, Strategy: ptr.To(configapi.Replace), Outputs: kit.Amounts("example.com/credits", "2")}}}, want: `
POOL   RESOURCE              NODES   ALLOCATABLE   QUOTA   RESERVED   RUNNING   PENDING   FREE   CLUSTERQUEUES
h100   example.com/credits   1/1     0             16      0          0         12        0      vision
h100   nvidia.com/gpu        1/1     8             0       0          6         0         0      <none>
`},
		"pods of somebody else are not those that a reservation waits for": {figures: "h100 nvidia.com/gpu 1/1 8 16 4 4 0 0 vision",
			change: func(i *inventory.Inventory) {
				i.Nodes, i.Pods[0].Labels = i.Nodes[1:2], nil
				i.Pods[0].Spec = kit.PodRequests("nvidia.com/gpu", "4")
				i.Pods[0].Spec.NodeName = "h0"
				i.ClusterQueues[0].Status.FlavorsReservation[0].Resources[0].Total = resource.MustParse("4")
			}},
		"a stopped ClusterQueue": {
			change: func(i *inventory.Inventory) {
				i.ClusterQueues[0].Spec.StopPolicy, i.Nodes = ptr.To(kueue.HoldAndDrain), nil
			}, format: "wide",
			want: `
POOL   RESOURCE         NODES   ALLOCATABLE   QUOTA   RESERVED   RUNNING   PENDING   FREE   PRODUCT   MEMORY
h100   nvidia.com/gpu   0/0     0             16      8          0         0         0      <none>    <none>

CLUSTERQUEUE   COHORT   POOL   RESOURCE         NOMINAL   RESERVED   ADMITTED   BORROWED   LENT   FREE   STOPPED                      USERS
vision         <none>   h100   nvidia.com/gpu   16        8          6          0          0      0      stopPolicy is HoldAndDrain   <none>
`},
		"a user who may not list nodes and pods": {change: kit.All(func(i *inventory.Inventory) { i.Nodes, i.Pods = nil, nil }, unseen("nodes", "pods")), figures: "h100 nvidia.com/gpu ? ? 16 8 ? 0 ? vision"},
		"nothing at all": {change: func(i *inventory.Inventory) { *i = inventory.Inventory{} },
			want: "No pools: no ResourceFlavor and no node. \"kubectl trainjob pools generate\" makes flavors from nodes.\n"},
		"nothing that the user may see": {
			change: kit.All(func(i *inventory.Inventory) { *i = inventory.Inventory{} }, unseen(inventory.Flavors, inventory.Nodes))},
		"for machines": {
			change: func(i *inventory.Inventory) {
				i.Nodes, i.ClusterQueues = i.Nodes[1:2], nil
				unseen("workloads.kueue.x-k8s.io")(i)
			}, format: "yaml",
			want: `
pools:
- allocatable: "8"
  borrowed: "0"
  flavor: h100
  free: "0"
  memory: 81559Mi
  nodes:
    names:
    - h0
    ready: 1
    total: 1
  product: NVIDIA-H100
  quota: "0"
  reserved: "0"
  resource: nvidia.com/gpu
  running: "6"
unseen:
- workloads.kueue.x-k8s.io
`},
	}, func(t *testing.T, tc row) {
		i := kit.With(someCluster(), tc.change)
		view := expect.Must(newView(context.Background(), i, nil, tc.counts))(t)
		var out strings.Builder
		expect.NoError(t, write(&out, tc.format, view, show.Paint{}))
		if tc.figures != "" {
			expect.Same(t, "Unexpected figures", tc.figures, strings.Join(strings.Fields(strings.Split(out.String(), "\n")[1]), " "))
			return
		}
		expect.Same(t, "Unexpected output", strings.TrimPrefix(tc.want, "\n"), out.String())
	})
}

func TestScreenShowsOnlyChanges(t *testing.T) {
	var out strings.Builder
	s := &screen{out: &out}
	for _, text := range []string{"a\n", "a\n", "b\n"} {
		expect.NoError(t, s.show([]byte(text)))
	}
	expect.Same(t, "Unexpected texts", "a\n\nb\n", out.String())
}

func TestNotAllowedToLook(t *testing.T) {
	type row struct {
		unseen   []string
		wantCode int
		wantErr  string
	}
	expect.Rows(t, map[string]row{
		"all was seen":  {},
		"not the nodes": {unseen: []string{"nodes"}, wantCode: exit.Unseen, wantErr: "you may not see the amounts that are missing: ask an admin for ClusterRoles kueue-batch-admin-role and kueue-trainer-queues-viewer, and to list pods"},
		"not even the flavors": {unseen: []string{inventory.Flavors}, wantCode: exit.Unseen,
			wantErr: "you may not see the pools: ask an admin for ClusterRoles kueue-batch-admin-role and kueue-trainer-queues-viewer, and to list pods"},
	}, func(t *testing.T, tc row) {
		i := &inventory.Inventory{}
		unseen(tc.unseen...)(i)
		err := notAll(i)
		expect.Same(t, "Unexpected error", tc.wantErr, expect.Text(err))
		expect.Same(t, "Unexpected exit code", tc.wantCode, exit.Code(err))
	})
}
