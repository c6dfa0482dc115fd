// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const pool = "h100"

// game is a cluster with one flavor, and those who wait. A job is named by its Workload.
type game struct {
	inventory.Inventory
	waiting []*kueue.Workload
	sharing *configapi.FairSharing
}

func (g *game) world() *scheduler.World {
	world := g.World()
	world.Kueue.FairSharing = g.sharing
	return world
}

func newGame() *game {
	g := &game{}
	g.Flavors = []kueue.ResourceFlavor{{ObjectMeta: metav1.ObjectMeta{Name: pool}}}
	return g
}

func (g *game) queue(name, cohort, gpus string, changes ...func(*kueue.ClusterQueueSpec)) *game {
	cq := kit.ClusterQueue(name, kit.Quota{Flavor: pool, GPUs: gpus})
	cq.Spec.CohortName, cq.Spec.QueueingStrategy = kueue.CohortReference(cohort), kueue.BestEffortFIFO
	cq.Spec.Preemption, cq.Spec.FlavorFungibility = nil, nil
	kit.With(&cq.Spec, changes...)
	g.ClusterQueues = append(g.ClusterQueues, *cq)
	g.LocalQueues = append(g.LocalQueues, *kit.LocalQueue("team", name, name))
	return g
}

func strictly(spec *kueue.ClusterQueueSpec) { spec.QueueingStrategy = kueue.StrictFIFO }

func preempting(spec *kueue.ClusterQueueSpec) {
	spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
}

// job has pods of one GPU.
func job(name, queue string, pods, priority int32) *kueue.Workload {
	wl := kit.Workload("team", name, queue, time.Unix(0, 0), kit.PodSet("main", pods, "nvidia.com/gpu", "1"))
	wl.Spec.Priority = &priority
	return wl
}

func (g *game) runs(name, queue string, pods, priority int32) *game {
	g.Workloads = append(g.Workloads, *kit.With(job(name, queue, pods, priority), kit.Admitted, kit.Assigned(queue, pool)))
	return g
}

func (g *game) waits(name, queue string, pods, priority int32, changes ...func(*kueue.Workload)) *game {
	g.waiting = append(g.waiting, kit.With(job(name, queue, pods, priority), changes...))
	return g
}

// parked is one that was refused, and says why.
func parked(why string) func(*kueue.Workload) {
	return kit.Says(metav1.Condition{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Message: why})
}

// elastic is one that starts with fewer pods, too.
func elastic(wl *kueue.Workload) { wl.Spec.PodSets[0].MinCount = new(int32(1)) }

// told is what a test compares of a Decision; Pods are those of an admission.
type told struct {
	Outcome scheduler.Outcome
	Message string
	Behind  string
	Before  string
	Pods    int32
}

func (g *game) contest() *scheduler.Contest {
	c := &scheduler.Contest{World: g.world(), Workloads: g.waiting, Now: time.Unix(1000, 0)}
	for n := range g.Workloads {
		c.Workloads = append(c.Workloads, &g.Workloads[n])
	}
	return c
}

// decide tells about the last of those who wait.
func (g *game) decide(t *testing.T) told {
	t.Helper()
	wl := g.waiting[len(g.waiting)-1]
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
	stops := parked("no room. Pending the preemption of 1 workload(s)")
	expect.Rows(t, map[string]expect.Row[*game, string]{
		"by cycles, not by priority alone": {In: newGame().queue("a", "all", "4").queue("b", "all", "4").
			waits("a1", "a", 1, 10).waits("a2", "a", 1, 9).waits("b1", "b", 1, 1), Want: "a1 b1 a2"},
		"who borrows comes last in a cycle": {In: newGame().queue("a", "all", "4").queue("b", "all", "0").
			waits("b1", "b", 1, 10).waits("a1", "a", 1, 1), Want: "a1 b1"},
		"behind one that cannot start, however strict": {In: newGame().queue("a", "", "4", strictly).
			waits("large", "a", 8, 10).waits("small", "a", 1, 1), Want: "large small"},
		"who stops others is first, unless first in is strictly first out": {
			In: newGame().queue("a", "all", "4", preempting).queue("b", "all", "4", preempting, strictly).
				waits("a1", "a", 5, 20).waits("a2", "a", 4, 10, stops).waits("b1", "b", 5, 20).waits("b2", "b", 4, 10, stops), Want: "a2 b1 a1 b2"},
		"each of those that are alike": {In: newGame().queue("a", "", "4").
			waits("first", "a", 5, 0, parked("no room")).waits("second", "a", 5, 0), Want: "first second"},
		"once, though others are preempted": {In: newGame().queue("a", "all", "4", preempting).queue("b", "all", "4", preempting).
			runs("a0", "a", 4, 0).runs("b0", "b", 4, 0).
			waits("a1", "a", 4, 10).waits("b1", "b", 4, 11).waits("b2", "b", 4, 1, parked("no room")), Want: "b1 a1 b2"},
	}, func(t *testing.T, tc expect.Row[*game, string]) {
		order := expect.Must(tc.In.contest().Order(t.Context()))(t)
		names := expect.Each(order, func(turn scheduler.Turn) string { return turn.Workload.Name })
		expect.Same(t, "Unexpected order", tc.Want, strings.Join(names, " "))
	})
}

func TestDecide(t *testing.T) {
	const oneMore = "couldn't assign flavors to pod set main: insufficient unused quota for nvidia.com/gpu in flavor h100, 1 more needed"
	expect.Rows(t, map[string]expect.Row[*game, told]{
		"one that was parked is in front when somebody was preempted": {In: newGame().queue("a", "all", "4", preempting).queue("b", "all", "4").
			runs("victim", "a", 4, -10).runs("other", "b", 2, 0).
			waits("preemptor", "a", 2, 200).waits("parked", "b", 4, 100, parked("no room")).waits("head", "b", 5, 10).waits("last", "b", 1, 0),
			Want: told{Outcome: scheduler.Refuses, Before: "preemptor", Message: oneMore}},
		"like one that was refused": {In: newGame().queue("a", "", "4").waits("first", "a", 5, 0).waits("other", "a", 6, -1).waits("second", "a", 5, 0),
			Want: told{Outcome: scheduler.Refuses, Message: "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor h100, previously considered podsets requests (0) + current podset request (5) > maximum capacity (4)"}},
		"a head keeps its own quota from others in the cohort": {In: newGame().queue("a", "all", "4", strictly).queue("b", "all", "0").
			runs("running", "a", 2, 0).waits("big", "a", 4, 0).waits("borrower", "b", 2, 0),
			Want: told{Outcome: scheduler.Refuses, Message: "Workload no longer fits after processing another workload", Behind: "big"}},
		"behind one that starts with fewer pods": {In: newGame().queue("a", "", "4", strictly).waits("elastic", "a", 6, 10, elastic).waits("next", "a", 1, 0),
			Want: told{Outcome: scheduler.Refuses, Before: "elastic", Message: oneMore}},
		"with fewer pods": {In: newGame().queue("a", "", "4").waits("elastic", "a", 6, 0, elastic), Want: told{Outcome: scheduler.Admits, Pods: 4}},
		"behind the head of a strict queue": {In: newGame().queue("a", "", "4", strictly).
			runs("running", "a", 2, 0).waits("big", "a", 4, 0).waits("small", "a", 2, -10), Want: told{Outcome: scheduler.Blocks, Behind: "big"}},
		"behind a head whose room another keeps": {In: newGame().queue("a", "all", "4", strictly).queue("b", "all", "0").
			runs("running", "a", 2, 0).waits("big", "a", 4, 0).waits("borrower", "b", 2, 0).waits("small", "b", 1, -10),
			Want: told{Outcome: scheduler.Blocks, Behind: "borrower"}},
	}, func(t *testing.T, tc expect.Row[*game, told]) {
		expect.Same(t, "Unexpected decision", tc.Want, tc.In.decide(t))
	})
}

func TestDecideAboutAll(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[time.Duration, map[string]scheduler.Outcome]{
		"in one play": {In: 60, Want: map[string]scheduler.Outcome{"first": scheduler.Admits, "large": scheduler.Refuses, "small": scheduler.Blocks}},
		"of whom the time was too short for, nothing is said": {Want: map[string]scheduler.Outcome{}},
	}, func(t *testing.T, tc expect.Row[time.Duration, map[string]scheduler.Outcome]) {
		g := newGame().queue("a", "", "4", strictly).queue("stopped", "", "4", func(spec *kueue.ClusterQueueSpec) { spec.StopPolicy = new(kueue.Hold) }).
			waits("first", "a", 2, 9).waits("large", "a", 4, 5, parked("no room")).waits("small", "a", 1, 1).waits("nowhere", "stopped", 1, 0, parked("no room"))
		asked := sets.New[client.ObjectKey]()
		for _, wl := range g.waiting {
			asked.Insert(client.ObjectKeyFromObject(wl))
		}
		ctx, cancel := context.WithTimeout(t.Context(), tc.In*time.Second)
		defer cancel()
		got := map[string]scheduler.Outcome{}
		for key, d := range expect.Must(g.contest().Decide(ctx, asked))(t) {
			got[key.Name] = d.Outcome
		}
		expect.Same(t, "Unexpected outcomes", tc.Want, got)
	})
}
