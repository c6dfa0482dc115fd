// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

var (
	foresightScenarios = flag.Int("foresight.scenarios", 5, "random scenarios that are compared with their simulation")
	foresightSeed      = flag.Uint64("foresight.seed", 1, "seed of the first of them")
	foresightJobs      = flag.Int("foresight.jobs", 20, "TrainJobs in each")
)

// agrees is the least share of what happens that a simulation has to tell as it was: times of a cluster are not exact.
const agrees = 0.95

// runFor is the annotation of pods that says how long they run.
const runFor = "localcluster/run-for"

// On a machine that does much else, jobs start and end at other times than here, and what follows is another course.
var _ = Describe("What Kueue does is what its simulation does", Ordered, ContinueOnFailure, compareScenarios)

// Kueue shares fairly in a whole cluster or nowhere.
var _ = Describe("What Kueue does is what its simulation does under fair sharing", Label("control"), Serial, Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) {
		restartKueueWith(ctx, map[string]any{
			"fairSharing": map[string]any{"preemptionStrategies": []any{"LessThanOrEqualToFinalShare", "LessThanInitialShare"}},
		}, slices.Compact([]string{"kueue", cluster.Manager()})...)
	})
	compareScenarios()
})

// compareScenarios has random scenarios run, one after the other. A second decides at times which of two jobs is next, or
// is preempted: so it is the whole that has to agree.
func compareScenarios() {
	all := newAgreement()
	for n := range *foresightScenarios {
		seed := *foresightSeed + uint64(n)
		It(fmt.Sprintf("in random scenario %d", seed), long, func(ctx context.Context) {
			all.join(compareWithSimulation(ctx, seed))
		}, SpecTimeout(15*time.Minute))
	}
	It("in nearly all that happens", long, func() {
		for _, of := range []string{"flavor", "order", "preempted"} {
			Expect(all.share(of)).To(BeNumerically(">=", agrees), "%s: %s\n%s", of, all, strings.Join(all.differences, "\n"))
		}
	})
}

// compareWithSimulation has jobs come, and compares what becomes of them with their simulation. Running times are those
// that were measured: what is compared is what Kueue decides, and not how fast a machine is.
func compareWithSimulation(ctx context.Context, seed uint64) *agreement {
	w := newWorld(ctx)
	random := rand.New(rand.NewPCG(seed, seed))
	s := w.drawScenery(ctx, random)
	seen := w.record(ctx, workloadResource)
	acts := []act{w.act(ctx, seen)}
	for i := range *foresightJobs {
		if s.stopped != nil && i == *foresightJobs/2 {
			acts = append(acts, w.stop(ctx, seen, s))
		}
		// Each in a second of its own: those that came or got quota in one have no order.
		job := w.drawJob(random, i, s)
		w.Make(ctx, job.Obj())
		made := w.EventuallyWorkload(ctx, job.Name).CreationTimestamp.Time
		Eventually(ctx, func() bool { return time.Now().After(made.Add(2 * time.Second)) }).Should(BeTrue())
	}
	w.eventuallyAllFinished(ctx, func(wl *kueue.Workload) bool { return !s.stops(wl) })
	if s.stopped != nil {
		lifted := w.act(ctx, seen)
		w.SetStopPolicy(ctx, s.stopped, kueue.None)
		lifted.world = w.simulatedWorld(ctx)
		acts = append(acts, lifted)
		w.eventuallyAllFinished(ctx, func(*kueue.Workload) bool { return true })
	}
	eventuallyWhole(ctx, seen)
	was := courseOf(seen)
	a := was.compare(w.simulate(ctx, was, acts))
	AddReportEntry("agreement", a.String())
	GinkgoWriter.Printf("seed %d: %d queues, a topology: %t, %s of %T: %s\n%s\n%s\n", seed, len(s.queues), s.placed, s.policy, s.stopped, a, strings.Join(a.differences, "\n"), strings.Join(a.course, "\n"))
	return a
}

// scenery is what jobs are drawn for.
type scenery struct {
	queues []string
	// placed is set where flavor h100 has nodes of its own below a topology.
	placed bool
	// stopped is a queue that is stopped while jobs come, by a policy; nil where none is.
	stopped client.Object
	policy  kueue.StopPolicy
}

func (s *scenery) stops(wl *kueue.Workload) bool {
	return s.stopped != nil && strings.HasPrefix(s.stopped.GetName(), string(wl.Spec.QueueName))
}

// drawScenery makes two or three teams of one cohort.
func (w *site) drawScenery(ctx context.Context, random *rand.Rand) *scenery {
	s := &scenery{placed: random.IntN(3) == 0}
	w.Make(ctx, kit.Priority(w.Name("low"), 1), kit.Priority(w.Name("mid"), 50), kit.Priority(w.Name("high"), 100), w.Flavor("a100", onA100))
	if s.placed {
		w.twoNodes(ctx)
	} else {
		w.Make(ctx, w.Flavor("h100", onH100))
	}
	for n := range 2 + random.IntN(2) {
		name := fmt.Sprintf("team-%d", n)
		cq := w.drawClusterQueue(random, name)
		w.Make(ctx, cq, kit.LocalQueue(w.Namespace, name, cq.Name))
		s.queues = append(s.queues, name)
	}
	if random.IntN(3) == 0 {
		name := drawn(random, s.queues...)
		s.stopped = drawn[client.Object](random, kit.LocalQueue(w.Namespace, name, ""), kit.ClusterQueue(w.Name(name)))
		s.policy = drawn(random, kueue.Hold, kueue.HoldAndDrain)
	}
	return s
}

// drawClusterQueue has small quotas, and mostly a policy that lets late jobs preempt earlier ones.
func (w *site) drawClusterQueue(random *rand.Rand, name string) *kueue.ClusterQueue {
	cq := kit.ClusterQueue(w.Name(name), kit.Quota{Flavor: w.Name("h100"), GPUs: drawn(random, "4", "8")}, kit.Quota{Flavor: w.Name("a100"), GPUs: drawn(random, "0", "4")})
	cq.Spec.CohortName = kueue.CohortReference(w.Name("all"))
	cq.Spec.QueueingStrategy = drawn(random, kueue.BestEffortFIFO, kueue.StrictFIFO)
	cq.Spec.Preemption.WithinClusterQueue = drawn(random, kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyLowerOrNewerEqualPriority)
	cq.Spec.Preemption.ReclaimWithinCohort = drawn(random, kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyAny, kueue.PreemptionPolicyAny)
	cq.Spec.FlavorFungibility.WhenCanPreempt = drawn(random, kueue.MayStopSearch, kueue.TryNextFlavor)
	cq.Spec.FairSharing = &kueue.FairSharing{Weight: new(resource.MustParse(drawn(random, "1", "2", "500m")))}
	quota := &cq.Spec.ResourceGroups[0].Flavors[0].Resources[0]
	quota.BorrowingLimit = drawn(random, nil, new(resource.MustParse("4")))
	quota.LendingLimit = drawn(random, nil, new(resource.MustParse("2")))
	cq.Spec.FlavorFungibility.WhenCanBorrow = drawn(random, kueue.MayStopSearch, kueue.TryNextFlavor)
	if cq.Spec.Preemption.ReclaimWithinCohort != kueue.PreemptionPolicyNever {
		cq.Spec.Preemption.BorrowWithinCohort = drawn(random, nil, &kueue.BorrowWithinCohort{
			Policy: kueue.BorrowWithinCohortPolicyLowerPriority, MaxPriorityThreshold: drawn(random, nil, new(int32(0))),
		})
	}
	return cq
}

// twoNodes makes flavor h100 of two nodes below a topology, which have fewer GPUs than queues may get.
func (w *site) twoNodes(ctx context.Context) {
	for n := range 2 {
		w.Make(ctx, kit.Node(w.Name(fmt.Sprintf("node-%d", n)), map[string]string{fabricLabel: w.Suffix}))
	}
	w.eventuallyUsable(ctx)
	flavor := w.Flavor("h100", map[string]string{fabricLabel: w.Suffix})
	flavor.Spec.TopologyName = new(kueue.TopologyReference(w.Name("nodes")))
	w.Make(ctx, kit.Topology(w.Name("nodes"), corev1.LabelHostname), flavor)
}

func drawn[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }

// drawJob draws one for a scene: the later, the higher its priority, so that many are preempted.
func (w *site) drawJob(random *rand.Rand, n int, s *scenery) *kit.TrainJobBuilder {
	priorities := []string{"low", "low", "mid"}
	if n > *foresightJobs/3 {
		priorities = []string{"low", "mid", "high"}
	}
	job := w.Job(fmt.Sprintf("job-%02d", n)).Queue(drawn(random, s.queues...)).Nodes(1+random.Int32N(2)).GPUs(drawn(random, "1", "2", "3")).
		Priority(w.Name(drawn(random, priorities...))).
		PodAnnotations("example.com/foresight", runFor, fmt.Sprintf("%ds", 8+random.IntN(25)), "node")
	// Without one of these it could not have a flavor with a topology beside one that has none.
	if asks := drawn(random, required(corev1.LabelHostname), preferred(corev1.LabelHostname), unconstrained()); s.placed {
		return asking(job, "node", asks)
	}
	return job
}

// act begins when somebody has changed something; what was there then is what its simulation begins with.
type act struct {
	begin time.Time
	world *scheduler.World
	then  course
}

func (w *site) act(ctx context.Context, seen *record.Recorder) act {
	return act{begin: time.Now(), world: w.simulatedWorld(ctx), then: courseOf(seen)}
}

func (w *site) simulatedWorld(ctx context.Context) *scheduler.World {
	return must(inventory.Load(ctx, w.Client)).World()
}

// stop stops a queue, and returns the act that begins when Kueue has done what that asks of it.
func (w *site) stop(ctx context.Context, seen *record.Recorder, s *scenery) act {
	w.SetStopPolicy(ctx, s.stopped, s.policy)
	// The condition of both kinds of queues has the same name.
	w.EventuallyIs(ctx, s.stopped, s.stopped.GetName(), world.Condition(kueue.ClusterQueueActive, metav1.ConditionFalse))
	Eventually(ctx, w.workloads).WithArguments(ctx).ShouldNot(ContainElement(Satisfy(func(wl kueue.Workload) bool {
		runs := is(&wl, kueue.WorkloadQuotaReserved) && !is(&wl, kueue.WorkloadEvicted) && !is(&wl, kueue.WorkloadFinished)
		return runs && s.stops(&wl) && s.policy == kueue.HoldAndDrain
	})))
	return w.act(ctx, seen)
}

func (w *site) workloads(ctx context.Context) []kueue.Workload {
	return world.All(ctx, Default, w, &kueue.WorkloadList{}, client.InNamespace(w.Namespace)).Items
}

// eventuallyAllFinished waits for those of some kind.
func (w *site) eventuallyAllFinished(ctx context.Context, counts func(*kueue.Workload) bool) {
	left := func(wl kueue.Workload) bool { return counts(&wl) && !is(&wl, kueue.WorkloadFinished) }
	Eventually(ctx, w.workloads).WithArguments(ctx).WithTimeout(10 * time.Minute).WithPolling(time.Second).
		ShouldNot(ContainElement(Satisfy(left)))
}

func is(wl *kueue.Workload, condition string) bool {
	return apimeta.IsStatusConditionTrue(wl.Status.Conditions, condition)
}
