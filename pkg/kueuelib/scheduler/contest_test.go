// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const pool = "h100"

// game is a cluster with one flavor, and those who wait. A job is named by its Workload.
type game struct {
	inventory.Inventory
	waiting []*kueue.Workload
}

func (g *game) queue(name, cohort, gpus string, changes ...func(*kueue.ClusterQueueSpec)) {
	cq := kit.ClusterQueue(name, kit.Quota{Flavor: pool, GPUs: gpus})
	cq.Spec.CohortName, cq.Spec.QueueingStrategy = kueue.CohortReference(cohort), kueue.BestEffortFIFO
	cq.Spec.Preemption, cq.Spec.FlavorFungibility = nil, nil
	for _, change := range changes {
		change(&cq.Spec)
	}
	g.ClusterQueues = append(g.ClusterQueues, *cq)
	g.LocalQueues = append(g.LocalQueues, *kit.LocalQueue("team", name, name))
}

func strictly(spec *kueue.ClusterQueueSpec) { spec.QueueingStrategy = kueue.StrictFIFO }

func preempting(spec *kueue.ClusterQueueSpec) {
	spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
}

// job is a Workload with pods of one GPU.
func job(name, queue string, pods, priority int32) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(0, 0))},
		Spec: kueue.WorkloadSpec{
			QueueName: kueue.LocalQueueName(queue), Priority: &priority, PodSets: []kueue.PodSet{kit.PodSet("main", pods, "nvidia.com/gpu", "1")},
		},
	}
}

// run admits a Workload.
func (g *game) run(wl *kueue.Workload) {
	pods := wl.Spec.PodSets[0].Count
	wl.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(wl.Spec.QueueName), PodSetAssignments: []kueue.PodSetAssignment{{
		Name: "main", Count: &pods, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{gpu.Whole: pool},
		ResourceUsage: kit.Amounts("nvidia.com/gpu", strconv.Itoa(int(pods))),
	}}}
	for _, condition := range []string{kueue.WorkloadQuotaReserved, kueue.WorkloadAdmitted} {
		wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
	}
	g.Workloads = append(g.Workloads, *wl)
}

func (g *game) wait(wl *kueue.Workload, parked bool) *kueue.Workload {
	if parked {
		wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Message: "no room"}}
	}
	g.waiting = append(g.waiting, wl)
	return wl
}

// told is what a test compares of a Decision; Pods are those of an admission.
type told struct {
	Outcome scheduler.Outcome
	Message string
	Behind  string
	Before  string
	Pods    int32
}

func (g *game) contest() *scheduler.Contest {
	g.Flavors = []kueue.ResourceFlavor{{ObjectMeta: metav1.ObjectMeta{Name: pool}}}
	c := &scheduler.Contest{World: g.World(), Workloads: g.waiting, Now: time.Unix(1000, 0)}
	for n := range g.Workloads {
		c.Workloads = append(c.Workloads, &g.Workloads[n])
	}
	return c
}

func (g *game) decide(t *testing.T, wl *kueue.Workload) told {
	t.Helper()
	d := expect.Must(g.contest().Decide(t.Context(), sets.New(client.ObjectKeyFromObject(wl))))(t)[client.ObjectKeyFromObject(wl)]
	expect.Need(t, d != nil, "there is a decision")
	got := told{Outcome: d.Outcome, Message: d.Message}
	if d.Behind != nil {
		got.Behind = d.Behind.Name
	}
	if d.Before != nil {
		got.Before = d.Before.Name
	}
	if d.Admission != nil {
		got.Pods = ptr.Deref(d.Admission.PodSetAssignments[0].Count, 0)
	}
	return got
}

func TestOrder(t *testing.T) {
	cases := map[string]struct {
		play func(*game)
		want string
	}{
		"by cycles, not by priority alone": {
			play: func(g *game) {
				g.queue("a", "all", "4")
				g.queue("b", "all", "4")
				g.wait(job("a1", "a", 1, 10), false)
				g.wait(job("a2", "a", 1, 9), false)
				g.wait(job("b1", "b", 1, 1), false)
			},
			want: "a1 b1 a2",
		},
		"who borrows comes last in a cycle": {
			play: func(g *game) {
				g.queue("a", "all", "4")
				g.queue("b", "all", "0")
				g.wait(job("b1", "b", 1, 10), false)
				g.wait(job("a1", "a", 1, 1), false)
			},
			want: "a1 b1",
		},
		"behind one that cannot start, however strict": {
			play: func(g *game) {
				g.queue("a", "", "4", strictly)
				g.wait(job("large", "a", 8, 10), false)
				g.wait(job("small", "a", 1, 1), false)
			},
			want: "large small",
		},
		"who stops others is first, unless first in is strictly first out": {
			play: func(g *game) {
				for _, name := range []string{"a", "b"} {
					g.queue(name, "all", "4", preempting)
					g.wait(job(name+"1", name, 5, 20), false)
					stopping := job(name+"2", name, 4, 10)
					stopping.Status.Conditions = []metav1.Condition{{
						Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Message: "no room. Pending the preemption of 1 workload(s)",
					}}
					g.wait(stopping, false)
				}
				strictly(&g.ClusterQueues[1].Spec)
			},
			want: "a2 b1 a1 b2",
		},
		"each of those that are alike": {
			play: func(g *game) {
				g.queue("a", "", "4")
				g.wait(job("first", "a", 5, 0), true)
				g.wait(job("second", "a", 5, 0), false)
			},
			want: "first second",
		},
		"once, though others are preempted": {
			play: func(g *game) {
				g.queue("a", "all", "4", preempting)
				g.queue("b", "all", "4", preempting)
				g.run(job("a0", "a", 4, 0))
				g.run(job("b0", "b", 4, 0))
				g.wait(job("a1", "a", 4, 10), false)
				g.wait(job("b1", "b", 4, 11), false)
				g.wait(job("b2", "b", 4, 1), true)
			},
			want: "b1 a1 b2",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := &game{}
			tc.play(g)
			var names []string
			for _, turn := range expect.Must(g.contest().Order(t.Context()))(t) {
				names = append(names, turn.Workload.Name)
			}
			expect.Same(t, "Unexpected order", tc.want, strings.Join(names, " "))
		})
	}
}

func TestDecide(t *testing.T) {
	cases := map[string]struct {
		play func(*game) *kueue.Workload
		want told
	}{
		"one that was parked is in front when somebody was preempted": {
			play: func(g *game) *kueue.Workload {
				g.queue("a", "all", "4", preempting)
				g.queue("b", "all", "4")
				g.run(job("victim", "a", 4, -10))
				g.run(job("other", "b", 2, 0))
				g.wait(job("preemptor", "a", 2, 200), false)
				g.wait(job("parked", "b", 4, 100), true)
				g.wait(job("head", "b", 5, 10), false)
				return g.wait(job("last", "b", 1, 0), false)
			},
			want: told{
				Outcome: scheduler.Refuses, Before: "preemptor",
				Message: "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 1 more needed",
			},
		},
		"like one that was refused": {
			play: func(g *game) *kueue.Workload {
				g.queue("a", "", "4")
				g.wait(job("first", "a", 5, 0), false)
				g.wait(job("other", "a", 6, -1), false)
				return g.wait(job("second", "a", 5, 0), false)
			},
			want: told{
				Outcome: scheduler.Refuses,
				Message: "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor h100, previously considered podsets requests (0) + current podset request (5) > maximum capacity (4)",
			},
		},
		"a head keeps its own quota from others in the cohort": {
			play: func(g *game) *kueue.Workload {
				g.queue("a", "all", "4", strictly)
				g.queue("b", "all", "0")
				g.run(job("running", "a", 2, 0))
				g.wait(job("big", "a", 4, 0), false)
				return g.wait(job("borrower", "b", 2, 0), false)
			},
			want: told{Outcome: scheduler.Refuses, Message: "Workload no longer fits after processing another workload", Behind: "big"},
		},
		"behind one that starts with fewer pods": {
			play: func(g *game) *kueue.Workload {
				g.queue("a", "", "4", strictly)
				elastic := job("elastic", "a", 6, 10)
				elastic.Spec.PodSets[0].MinCount = ptr.To[int32](1)
				g.wait(elastic, false)
				return g.wait(job("next", "a", 1, 0), false)
			},
			want: told{
				Outcome: scheduler.Refuses, Before: "elastic",
				Message: "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 1 more needed",
			},
		},
		"with fewer pods": {
			play: func(g *game) *kueue.Workload {
				g.queue("a", "", "4")
				elastic := job("elastic", "a", 6, 0)
				elastic.Spec.PodSets[0].MinCount = ptr.To[int32](1)
				return g.wait(elastic, false)
			},
			want: told{Outcome: scheduler.Admits, Pods: 4},
		},
		"behind the head of a strict queue": {
			play: func(g *game) *kueue.Workload {
				g.queue("a", "", "4", strictly)
				g.run(job("running", "a", 2, 0))
				g.wait(job("big", "a", 4, 0), false)
				return g.wait(job("small", "a", 2, -10), false)
			},
			want: told{Outcome: scheduler.Blocks, Behind: "big"},
		},
		"behind a head whose room another keeps": {
			play: func(g *game) *kueue.Workload {
				g.queue("a", "all", "4", strictly)
				g.queue("b", "all", "0")
				g.run(job("running", "a", 2, 0))
				g.wait(job("big", "a", 4, 0), false)
				g.wait(job("borrower", "b", 2, 0), false)
				return g.wait(job("small", "b", 1, -10), false)
			},
			want: told{Outcome: scheduler.Blocks, Behind: "borrower"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := &game{}
			expect.Same(t, "Unexpected decision", tc.want, g.decide(t, tc.play(g)))
		})
	}
}

func TestDecideAboutAll(t *testing.T) {
	cases := map[string]struct {
		seconds time.Duration
		want    map[string]scheduler.Outcome
	}{
		"in one play": {
			seconds: 60,
			want:    map[string]scheduler.Outcome{"first": scheduler.Admits, "large": scheduler.Refuses, "small": scheduler.Blocks},
		},
		"of whom the time was too short for, nothing is said": {want: map[string]scheduler.Outcome{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := &game{}
			g.queue("a", "", "4", strictly)
			g.queue("stopped", "", "4", func(spec *kueue.ClusterQueueSpec) { spec.StopPolicy = ptr.To(kueue.Hold) })
			asked := sets.New[client.ObjectKey]()
			for n, wl := range []*kueue.Workload{job("first", "a", 2, 9), job("large", "a", 4, 5), job("small", "a", 1, 1), job("nowhere", "stopped", 1, 0)} {
				g.wait(wl, n%2 == 1)
				asked.Insert(client.ObjectKeyFromObject(wl))
			}
			ctx, cancel := context.WithTimeout(t.Context(), tc.seconds*time.Second)
			defer cancel()
			got := map[string]scheduler.Outcome{}
			for key, d := range expect.Must(g.contest().Decide(ctx, asked))(t) {
				got[key.Name] = d.Outcome
			}
			expect.Same(t, "Unexpected outcomes", tc.want, got)
		})
	}
}
