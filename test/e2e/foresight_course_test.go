// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	managed "github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

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

// courseOf is what was recorded of Workloads until now.
func courseOf(workloads *record.Recorder) course {
	c := course{}
	for _, v := range workloads.Versions() {
		c.note(read[kueue.Workload](v.Object), v.At)
	}
	return c
}

func (c course) note(wl *kueue.Workload, now time.Time) {
	p := c[wl.Name]
	if p == nil {
		p = &passage{job: wl.OwnerReferences[0].Name, came: now, workload: wl}
		c[wl.Name] = p
	}
	before := p.workload
	p.workload = wl
	switch {
	case is(wl, kueue.WorkloadFinished):
		if p.ended.IsZero() {
			p.ended = now
		}
	case is(wl, kueue.WorkloadEvicted) && !is(before, kueue.WorkloadEvicted):
		why := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted).Reason
		p.preempted, p.stopped = p.preempted || why == kueue.WorkloadEvictedByPreemption, now
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

// simulate plays the same jobs, which come when they came and run for as long as they ran, act by act.
func (w *site) simulate(ctx context.Context, was course, acts []act) course {
	config := must(managed.KueueConfiguration(ctx, w.Client))
	settings := forecast.Settings{Stopping: was.stopping(), FairSharing: config.FairSharing}
	simulated := course{}
	for name, p := range was {
		simulated[name] = &passage{job: p.job}
	}
	for n, a := range acts {
		settings.Begin, settings.Horizon = a.begin, time.Hour
		if n+1 < len(acts) {
			settings.Horizon = acts[n+1].begin.Sub(a.begin)
		}
		Expect(forecast.Play(ctx, a.world, was.jobs(a), settings, func(e forecast.Event) {
			switch p := simulated[e.Job.Name]; e.Kind {
			case forecast.Started:
				p.start(flavorOf(e.Workload), e.At)
			case forecast.Preempted:
				p.preempted = true
			}
		})).To(Succeed())
	}
	return simulated
}

// atLeast is how long its pods run: a start that was seen late makes a run too short.
func (p *passage) atLeast() time.Duration {
	wanted := must(time.ParseDuration(p.workload.Spec.PodSets[0].Template.Annotations[runFor]))
	return wanted
}

// stopping is how long evicted jobs took to stop, in the mean.
func (c course) stopping() time.Duration {
	var sum time.Duration
	evicted := 0
	for _, p := range c {
		if !p.stopped.IsZero() {
			sum += p.stopping
			evicted++
		}
	}
	return sum / time.Duration(max(1, evicted))
}

// jobs are those that had not ended when an act began.
func (c course) jobs(a act) []forecast.Job {
	var jobs []forecast.Job
	for name, p := range c {
		if then := a.then[name]; then == nil || then.ended.IsZero() {
			jobs = append(jobs, p.from(then, a.begin))
		}
	}
	return jobs
}

// from is the job as it was when an act began; then is nil where it had not come.
func (p *passage) from(then *passage, begin time.Time) forecast.Job {
	whole := max(p.ended.Sub(p.last), p.atLeast())
	job := forecast.Job{Workload: p.workload.DeepCopy(), Runs: whole, Again: whole}
	job.Workload.Status = kueue.WorkloadStatus{}
	switch {
	case then == nil:
		job.Arrives = p.came
	case is(then.workload, kueue.WorkloadQuotaReserved):
		job.Workload = then.workload.DeepCopy()
		job.Runs = max(time.Second, whole-begin.Sub(then.last))
	}
	return job
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

func (s *share) join(other share) { s.alike, s.all = s.alike+other.alike, s.all+other.all }

func (s share) of() float64 { return float64(s.alike) / float64(max(1, s.all)) }

// agreement is how much two courses are alike.
type agreement struct {
	flavors, order, preempted share
	// stopped is how many were preempted.
	stopped int
	// differences are what is not alike, and course all that happened.
	differences, course []string
}

// join adds up what two agreements come to.
func (a *agreement) join(other *agreement) {
	a.flavors.join(other.flavors)
	a.order.join(other.order)
	a.preempted.join(other.preempted)
	a.stopped += other.stopped
	a.differences = append(a.differences, other.differences...)
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
		a.course = append(a.course, fmt.Sprintf("%s of %s, %d pods of %s, priority %d: came %s, ran %s; started %s in %q, simulated %s in %q", p.job, p.workload.Spec.QueueName, p.workload.Spec.PodSets[0].Count,
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
