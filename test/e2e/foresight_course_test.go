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
	settings := forecast.Settings{Stopping: was.stopping()}
	simulated := course{}
	for name, p := range was {
		simulated[name] = &passage{job: p.job}
	}
	for n, a := range acts {
		settings.Begin, settings.Horizon = a.begin, time.Hour
		if n+1 < len(acts) {
			settings.Horizon = acts[n+1].begin.Sub(a.begin)
		}
		a.world.Kueue.FairSharing = config.FairSharing
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
	// A start that was seen late makes a run too short.
	whole := max(p.ended.Sub(p.last), must(time.ParseDuration(p.workload.Spec.PodSets[0].Template.Annotations[runFor])))
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

// agreement is how much two courses are alike.
type agreement struct {
	// alike and all are numbers by what is compared: flavor, order, and preempted.
	alike, all map[string]int
	// stopped is how many were preempted.
	stopped int
	// differences are what is not alike, and course all that happened.
	differences, course []string
}

func newAgreement() *agreement { return &agreement{alike: map[string]int{}, all: map[string]int{}} }

// add counts what is alike, or notes the difference.
func (a *agreement) add(of string, alike bool, difference string, args ...any) {
	if a.all[of]++; alike {
		a.alike[of]++
		return
	}
	a.differences = append(a.differences, fmt.Sprintf(difference, args...))
}

// join adds up what two agreements come to.
func (a *agreement) join(other *agreement) {
	for of := range other.all {
		a.alike[of], a.all[of] = a.alike[of]+other.alike[of], a.all[of]+other.all[of]
	}
	a.stopped += other.stopped
	a.differences = append(a.differences, other.differences...)
}

func (a *agreement) share(of string) float64 {
	return float64(a.alike[of]) / float64(max(1, a.all[of]))
}

func (a *agreement) String() string {
	return fmt.Sprintf("%d of %d in the same flavor, %d of %d pairs in the same order, %d of %d preempted or not alike, of which %d were",
		a.alike["flavor"], a.all["flavor"], a.alike["order"], a.all["order"], a.alike["preempted"], a.all["preempted"], a.stopped)
}

// after is how long after another time one is, as exactly as matters.
func after(begin, at time.Time) time.Duration { return at.Sub(begin).Round(100 * time.Millisecond) }

// compare asks of each job in which flavor it started first and whether it was preempted, and of each two which
// started first, but for those of about one moment.
func (c course) compare(other course) *agreement {
	const moment = 2 * time.Second
	a := newAgreement()
	names := slices.SortedFunc(maps.Keys(c), func(x, y string) int { return cmp.Compare(c[x].job, c[y].job) })
	begin := c[names[0]].came
	for n, name := range names {
		p, q := c[name], other[name]
		a.course = append(a.course, fmt.Sprintf("%s of %s, %d pods of %s, priority %d: came %s, ran %s; started %s in %q, simulated %s in %q", p.job, p.workload.Spec.QueueName, p.workload.Spec.PodSets[0].Count,
			p.workload.Spec.PodSets[0].Template.Spec.Containers[0].Resources.Requests.Name(kit.GPU, resource.DecimalSI), ptr.Deref(p.workload.Spec.Priority, 0),
			after(begin, p.came), after(p.last, p.ended), after(begin, p.first), p.flavor, after(begin, q.first), q.flavor))
		a.add("flavor", p.flavor == q.flavor, "%s started in %q, and not in %q", p.job, p.flavor, q.flavor)
		a.add("preempted", p.preempted == q.preempted, "%s was preempted: %t, and not %t", p.job, p.preempted, q.preempted)
		if p.preempted {
			a.stopped++
		}
		for _, next := range names[n+1:] {
			r, s := c[next], other[next]
			if gap := r.first.Sub(p.first); gap.Abs() > moment {
				a.add("order", (gap > 0) == s.first.After(q.first), "%s started %s after %s, and not %s", r.job, gap.Round(time.Second), p.job, s.first.Sub(q.first).Round(time.Second))
			}
		}
	}
	return a
}
