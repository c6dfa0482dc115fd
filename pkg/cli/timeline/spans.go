// SPDX-License-Identifier: Apache-2.0

package timeline

import (
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
	// WaitingForChecks: it has quota, and admission checks are open.
	WaitingForChecks Phase = "WaitingForChecks"
	// Starting: it is admitted, and has no pods yet.
	Starting Phase = "Starting"
	// WaitingForPods: its pods are there, and do not all run.
	WaitingForPods Phase = "WaitingForPods"
	// Running: all pods run.
	Running Phase = "Running"
	// Stopping: it was evicted or stopped, and pods are left.
	Stopping Phase = "Stopping"
)

var phases = []Phase{Preparing, WaitingForQuota, WaitingForChecks, Starting, WaitingForPods, Running, Stopping}

// begins says which phase a milestone begins. Pods may be made, bound and run before anybody
// has noted a start, but not out of an eviction.
var begins = map[milestone]Phase{
	created: Preparing, queued: WaitingForQuota, quota: WaitingForChecks, admitted: Starting, podsMade: WaitingForPods,
	copyAdmitted: Starting, podsRun: Running, ready: Running, evicted: Stopping, stopped: Stopping, quotaFree: WaitingForQuota,
	waiting: WaitingForQuota,
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
}

// parts follows the steps, which are in order, to the end of the job or to now.
func parts(steps []Step, now time.Time) []part {
	var out []part
	for _, s := range steps {
		if s.milestone == finished {
			now = s.Time
			break
		}
		phase, begins := begins[s.milestone]
		at := s.Time
		if s.milestone == podsRun && s.Until != nil {
			at = *s.Until
		}
		last := len(out) - 1
		if !begins || last >= 0 && (out[last].phase == phase || !follows(out[last].phase, phase)) {
			continue
		}
		if last >= 0 {
			at = later(at, out[last].from)
			out[last].to = at
		}
		out = append(out, part{phase: phase, from: at})
	}
	if last := len(out) - 1; last >= 0 {
		out[last].to = later(now, out[last].from)
	}
	return out
}

// follows reports whether a phase may come after another: one of the way to running only after
// one before it, else it is old news, such as of pods that come again while others run. Quota
// that is reserved again says that a stop is over, whoever told of its end.
func follows(last, next Phase) bool {
	switch {
	case next == WaitingForQuota:
		return true
	case next == Stopping:
		// JobSet tells of being suspended when it is made, too.
		return last != Preparing && last != WaitingForQuota
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

// spans sums up each phase.
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
