// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// notCreated is for a manifest, and for a job if it had another priority: what would become of it now.
func notCreated(f *Facts) *State {
	if f.Job.UID != "" && f.Supposed == "" {
		return nil
	}
	s := undescribed(f)
	if s == nil && f.Workload != nil {
		if s = f.heldBack(); s != nil {
			s.Message = "waits all the same, " + s.Message
		}
	}
	switch managed, known := f.managesNamespace(); {
	case s != nil:
	case f.queueName() == "":
		s = unnamed(f)
	case known && !managed:
		s = unmanaged(f)
	}
	if s == nil {
		if s = queueAway(f); s != nil {
			s.Message = "would not start: it " + s.Message
		}
	}
	if s == nil {
		s = scheduled(f)
	}
	s.Phase = NotCreated
	if f.Replaces {
		s.Message = "exists already; created again, it " + s.Message
	}
	if f.Supposed != "" {
		s.Phase, s.Message = Waiting, fmt.Sprintf("with priority %d (%s) %s", f.Priority, f.Supposed, s.Message)
	}
	return s
}

func undescribed(f *Facts) *State {
	switch {
	case errors.Is(f.Undescribed, podset.ErrCannotRun):
		return &State{Reason: "CannotRun", Stuck: true, Message: "would be refused: " + f.Undescribed.Error()}
	case errors.Is(f.Undescribed, errNoClass):
		return &State{Reason: noClass, Stuck: true, Message: "would not be queued: " + f.Undescribed.Error(),
			Remedy: "create it, or name another: kubectl get workloadpriorityclasses"}
	case apierrors.IsForbidden(f.Undescribed):
		return &State{Reason: Unseen, Message: "cannot be described, because you may not read its runtime: " + f.Undescribed.Error(),
			Remedy: "ask an admin for the right to get it, or name a file with the runtime beside the job by -f"}
	case f.Undescribed != nil:
		return &State{Reason: "RuntimeMissing", Stuck: true, Message: "cannot be described: " + f.Undescribed.Error()}
	}
	return nil
}

// unnamed is for a manifest without a queue, of which Kueue's configuration says whether it
// is Kueue's all the same.
func unnamed(f *Facts) *State {
	s := &State{Reason: "NoQueue", Remedy: labelRemedy}
	switch managed, known := f.managedWithoutQueue(); {
	case !known:
		s.Message = "names no queue; whether it would start at once or be held depends on Kueue's manageJobsWithoutQueueName, which cannot be seen"
	case managed:
		s.Stuck, s.Message = true, "names no queue, and Kueue manages jobs without one (manageJobsWithoutQueueName): it would be held and never start"
	default:
		s.Message = "names no queue, so it would start at once, outside of all quotas"
	}
	return s
}

// managedWithoutQueue reports whether Kueue manages the job though it names no queue, and
// whether that can be told.
func (f *Facts) managedWithoutQueue() (managed, known bool) {
	if f.Kueue != nil && !f.Kueue.ManageJobsWithoutQueueName {
		return false, true
	}
	return f.managesNamespace()
}

// scheduled is for a manifest that Kueue would queue.
func scheduled(f *Facts) *State {
	asks := fmt.Sprintf("asks for %s", needs(f.PodSets))
	d := f.forecast()
	if d == nil {
		return unforeseen(f, asks)
	}
	switch d.Outcome {
	case scheduler.Admits:
		return f.warned(&State{Reason: "Fits", Message: fmt.Sprintf("%s and could have them now in %s: %s", asks, f.queueText(), assignmentText(d.Admission))})
	case scheduler.Preempts:
		return f.warned(&State{Reason: "Preempts",
			Message: fmt.Sprintf("%s and would get them in %s by preempting %s: %s", asks, f.queueText(), f.victimsText(d), assignmentText(d.Admission))})
	case scheduler.Blocks:
		s := f.behind(d)
		s.Message = fmt.Sprintf("would wait in %s: %s, and %s", f.queueText(), asks, s.Message)
		return s
	}
	s := f.refused(d)
	s.Message = fmt.Sprintf("would wait in %s: %s, %s", f.queueText(), asks, s.Message)
	return &s
}

// unforeseen is for who may not see what Kueue goes by.
func unforeseen(f *Facts, asks string) *State {
	verdicts := Flavors(f)
	if _, ok := assignable(verdicts); !ok {
		s := lacking(verdicts)
		s.Message = fmt.Sprintf("would wait in %s: %s, %s", f.queueText(), asks, s.Message)
		return &s
	}
	return &State{Reason: Unseen,
		Message: fmt.Sprintf("%s in %s; whether they are free cannot be told, because you may not see what others have", asks, f.queueText()),
		Remedy:  "ask an admin to run this command, or submit the job and explain it by its name"}
}

// refused tells why Kueue lets a job wait: by the flavors or, where these would do, in its own
// words.
func (f *Facts) refused(d *scheduler.Decision) State {
	verdicts := Flavors(f)
	assignment, ok := assignable(verdicts)
	switch {
	case !ok:
		return lacking(verdicts)
	case d.Behind != nil:
		return State{Reason: string(InUse), Remedy: "wait" + f.above(d.Behind, "before it"),
			Message: fmt.Sprintf("which would fit (%s), but Kueue keeps it for %s: %s", assignment, frontText(d.Behind), d.Message)}
	case d.Before != nil:
		return State{Reason: "BehindOthers", Remedy: "wait" + f.above(d.Before, "before it"),
			Message: fmt.Sprintf("which would fit (%s), but Kueue gives it to %s first", assignment, nameOf(d.Before))}
	}
	return State{Reason: string(InUse), Message: "Kueue would say: " + cmp.Or(d.Message, "others are before it"),
		Remedy: f.quotaRemedy()}
}

// warned adds what the pods would run into that Kueue does not look at.
func (f *Facts) warned(s *State) *State {
	if r := warnedOf(Flavors(f)); r != nil {
		s.Reason, s.Remedy, s.Stuck = string(r.Code), r.Remedy, true
		s.Message += ", but " + r.Message
	}
	return s
}
