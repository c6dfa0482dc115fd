// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/gpu"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// Result is what came of a play. Its JSON is for scripts: names stay, new ones may come.
type Result struct {
	// Waits are by LocalQueue and size, and over all with neither.
	Waits       []Waits `json:"waits"`
	Starts      int     `json:"starts"`
	Preemptions int     `json:"preemptions"`
	// LostGPUHours is what preempted jobs had run for: they start over.
	LostGPUHours float64 `json:"lostGPUHours"`
	// Used is the share of each flavor's GPU quota that is used, over time.
	Used []Usage `json:"used"`
}

// Waits are how long jobs waited.
type Waits struct {
	Queue string `json:"queue,omitempty"`
	Size  string `json:"size,omitempty"`
	Jobs  int    `json:"jobs"`
	// Waiting is how many have not started by the end.
	Waiting       int   `json:"waiting"`
	MedianSeconds int64 `json:"medianSeconds"`
	P90Seconds    int64 `json:"p90Seconds"`
}

// Usage is that of a flavor.
type Usage struct {
	Flavor string `json:"flavor"`
	GPUs   int64  `json:"gpus"`
	// Shares are means over equal parts of the time that was played.
	Shares []float64 `json:"shares"`
}

// parts is into how many parts a play is divided for a chart.
const parts = 60

type counter struct {
	begin   time.Time
	horizon time.Duration
	quota   map[string]int64
	jobs    map[client.ObjectKey]*counted
	used    map[string][]float64
	leftOut sets.Set[client.ObjectKey]
	result  Result
}

type counted struct {
	queue, size string
	came        time.Time
	waited      time.Duration
	started     bool
	// ran is since when it has run, which may be before all that is counted.
	ran  time.Time
	gpus map[string]int64
}

func newCounter(begin time.Time, horizon time.Duration, quota map[string]int64, jobs []forecast.Job) *counter {
	c := &counter{begin: begin, horizon: horizon, quota: quota, jobs: map[client.ObjectKey]*counted{}, used: map[string][]float64{}, leftOut: sets.New[client.ObjectKey]()}
	c.result.Waits, c.result.Used = []Waits{}, []Usage{} // Scripts expect lists.
	for n := range jobs {
		wl := jobs[n].Workload
		job := &counted{queue: wl.Namespace + "/" + string(wl.Spec.QueueName), size: sizeOf(wl), came: begin}
		if jobs[n].Arrives.After(begin) {
			job.came = jobs[n].Arrives
		}
		if wl.Status.Admission != nil {
			job.started, job.ran, job.gpus = true, runsSince(wl, begin), gpusOf(wl)
			job.queue = "" // Its wait is over, and not counted.
		}
		c.jobs[client.ObjectKeyFromObject(wl)] = job
	}
	return c
}

// runsSince is since when a Workload has run; now for one that does not, or by a clock that is ahead of this one.
func runsSince(wl *kueue.Workload, now time.Time) time.Time {
	admitted := kueuelib.Since(wl.Status.Conditions, kueue.WorkloadAdmitted)
	if admitted.IsZero() || admitted.After(now) {
		return now
	}
	return admitted
}

func (c *counter) tell(e forecast.Event) {
	job := c.jobs[e.Job]
	switch e.Kind {
	case forecast.Started:
		c.result.Starts++
		if !job.started {
			job.started, job.waited = true, e.At.Sub(job.came)
		}
		job.ran, job.gpus = e.At, gpusOf(e.Workload)
	case forecast.Preempted:
		c.result.Preemptions++
		for _, gpus := range job.gpus {
			c.result.LostGPUHours += float64(gpus) * e.At.Sub(job.ran).Hours()
		}
		c.stop(job, e.At)
	case forecast.LeftOut:
		c.leftOut.Insert(e.Job)
		delete(c.jobs, e.Job)
	case forecast.Queued, forecast.Ended: // Who was evicted before the begin holds its GPUs until it queues again.
		c.stop(job, e.At)
	}
}

func (c *counter) stop(job *counted, at time.Time) {
	part, since, until := c.horizon/parts, max(0, job.ran.Sub(c.begin)), at.Sub(c.begin)
	for flavor, gpus := range job.gpus {
		if c.used[flavor] == nil {
			c.used[flavor] = make([]float64, parts)
		}
		for n := range c.used[flavor] {
			from := time.Duration(n) * part
			held := max(0, min(until, from+part)-max(since, from))
			c.used[flavor][n] += float64(gpus) * held.Hours() / part.Hours()
		}
	}
	job.gpus = nil
}

func (c *counter) waiting(jobs []forecast.Job) []forecast.Job {
	return kueuelib.Pick(jobs, func(job *forecast.Job) bool {
		counted := c.jobs[client.ObjectKeyFromObject(job.Workload)]
		return counted != nil && !counted.started && !counted.came.After(c.begin.Add(c.horizon))
	})
}

func (c *counter) end() Result {
	waits := map[[2]string][]time.Duration{}
	waiting := map[[2]string]int{}
	end := c.begin.Add(c.horizon)
	for _, job := range c.jobs {
		c.stop(job, end)
		if job.queue == "" || job.came.After(end) {
			continue
		}
		if !job.started {
			job.waited = end.Sub(job.came).Round(time.Second)
		}
		for _, group := range [][2]string{{}, {job.queue, ""}, {job.queue, job.size}} {
			waits[group] = append(waits[group], job.waited)
			if !job.started {
				waiting[group]++
			}
		}
	}
	for _, group := range slices.SortedFunc(maps.Keys(waits), compareGroups) {
		all := waits[group]
		slices.Sort(all)
		c.result.Waits = append(c.result.Waits, Waits{
			Queue: group[0], Size: group[1], Jobs: len(all), Waiting: waiting[group],
			MedianSeconds: int64(all[len(all)/2].Seconds()), P90Seconds: int64(all[len(all)*9/10].Seconds()),
		})
	}
	for _, flavor := range slices.Sorted(maps.Keys(c.quota)) {
		usage := Usage{Flavor: flavor, GPUs: c.quota[flavor], Shares: make([]float64, parts)}
		for n, gpus := range c.used[flavor] {
			usage.Shares[n] = gpus / float64(max(1, usage.GPUs))
		}
		c.result.Used = append(c.result.Used, usage)
	}
	return c.result
}

func compareGroups(a, b [2]string) int { return slices.Compare(a[:], b[:]) }

var sizes = []struct {
	most int64
	name string
}{{0, "no GPU"}, {1, "1 GPU"}, {8, "2-8 GPUs"}, {64, "9-64 GPUs"}}

func sizeOf(wl *kueue.Workload) string {
	gpus := outlook.GPUs(wl)
	for _, size := range sizes {
		if gpus <= size.most {
			return size.name
		}
	}
	return "65+ GPUs"
}

func gpusOf(wl *kueue.Workload) map[string]int64 {
	all := map[string]int64{}
	for of, amount := range kueuelib.Holds(wl) {
		if gpu.IsResource(of.Resource) {
			all[string(of.Flavor)] = kueuelib.Sum(all[string(of.Flavor)], amount.Int64())
		}
	}
	return all
}
