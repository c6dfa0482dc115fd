// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	configapi "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// board is a player whose moves are written down.
type board struct {
	*scheduler.Player
	t     *testing.T
	now   time.Time
	moves []string
}

func (g *game) board(t *testing.T) *board {
	t.Helper()
	b := &board{t: t, now: time.Unix(1000, 0)}
	b.Player = expect.Must(scheduler.NewPlayer(t.Context(), g.world(), b.now))(t)
	for n := range g.Workloads {
		expect.NoError(t, b.Add(t.Context(), &g.Workloads[n]))
	}
	for _, wl := range g.waiting {
		expect.NoError(t, b.Add(t.Context(), wl))
	}
	b.settle()
	return b
}

func (b *board) settle() { b.note(b.Settle(b.t.Context())) }

func (b *board) note(moved []scheduler.Moved) {
	b.moves = append(b.moves, expect.Each(moved, func(m scheduler.Moved) string { return fmt.Sprintf("%s %s", m.Move, m.Workload.Name) })...)
}

// wake moves the clock to where Kueue wants to be woken.
func (b *board) wake() {
	b.now = b.Wakes()
	expect.Need(b.t, !b.now.IsZero(), "Kueue wants to be woken")
	b.SetTime(b.t.Context(), b.now)
	b.settle()
}

func key(name string) client.ObjectKey { return client.ObjectKey{Namespace: "team", Name: name} }

// Kueue preempts the latest first, and of those of one second it goes by UIDs.
func TestStatusesHaveTimesOfWholeSeconds(t *testing.T) {
	b := newGame().queue("a", "", "4").board(t)
	b.SetTime(t.Context(), b.now.Add(1500*time.Millisecond))
	expect.NoError(t, b.Add(t.Context(), job("mine", "a", 1, 0)))
	moved := b.Settle(t.Context())
	expect.Need(t, len(moved) == 1, "it is admitted")
	for _, condition := range moved[0].Workload.Status.Conditions {
		expect.Same(t, "Unexpected time of "+condition.Type, b.now.Add(time.Second), condition.LastTransitionTime.Time)
	}
}

// What is taken from Kueue's insides shows here first when Kueue changes: the cycle that is linked to, that its
// first two looks at the clock are around the wait for heads, that it admits through the wrapper that is exchanged,
// writes statuses whole, and says to the queues' requeuer whom to look at again.
func TestPlayer(t *testing.T) {
	type row struct {
		game *game
		play func(*board)
		want string
	}
	expect.Rows(t, map[string]row{
		"nobody waits, and nothing blocks": {game: newGame().queue("a", "", "4")},
		"who has room is admitted in the cycle, in the order of the queue": {game: newGame().queue("a", "", "4").waits("late", "a", 2, 0).waits("first", "a", 2, 10).waits("too-many", "a", 1, -1),
			want: "Admitted first, Admitted late"},
		"who waits is looked at a second after an end": {game: newGame().queue("a", "", "4").runs("running", "a", 4, 0).waits("next", "a", 4, 0),
			play: func(b *board) {
				b.Remove(b.t.Context(), key("running"))
				b.settle()
				b.wake()
				expect.Same(b.t, "Unexpected time", time.Unix(1001, 0), b.now)
			},
			want: "Admitted next"},
		"the head of a strict queue that cannot start ends the cycles": {game: newGame().queue("a", "", "4", strictly).waits("large", "a", 8, 1).waits("small", "a", 1, 0)},
		"who is preempted keeps its quota until it has stopped, and queues again": {game: newGame().queue("a", "", "4", preempting).runs("low", "a", 4, 0).waits("high", "a", 4, 10),
			play: func(b *board) {
				expect.Must(b.Stopped(b.t.Context(), key("low")))(b.t)
				b.wake()
				b.Remove(b.t.Context(), key("high"))
				b.wake()
			},
			want: "Evicted low, Admitted high, Admitted low"},
		"who preempts many does so in an order that is always the same": {game: newGame().queue("a", "", "4", preempting).
			runs("d", "a", 1, 0).runs("b", "a", 1, 0).runs("a", "a", 1, 0).runs("c", "a", 1, 0).waits("high", "a", 4, 10),
			want: "Evicted a, Evicted b, Evicted c, Evicted d"},
		"admission checks come between quota and start": {game: newGame().checks("").queue("a", "", "4", checked).waits("one", "a", 4, 0),
			play: func(b *board) { b.note(b.ChecksReady(b.t.Context(), key("one"))) }, want: "Reserved one, Admitted one"},
		"a topology is filled by nodes, and named after admission checks in a second pass": {game: newGame().topology(2).checks("kueue.x-k8s.io/provisioning-request").queue("a", "", "64", checked).waits("one", "a", 2, 0),
			play: func(b *board) {
				b.note(b.ChecksReady(b.t.Context(), key("one")))
				b.wake()
			},
			want: "Reserved one, Admitted one"},
		"a place on nodes that are made for it is the last that is missing": {game: newGame().topology(0).checks("kueue.x-k8s.io/provisioning-request").queue("a", "", "64", checked).waits("one", "a", 2, 0),
			play: func(b *board) {
				b.note(b.NodesMade(b.t.Context(), key("one")))
				b.note(b.ChecksReady(b.t.Context(), key("one")))
				b.note(b.NodesMade(b.t.Context(), key("one")))
				b.note(b.NodesMade(b.t.Context(), key("one")))
			},
			want: "Reserved one, Admitted one"},
		"what a ClusterQueue does not say is as its CRD has it: it borrows without preempting others": {
			game: newGame().queue("a", "all", "4", func(spec *kueue.ClusterQueueSpec) {
				spec.QueueingStrategy, spec.Preemption = "", &kueue.ClusterQueuePreemption{
					ReclaimWithinCohort: kueue.PreemptionPolicyLowerPriority, BorrowWithinCohort: &kueue.BorrowWithinCohort{MaxPriorityThreshold: ptr.To[int32](100)},
				}
			}).queue("b", "all", "4").runs("low", "b", 4, 0).waits("high", "a", 6, 10)},
		"a topology that has no room left keeps those back whom the quota would let in": {game: newGame().topology(2).queue("a", "", "64").waits("one", "a", 9, 1).waits("two", "a", 8, 0),
			want: "Admitted one"},
	}, func(t *testing.T, tc row) {
		b := tc.game.board(t)
		kit.With(b, tc.play)
		expect.Same(t, "Unexpected moves", tc.want, strings.Join(b.moves, ", "))
	})
}

// checks adds the AdmissionCheck of checked, which is active.
func (g *game) checks(controller string) *game {
	check := kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "capacity"}, Spec: kueue.AdmissionCheckSpec{ControllerName: controller}}
	check.Status.Conditions = []metav1.Condition{kit.True(kueue.AdmissionCheckActive, "")}
	g.AdmissionChecks = append(g.AdmissionChecks, check)
	return g
}

func checked(spec *kueue.ClusterQueueSpec) { spec.AdmissionChecksStrategy = kit.Checks("capacity") }

// topology gives the flavor nodes of eight GPUs below a topology.
func (g *game) topology(nodes int) *game {
	g.Topologies = []kueue.Topology{*kit.Topology("racks", corev1.LabelHostname)}
	flavor := kit.PlainFlavor(pool, "pool", pool)
	flavor.Spec.TopologyName = (*kueue.TopologyReference)(&g.Topologies[0].Name)
	g.Flavors = []kueue.ResourceFlavor{*flavor}
	for n := range nodes {
		name := fmt.Sprintf("node-%d", n)
		g.Nodes = append(g.Nodes, *kit.ReadyNode(name, map[string]string{"pool": pool, corev1.LabelHostname: name}, "nvidia.com/gpu", "8", "pods", "110"))
	}
	return g
}

// The order that Order says is that in which Kueue's scheduler admits, where there is room for all, among those that share quota.
func TestOrderIsThatOfAdmissions(t *testing.T) {
	for seed := range uint64(100) {
		random := rand.New(rand.NewPCG(seed, 0))
		g := newGame()
		if seed%2 == 1 {
			g.sharing = &configapi.FairSharing{}
		}
		for q := range 4 {
			change := func(*kueue.ClusterQueueSpec) {}
			if random.IntN(2) == 0 {
				change = strictly
			}
			g.queue(string(rune('a'+q)), []string{"", "all"}[random.IntN(2)], []string{"0", "40", "100"}[random.IntN(3)], change)
		}
		g.queue("lender", "all", "400")
		for n := range 20 {
			g.waits(fmt.Sprintf("job-%02d", n), string(rune('a'+random.IntN(4))), 1+random.Int32N(3), random.Int32N(3), func(wl *kueue.Workload) {
				wl.CreationTimestamp = metav1.NewTime(time.Unix(int64(random.IntN(900)), int64(n)))
			})
		}
		b, contest := g.board(t), g.contest()
		among, looked, admitted := map[string]string{}, map[string][]string{}, map[string][]string{}
		for _, turn := range expect.Must(contest.Order(t.Context()))(t) {
			name := turn.Workload.Name
			among[name] = cmp.Or(turn.Cohort, string(turn.ClusterQueue))
			if slices.Contains(b.moves, "Admitted "+name) {
				looked[among[name]] = append(looked[among[name]], name)
			}
		}
		for _, move := range b.moves {
			name := strings.TrimPrefix(move, "Admitted ")
			admitted[among[name]] = append(admitted[among[name]], name)
		}
		expect.Same(t, fmt.Sprintf("Seed %d: unexpected order", seed), admitted, looked)
	}
}

// What light uses in an hour counts more then than the two GPUs that heavy had consumed, of which half has faded.
func TestWhoHasConsumedLessGoesFirst(t *testing.T) {
	g := newGame().queue("a", "", "4", func(spec *kueue.ClusterQueueSpec) {
		spec.AdmissionScope = &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing}
	})
	light, heavy := g.LocalQueues[0], g.LocalQueues[0]
	light.Name, heavy.Name = "light", "heavy"
	heavy.Status.FairSharing = &kueue.LocalQueueFairSharingStatus{AdmissionFairSharingStatus: &kueue.LocalQueueAdmissionFairSharingStatus{
		ConsumedResources: corev1.ResourceList{gpu.Whole: resource.MustParse("2")},
	}}
	g.LocalQueues = []kueue.LocalQueue{light, heavy}
	world := g.World()
	world.Kueue.AdmissionFairSharing = &configapi.AdmissionFairSharing{
		UsageHalfLifeTime: metav1.Duration{Duration: time.Hour}, UsageSamplingInterval: metav1.Duration{Duration: 5 * time.Minute},
	}
	b := &board{t: t, now: time.Unix(1000, 0)}
	b.Player = expect.Must(scheduler.NewPlayer(t.Context(), world, b.now))(t)
	for n, name := range []string{"heavy-1", "light-1", "light-2"} {
		wl := job(name, name[:len("heavy")], 4, 0)
		wl.CreationTimestamp = metav1.NewTime(time.Unix(int64(n), 0))
		expect.NoError(t, b.Add(t.Context(), wl))
	}
	b.settle()
	b.SetTime(t.Context(), b.now.Add(time.Hour))
	b.Remove(t.Context(), key("light-1"))
	b.wake()
	expect.Same(t, "Unexpected moves", []string{"Admitted light-1", "Admitted heavy-1"}, b.moves)
}
