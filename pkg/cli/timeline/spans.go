// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"slices"
	"time"
)

// Phase is what a TrainJob spends time with.
type Phase string

// The phases. Scripts rely on them.
const (
	// Preparing: Trainer and JobSet make what is queued.
	Preparing Phase = "Preparing"
	// WaitingForQuota: it waits in its queue.
	WaitingForQuota Phase = "WaitingForQuota"
	// Held: its user keeps it out of its queue.
	Held Phase = "Held"
	// Deactivated: spec.active of its Workload is false.
	Deactivated Phase = "Deactivated"
	// WaitingForChecks: it has quota, and admission checks are open.
	WaitingForChecks Phase = "WaitingForChecks"
	// Starting: it is admitted, and has no pods yet.
	Starting Phase = "Starting"
	// WaitingForPods: its pods are there, and do not all run.
	WaitingForPods Phase = "WaitingForPods"
	// Started: its pods were there until it stopped, and nothing that is left tells whether all ran.
	Started Phase = "Started"
	// Running: all pods run.
	Running Phase = "Running"
	// Stopping: it was evicted or stopped, and pods are left.
	Stopping Phase = "Stopping"
)

var phases = []Phase{Preparing, WaitingForQuota, Held, Deactivated, WaitingForChecks, Starting, WaitingForPods, Started, Running, Stopping}

// idle is a phase of a job that has been made ready, and has no quota.
func (p Phase) idle() bool { return p == WaitingForQuota || p == Held || p == Deactivated }

// begins says which phase a milestone begins. Pods may be made, bound and run before anybody
// has noted a start, but not out of an eviction.
var begins = map[milestone]Phase{
	created: Preparing, queued: WaitingForQuota, quota: WaitingForChecks, admitted: Starting, podsMade: WaitingForPods,
	copyAdmitted: Starting, podsRun: Running, ready: Running, evicted: Stopping, stopped: Stopping, quotaFree: WaitingForQuota,
	waiting: WaitingForQuota, held: Held, unheld: WaitingForQuota, deactivated: Stopping, activated: WaitingForQuota,
}

// idles says what a job does from a milestone on, when it has no quota.
var idles = map[milestone]Phase{
	quota: WaitingForQuota, held: Held, unheld: WaitingForQuota, deactivated: Deactivated, activated: WaitingForQuota,
}

// Span is the time that one phase took, of all that there was.
type Span struct {
	Phase   Phase   `json:"phase"`
	Seconds float64 `json:"seconds"`
	// Share is between 0 and 1.
	Share float64 `json:"share"`
}

// part is an uninterrupted time in one phase.
type part struct {
	phase    Phase
	from, to time.Time
	// stopped is set where the job stopped and was not evicted by Kueue, until it has quota again.
	stopped bool
}

// parts follows the steps, which are in order, to the end of the job or to now.
func parts(steps []Step, now time.Time) []part {
	var out []part
	idle := WaitingForQuota
	for _, s := range steps {
		if s.milestone == finished {
			now = s.Time
			break
		}
		idle = cmp.Or(idles[s.milestone], idle)
		out = next(out, s, idle)
	}
	if last := len(out) - 1; last >= 0 {
		out[last].to = later(now, out[last].from)
	}
	return untold(out, steps)
}

// next adds the part that a step begins, if it begins one. What a job does without quota is idle.
func next(out []part, s Step, idle Phase) []part {
	phase, known := begins[s.milestone]
	switch {
	case !known:
		return out
	case len(out) == 0:
		return []part{{phase: phase, from: s.Time}}
	}
	last := &out[len(out)-1]
	free := last.phase.idle() || last.phase == Preparing
	if s.milestone == unheld && last.stopped {
		// When it was held is not told any more; nobody but its user has stopped it.
		last.phase = Held
	}
	if phase.idle() || s.milestone == deactivated && free {
		phase = idle
	}
	if phase == last.phase || s.milestone == held && !free || !follows(last.phase, phase) {
		return out
	}
	at := s.Time
	if s.milestone == podsRun && s.Until != nil {
		at = *s.Until
	}
	last.to = later(at, last.from)
	return append(out, part{phase: phase, from: last.to, stopped: s.milestone == stopped || last.stopped && phase == WaitingForQuota})
}

// untold calls the time of pods Started where the job stopped and no kubelet is heard of: they may have run.
func untold(all []part, steps []Step) []part {
	for n := range all {
		p := &all[n]
		heard := func(s Step) bool { return s.Actor == Kubelet && !s.Time.Before(p.from) && !s.Time.After(p.to) }
		if p.phase == WaitingForPods && n+1 < len(all) && all[n+1].phase == Stopping && !slices.ContainsFunc(steps, heard) {
			p.phase = Started
		}
	}
	return all
}

// follows reports whether a phase may come after another: one of the way to running only after
// one before it, else it is old news, such as of pods that come again while others run. Quota
// that is reserved again says that a stop is over, whoever told of its end.
func follows(last, next Phase) bool {
	switch {
	case next.idle():
		return true
	case next == Stopping:
		// JobSet tells of being suspended when it is made, too.
		return last != Preparing && !last.idle()
	case last == Stopping:
		return next == WaitingForChecks || next == Starting
	}
	return slices.Index(phases, next) > slices.Index(phases, last)
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

func spans(all []part) []Span {
	sums := map[Phase]time.Duration{}
	var total time.Duration
	for _, p := range all {
		sums[p.phase] += p.to.Sub(p.from)
		total += p.to.Sub(p.from)
	}
	out := []Span{}
	for _, phase := range phases {
		if sum, was := sums[phase]; was {
			span := Span{Phase: phase, Seconds: sum.Seconds()}
			if total > 0 {
				span.Share = float64(sum) / float64(total)
			}
			out = append(out, span)
		}
	}
	return out
}
