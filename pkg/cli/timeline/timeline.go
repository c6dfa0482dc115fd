// SPDX-License-Identifier: Apache-2.0

// Package timeline tells every step of a TrainJob from created to finished, who took it, and
// where the time went, also of what MultiKueue runs in another cluster.
package timeline

import (
	"cmp"
	"slices"
	"time"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// Timeline is what the command tells. Its JSON is for scripts: names stay, new ones may come.
type Timeline struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Steps     []Step `json:"steps"`
	// Spans are where the time went, in the order in which they come; each phase once.
	Spans []Span `json:"spans"`
	// Ended is set for a TrainJob that is over.
	Ended bool `json:"ended"`
	// Unseen are the kinds that the user may not list.
	Unseen []string `json:"unseen,omitempty"`
	// Worker is the cluster that MultiKueue gave the TrainJob to last; nil where none has it.
	Worker *Worker `json:"worker,omitempty"`
	// FormerWorkers had it before, as far as events tell.
	FormerWorkers []Worker `json:"formerWorkers,omitempty"`
}

// Worker is a cluster of MultiKueue.
type Worker struct {
	Cluster string `json:"cluster"`
	// Problem is why the steps there are missing, or some of them.
	Problem string `json:"problem,omitempty"`
}

// Actor is who takes steps.
type Actor string

// The actors, in the order of the lanes.
const (
	User          Actor = "user"
	Webhook       Actor = "webhook"
	Trainer       Actor = "Trainer"
	JobSet        Actor = "JobSet"
	Manager       Actor = "kueue-trainer"
	Kueue         Actor = "Kueue"
	JobController Actor = "Job controller"
	Scheduler     Actor = "scheduler"
	Kubelet       Actor = "kubelet"
)

var actors = []Actor{User, Webhook, Trainer, JobSet, Manager, Kueue, JobController, Scheduler, Kubelet}

// Step is something that was done.
type Step struct {
	// Time is to the second where only a condition tells of it.
	Time time.Time `json:"time"`
	// Until is when the last of several was done.
	Until  *time.Time `json:"until,omitempty"`
	Actor  Actor      `json:"actor"`
	Object string     `json:"object"`
	Step   string     `json:"step"`
	// Cluster is the worker that it was done in; empty for the cluster that was asked.
	Cluster string `json:"cluster,omitempty"`

	milestone milestone
}

// where names the object, with the cluster where that is another one.
func (s *Step) where() string {
	if s.Cluster == "" {
		return s.Object
	}
	return s.Object + " in cluster " + s.Cluster
}

// milestone is a step that something begins with. They are in the order in which they come where the times do not tell.
type milestone int

const (
	created milestone = iota + 1
	changed
	gated
	prepared
	queued
	quota
	copyQueued
	copyQuota
	copyAdmitted
	copied
	copyPrepared
	copySuspended
	admitted
	started
	resumed
	podsMade
	podsBound
	podsRun
	ready
	held
	evicted
	deactivated
	stopped
	quotaFree
	unheld
	activated
	waiting
	podsEnded
	finished
	noted
)

// inOrder brings steps in order. One whose time is to the second stands within that where the way that it is a part of is
// kept best: behind what it follows from, and before what it leads to.
func inOrder(steps []Step) []Step {
	out := kueuelib.Pick(steps, func(s *Step) bool { return exact(s.Time) })
	coarse := kueuelib.Pick(steps, func(s *Step) bool { return !exact(s.Time) })
	slices.SortStableFunc(out, func(a, b Step) int { return a.Time.Compare(b.Time) })
	slices.SortStableFunc(coarse, func(a, b Step) int { return cmp.Or(a.Time.Compare(b.Time), cmp.Compare(a.milestone, b.milestone)) })
	for _, s := range coarse {
		from := slices.IndexFunc(out, func(o Step) bool { return !o.Time.Before(s.Time) })
		if from < 0 {
			out = append(out, s)
			continue
		}
		from += placeAmong(out[from:], &s)
		out = slices.Insert(out, from, s)
	}
	return out
}

// placeAmong is how many of some steps, in order and not before the second of another one, come before that.
func placeAmong(steps []Step, s *Step) int {
	end := slices.IndexFunc(steps, func(o Step) bool { return !o.Time.Truncate(time.Second).Equal(s.Time) })
	if end >= 0 {
		steps = steps[:end]
	}
	if s.milestone == noted {
		return len(steps)
	}
	// From one place to the next, one more stands before it: an inversion less where that comes earlier on the way, one more
	// where it comes later.
	best, inversions := 0, 0
	for n, fewest := 0, 0; n < len(steps); n++ {
		switch o := steps[n].milestone; {
		case o == noted:
		case o > s.milestone:
			inversions++
		case o < s.milestone, o == s.milestone && !exact(steps[n].Time):
			inversions--
		}
		// What is noted of others leads to all but the beginning.
		if inversions < fewest || inversions == fewest && best == n && steps[n].milestone == noted && s.milestone > prepared {
			best, fewest = n+1, inversions
		}
	}
	return best
}

// alike is how far apart the times may be that a condition and an event tell of one step.
const alike = 2 * time.Second

// once leaves out what a condition tells that an event has told more exactly.
func once(steps []Step) []Step {
	return kueuelib.Pick(steps, func(s *Step) bool {
		return !slices.ContainsFunc(steps, func(o Step) bool {
			return s.milestone != noted && o.milestone == s.milestone && o.Object == s.Object && exact(o.Time) && !exact(s.Time) && o.Time.Sub(s.Time).Abs() < alike
		})
	})
}

func exact(t time.Time) bool { return t.Nanosecond() != 0 }
