// SPDX-License-Identifier: Apache-2.0

package forecast

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
)

// Traits are what jobs that run equally long have in common.
type Traits struct {
	Runtime, Queue, User string
	GPUs                 int64
}

// Past is a job of which it is known how long it ran, or has run so far.
type Past struct {
	Traits
	Ran
	// Limit is the time limit that it had; zero for none.
	Limit time.Duration
	// Submitted is when it was.
	Submitted time.Time
	// Job is its Workload's; empty where that does not matter.
	Job types.UID
}

// Source is what a running time is known from.
type Source string

// The sources, the best one first.
const (
	// Reported: the trainer itself says how long it has left.
	Reported Source = "trainer"
	// Similar: from jobs like it.
	Similar Source = "history"
	// Measured: from jobs of its queue, or of all, that Prometheus counted.
	Measured Source = "prometheus"
	// Limited: it has a time limit, and no more is known.
	Limited Source = "limit"
	// Assumed: the user said so.
	Assumed Source = "assumed"
	// Endless: it is a service, which runs until somebody ends it.
	Endless Source = "service"
	// Unknown: nothing is known.
	Unknown Source = "unknown"
)

// Subject is a job whose running time is asked for.
type Subject struct {
	Traits
	// Submitted is when it was; zero where it is not known.
	Submitted time.Time
	// Job is its Workload's, by which it is found among past jobs when it runs.
	Job types.UID
	// Running is how long it has run; zero for one that waits.
	Running time.Duration
	// Reported is what the trainer says is left; nil where it says nothing.
	Reported *time.Duration
	// Service is set where it has no end of its own.
	Service bool
	// Limit is the time after which it is stopped, as its user wrote it; zero for none.
	Limit time.Duration
	// Left is what earlier runs have left of a limit that all its runs share; zero where each has its own.
	Left time.Duration
}

// limit is that of a run; zero for none.
func (s *Subject) limit() time.Duration { return min(cmp.Or(s.Left, s.Limit), s.Limit) }

// Running is what is known of a running time.
type Running struct {
	Source Source
	// Like tells which jobs it is known from, with source Similar or Measured.
	Like    string
	subject Subject
	// group is nil with other sources.
	group *group
}

// Runtimes know how long jobs run.
type Runtimes struct {
	// groups are of jobs that are known one by one, measured of those of histograms.
	groups, measured map[string]*group

	kin map[family]kin
	// acrossQueues and acrossLimits are whether kin may be in different queues, and have different time limits.
	acrossQueues, acrossLimits bool
	// levels have the doubts that the past teaches.
	levels [len(levels)]level
	assume time.Duration
}

// group is the jobs that are like each other, sorted by time, of which enough have ended to tell something.
type group struct{ ran []Ran }

const enough = 20

func tells(ran []Ran) bool {
	return len(kueuelib.Pick(ran, func(r *Ran) bool { return r.Ended })) >= enough
}

// NewRuntimes learns from past jobs and from histograms, which are of others or of the same. Of a job of which nothing
// is known the running time is assumed; zero assumes none.
func NewRuntimes(past []Past, assume time.Duration, histograms ...Histogram) *Runtimes {
	past = slices.Clone(past)
	slices.SortStableFunc(past, func(a, b Past) int { return cmp.Compare(a.For, b.For) })
	r := &Runtimes{groups: map[string]*group{}, measured: map[string]*group{}, assume: assume}
	r.learnKin(past)
	r.learnMeasured(past, histograms)
	for _, p := range past {
		for _, like := range p.groups(p.Limit) {
			r.groups[like] = cmp.Or(r.groups[like], &group{})
			r.groups[like].ran = append(r.groups[like].ran, p.Ran)
		}
	}
	maps.DeleteFunc(r.groups, func(_ string, g *group) bool { return !tells(g.ran) })
	return r
}

// groups names the groups that a job is in, the closest one first. A time limit says much of what its user expects:
// those with the same one are alike.
func (t Traits) groups(limit time.Duration) []string {
	size := "1 GPU"
	switch {
	case t.GPUs == 0:
		size = "no GPU"
	case t.GPUs > 1 && t.GPUs <= 8:
		size = "2 to 8 GPUs"
	case t.GPUs > 8:
		size = "more than 8 GPUs"
	}
	var all []string
	if limit > 0 {
		all = append(all, fmt.Sprintf("queue %s, %s, limit %s", t.Queue, size, limit), fmt.Sprintf("queue %s, limit %s", t.Queue, limit), fmt.Sprintf("limit %s", limit))
	}
	if t.Runtime != "" && t.User != "" {
		all = append(all, fmt.Sprintf("runtime %s, queue %s, user %s, %s", t.Runtime, t.Queue, t.User, size))
	}
	if t.User != "" {
		all = append(all, fmt.Sprintf("queue %s, user %s", t.Queue, t.User))
	}
	if t.Runtime != "" {
		all = append(all, fmt.Sprintf("runtime %s, queue %s, %s", t.Runtime, t.Queue, size), fmt.Sprintf("runtime %s", t.Runtime))
	}
	return append(all, fmt.Sprintf("queue %s, %s", t.Queue, size), ofQueue(t.Queue), allQueues)
}

// allQueues and ofQueue name the widest groups, which histograms have, too.
const allQueues = "all queues"

func ofQueue(name string) string { return "queue " + name }

// Of returns what is known of a job.
func (r *Runtimes) Of(s Subject) Running {
	known := Running{subject: s, Source: Unknown}
	if s.Service && s.Limit == 0 {
		known.Source = Endless
		return known
	}
	if s.Reported != nil && *s.Reported > 0 { // One that is overdue tells nothing.
		known.Source = Reported
		return known
	}
	for _, like := range s.groups(s.Limit) {
		if g := r.groups[like]; g != nil {
			known.Source, known.Like, known.group = Similar, like, g
			return known
		}
		if g := r.measured[like]; g != nil {
			known.Source, known.Like, known.group = Measured, like, g
			return known
		}
	}
	switch {
	case s.Limit > 0:
		known.Source = Limited
	case r.assume > 0:
		known.Source = Assumed
	}
	return known
}

// again is how long a job runs that is preempted and starts over: as long as it would have all in all.
func (k *Running) again(rest time.Duration) time.Duration {
	if rest == 0 {
		return 0
	}
	return k.subject.Running + rest
}

// another is what is known of one more such job, which is submitted at some time. Of one that reports it runs as long
// as that one will have.
func (k Running) another(at time.Time) Running {
	if k.Source == Reported {
		whole := k.subject.Running + *k.subject.Reported
		k.subject.Reported = &whole
	}
	k.subject.Submitted, k.subject.Running, k.subject.Job, k.subject.Left = at, 0, "", 0
	return k
}
