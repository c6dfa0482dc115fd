// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var (
	foresightScenarios = flag.Int("foresight.scenarios", 1, "random scenarios that are compared with their simulation")
	foresightSeed      = flag.Uint64("foresight.seed", 1, "seed of the first of them")
	foresightJobs      = flag.Int("foresight.jobs", 20, "TrainJobs in each")
)

// agrees is the least share of what happens that a simulation has to tell as it was: times of a cluster are not exact.
const agrees = 0.95

// Running times are those that were measured: what is compared is what Kueue decides, and not how fast a machine is.
var _ = Describe("What Kueue does is what its simulation does", func() {
	for n := range *foresightScenarios {
		seed := *foresightSeed + uint64(n)
		// On a machine that does much else, jobs start and end at other times than here, and what follows is another course.
		It(fmt.Sprintf("in random scenario %d", seed), long, func(ctx context.Context) {
			w := newWorld(ctx)
			random := rand.New(rand.NewPCG(seed, seed))
			queues := w.drawQueues(ctx, random)
			seen := w.watchCourse(ctx)
			for i := range *foresightJobs {
				w.makeOfOneSecond(ctx, w.drawJob(random, i, queues))
			}
			for i := range *foresightJobs {
				w.eventuallyFinished(ctx, fmt.Sprintf("job-%02d", i))
			}
			was := seen()
			a := was.compare(w.simulate(ctx, was))
			AddReportEntry("agreement", a.String())
			GinkgoWriter.Printf("seed %d: %s\n%s\n%s\n", seed, a, strings.Join(a.differences, "\n"), strings.Join(a.course, "\n"))
			for what, share := range map[string]share{"flavors": a.flavors, "order": a.order, "preempted": a.preempted} {
				Expect(share.of()).To(BeNumerically(">=", agrees), "%s: %s\n%s", what, a, strings.Join(a.differences, "\n"))
			}
		}, SpecTimeout(15*time.Minute))
	}
})

// drawQueues makes two or three teams of one cohort.
func (w *site) drawQueues(ctx context.Context, random *rand.Rand) (names []string) {
	w.Make(ctx, kit.Priority(w.Name("low"), 1), kit.Priority(w.Name("high"), 100), w.Flavor("h100", onH100), w.Flavor("a100", onA100))
	for n := range 2 + random.IntN(2) {
		name := fmt.Sprintf("team-%d", n)
		cq := kit.ClusterQueue(w.Name(name), kit.Quota{Flavor: w.Name("h100"), GPUs: drawn(random, "4", "8")}, kit.Quota{Flavor: w.Name("a100"), GPUs: drawn(random, "0", "4", "8")})
		cq.Spec.CohortName = kueue.CohortReference(w.Name("all"))
		cq.Spec.QueueingStrategy = drawn(random, kueue.BestEffortFIFO, kueue.StrictFIFO)
		cq.Spec.Preemption.WithinClusterQueue = drawn(random, kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority)
		cq.Spec.Preemption.ReclaimWithinCohort = drawn(random, kueue.PreemptionPolicyNever, kueue.PreemptionPolicyLowerPriority, kueue.PreemptionPolicyAny)
		cq.Spec.FlavorFungibility.WhenCanPreempt = drawn(random, kueue.MayStopSearch, kueue.TryNextFlavor)
		quota := &cq.Spec.ResourceGroups[0].Flavors[0].Resources[0]
		quota.BorrowingLimit = drawn(random, nil, ptr.To(resource.MustParse("4")))
		quota.LendingLimit = drawn(random, nil, ptr.To(resource.MustParse("2")))
		w.Make(ctx, cq, kit.LocalQueue(w.Namespace, name, cq.Name))
		names = append(names, name)
	}
	return names
}

func drawn[T any](random *rand.Rand, from ...T) T { return from[random.IntN(len(from))] }

func (w *site) drawJob(random *rand.Rand, n int, queues []string) *kit.TrainJobBuilder {
	return w.Job(fmt.Sprintf("job-%02d", n)).Queue(drawn(random, queues...)).GPUs(drawn(random, "1", "2", "4")).
		Priority(w.Name(drawn(random, "low", "low", "high"))).
		PodAnnotation("example.com/foresight", "node", "localcluster/run-for", fmt.Sprintf("%ds", 8+random.IntN(25)))
}

// makeOfOneSecond makes a job in a second of its own: those that came or got quota in one have no order.
func (w *site) makeOfOneSecond(ctx context.Context, job *kit.TrainJobBuilder) {
	w.Make(ctx, job.Obj())
	made := w.EventuallyWorkload(ctx, job.Name).CreationTimestamp.Time
	Eventually(ctx, func() bool { return time.Now().After(made.Add(2 * time.Second)) }).Should(BeTrue())
}

// course is what became of TrainJobs, by the names of their Workloads.
type course map[string]*passage

// passage is what became of one: times of its Workload as the spec has seen them.
type passage struct {
	job                               string
	workload                          *kueue.Workload
	came, first, last, stopped, ended time.Time
	// flavor is that of the first start.
	flavor    string
	preempted bool
	stopping  time.Duration
}

// watchCourse follows the Workloads from now on.
func (w *site) watchCourse(ctx context.Context) (seen func() course) {
	all := course{}
	reading, stop := world.Follow(ctx, w.World, &kueue.WorkloadList{}, func(wl *kueue.Workload) { all.note(wl, time.Now()) })
	return func() course {
		stop()
		var copied course
		reading(func() { copied = maps.Clone(all) })
		return copied
	}
}

func (c course) note(wl *kueue.Workload, now time.Time) {
	p := c[wl.Name]
	if p == nil {
		p = &passage{job: wl.OwnerReferences[0].Name, came: now, workload: wl}
		c[wl.Name] = p
	}
	before := p.workload
	p.workload = wl
	is := func(wl *kueue.Workload, condition string) bool {
		return apimeta.IsStatusConditionTrue(wl.Status.Conditions, condition)
	}
	switch {
	case is(wl, kueue.WorkloadFinished):
		if p.ended.IsZero() {
			p.ended = now
		}
	case is(wl, kueue.WorkloadEvicted) && !is(before, kueue.WorkloadEvicted):
		p.preempted, p.stopped = true, now
	case is(before, kueue.WorkloadQuotaReserved) && !is(wl, kueue.WorkloadQuotaReserved):
		p.stopping = now.Sub(p.stopped)
	case is(wl, kueue.WorkloadAdmitted) && !is(before, kueue.WorkloadAdmitted):
		p.start(flavorOf(wl), now)
	}
}

func (p *passage) start(flavor string, now time.Time) {
	if p.first.IsZero() {
		p.first, p.flavor = now, flavor
	}
	p.last = now
}

func flavorOf(wl *kueue.Workload) string {
	return string(wl.Status.Admission.PodSetAssignments[0].Flavors[kit.GPU])
}

// simulate plays the same jobs, which come when they came and run for as long as they ran.
func (w *site) simulate(ctx context.Context, was course) course {
	i, err := inventory.Load(ctx, w.Client)
	Expect(err).NotTo(HaveOccurred())
	settings := forecast.Settings{Begin: time.Now(), Horizon: time.Hour}
	var jobs []forecast.Job
	simulated, preempted := course{}, time.Duration(0)
	for name, p := range was {
		wl := p.workload.DeepCopy()
		wl.Status = kueue.WorkloadStatus{}
		jobs = append(jobs, forecast.Job{Workload: wl, Arrives: p.came, Runs: p.ended.Sub(p.last)})
		simulated[name] = &passage{job: p.job}
		if p.preempted {
			settings.Stopping += p.stopping
			preempted++
		}
		if begin := p.came.Add(-time.Second); begin.Before(settings.Begin) {
			settings.Begin = begin
		}
	}
	settings.Stopping /= max(1, preempted)
	Expect(forecast.Play(ctx, i.World(), jobs, settings, func(e forecast.Event) {
		switch p := simulated[e.Job.Name]; e.Kind {
		case forecast.Started:
			p.start(flavorOf(e.Workload), e.At)
		case forecast.Preempted:
			p.preempted = true
		}
	})).To(Succeed())
	return simulated
}

// share is how many of some are alike.
type share struct{ alike, all int }

func (s *share) add(alike bool) bool {
	s.all++
	if alike {
		s.alike++
	}
	return alike
}

func (s share) of() float64 { return float64(s.alike) / float64(max(1, s.all)) }

// agreement is how much two courses are alike.
type agreement struct {
	flavors, order, preempted share
	// stopped is how many were preempted.
	stopped int
	// differences are what is not alike, and course all that happened.
	differences, course []string
}

func (a *agreement) String() string {
	return fmt.Sprintf("%d of %d in the same flavor, %d of %d pairs in the same order, %d of %d preempted or not alike, of which %d were",
		a.flavors.alike, a.flavors.all, a.order.alike, a.order.all, a.preempted.alike, a.preempted.all, a.stopped)
}

// after is how long after another time one is, as exactly as matters.
func after(begin, at time.Time) time.Duration { return at.Sub(begin).Round(100 * time.Millisecond) }

// compare asks of each job in which flavor it started first and whether it was preempted, and of each two which
// started first, but for those of about one moment.
func (c course) compare(other course) *agreement {
	const moment = 2 * time.Second
	a := &agreement{}
	names := slices.SortedFunc(maps.Keys(c), func(x, y string) int { return cmp.Compare(c[x].job, c[y].job) })
	begin := c[names[0]].came
	for n, name := range names {
		p, q := c[name], other[name]
		a.course = append(a.course, fmt.Sprintf("%s of %s, %s, priority %d: came %s, ran %s; started %s in %q, simulated %s in %q", p.job, p.workload.Spec.QueueName,
			p.workload.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests.Name(kit.GPU, resource.DecimalSI), ptr.Deref(p.workload.Spec.Priority, 0),
			after(begin, p.came), after(p.last, p.ended), after(begin, p.first), p.flavor, after(begin, q.first), q.flavor))
		if !a.flavors.add(p.flavor == q.flavor) {
			a.differences = append(a.differences, fmt.Sprintf("%s started in %q, and not in %q", p.job, p.flavor, q.flavor))
		}
		if p.preempted {
			a.stopped++
		}
		if !a.preempted.add(p.preempted == q.preempted) {
			a.differences = append(a.differences, fmt.Sprintf("%s was preempted: %t, and not %t", p.job, p.preempted, q.preempted))
		}
		for _, next := range names[n+1:] {
			r, s := c[next], other[next]
			if gap := r.first.Sub(p.first); gap.Abs() > moment && !a.order.add((gap > 0) == s.first.After(q.first)) {
				a.differences = append(a.differences, fmt.Sprintf("%s started %s after %s, and not %s", r.job, gap.Round(time.Second), p.job, s.first.Sub(q.first).Round(time.Second)))
			}
		}
	}
	return a
}
