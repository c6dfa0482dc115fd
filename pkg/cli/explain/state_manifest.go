// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// notCreated is for a manifest, and for a job if it had another priority: what would become of it now.
func notCreated(f *Facts) *State {
	if !f.supposed() {
		return nil
	}
	s := first(f, undescribed, saying("waits all the same, ", heldBack), unnamed, unmanaged, saying("would not start: it ", queueAway), scheduled)
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
		return &State{Reason: jobevents.ReasonNoPriority, Stuck: true, Message: "would not be queued: " + f.Undescribed.Error(),
			Remedy: "create it, or name another: kubectl get workloadpriorityclasses"}
	case apierrors.IsForbidden(f.Undescribed):
		return &State{Reason: Unseen, Message: "cannot be described, because you may not read its runtime: " + f.Undescribed.Error(),
			Remedy: "ask an admin for the right to get it, or name a file with the runtime beside the job by -f"}
	case f.Undescribed != nil:
		return &State{Reason: "RuntimeMissing", Stuck: true, Message: "cannot be described: " + f.Undescribed.Error()}
	}
	return nil
}

// saying puts words in front of what a look finds.
func saying(words string, look func(*Facts) *State) func(*Facts) *State {
	return func(f *Facts) *State {
		s := look(f)
		if s != nil {
			s.Message = words + s.Message
		}
		return s
	}
}

// unnamed is for a manifest without a queue, of which Kueue's configuration says whether it is Kueue's all the same.
func unnamed(f *Facts) *State {
	if f.queueName() != "" {
		return nil
	}
	managed, known := f.managesNamespace()
	if f.Kueue != nil && !f.Kueue.ManageJobsWithoutQueueName {
		managed, known = false, true
	}
	s := &State{Reason: "NoQueue", Remedy: labelRemedy, Stuck: managed}
	switch {
	case !known:
		s.Message = "names no queue; whether it would start at once or be held depends on Kueue's manageJobsWithoutQueueName, which cannot be seen"
	case managed:
		s.Message = "names no queue, and Kueue manages jobs without one (manageJobsWithoutQueueName): it would be held and never start"
	default:
		s.Message = "names no queue, so it would start at once, outside of all quotas"
	}
	return s
}

// scheduled is for a manifest that Kueue would queue.
func scheduled(f *Facts) *State {
	asks, d := "asks for "+needs(f.PodSets), f.forecast()
	_, assigned := assignable(Flavors(f))
	_, unseen := f.unseenQueues()
	switch {
	case d == nil && assigned:
		return &State{Reason: Unseen,
			Message: fmt.Sprintf("%s in %s; whether they are free cannot be told, because you may not see %s", asks, f.queueText(), unseen),
			Remedy:  "ask an admin to run this command, or submit the job and explain it by its name"}
	case d != nil && d.Outcome == scheduler.Admits:
		return f.warned(&State{Reason: "Fits", Message: fmt.Sprintf("%s and could have them now in %s: %s", asks, f.queueText(), assignmentText(d.Admission))})
	case d != nil && d.Outcome == scheduler.Preempts:
		return f.warned(&State{Reason: "Preempts",
			Message: fmt.Sprintf("%s and would get them in %s by preempting %s: %s", asks, f.queueText(), victimsText(d), assignmentText(d.Admission))})
	}
	s := f.refused(d)
	s.Message = fmt.Sprintf("would wait in %s: %s, %s", f.queueText(), asks, s.Message)
	return s
}

// warned adds what the pods would run into that Kueue does not look at.
func (f *Facts) warned(s *State) *State {
	if r := warnedOf(Flavors(f)); r != nil {
		s.because(r, s.Message+", but ")
	}
	return s
}

const labelRemedy = "name a LocalQueue of its namespace in label kueue.x-k8s.io/queue-name"

// managedElsewhere is for a job that neither Trainer runs nor, by way of Kueue, MultiKueue.
func managedElsewhere(f *Facts) *State {
	if !f.Job.ManagedExternally() || f.Job.ForMultiKueue() && (f.Workload != nil || f.queueName() != "") {
		return nil
	}
	return &State{Phase: NotManaged, Reason: "ManagedElsewhere",
		Message: fmt.Sprintf("belongs to %s (spec.managedBy), which may run it on another cluster", *f.Job.Spec.ManagedBy)}
}

func notManaged(f *Facts) *State {
	if f.queueName() != "" || f.Workload != nil || f.Field.HoldsGate(&f.Job.Spec) {
		return nil
	}
	s := &State{Phase: NotManaged, Reason: "NoQueue", Message: "names no queue: it runs outside of all quotas", Remedy: labelRemedy}
	if f.Job.Suspended() {
		s.Reason, s.Message = "Suspended", "names no queue and is suspended by its user"
		s.Remedy = "resume it (spec.suspend: false), or " + labelRemedy
		return s
	}
	if late := starting(f); late != nil {
		s.Message, s.Stuck = "names no queue: it "+late.Message, late.Stuck
		if late.Reason != corev1.PodReasonUnschedulable {
			s.Remedy = cmp.Or(late.Remedy, s.Remedy)
		}
	}
	return s
}

// unmanaged is for a job that names a queue in a namespace that Kueue does not manage, or did not when it began.
func unmanaged(f *Facts) *State {
	managed, known := f.managesNamespace()
	told := f.warning(jobevents.ReasonNotManaged)
	if f.Workload != nil || !known && told == nil {
		return nil
	}
	s := &State{Phase: NotManaged, Reason: jobevents.ReasonNotManaged, Remedy: f.managedRemedy()}
	if known && managed {
		if f.Job.Suspended() || !f.Saw(inventory.Workloads) || f.Field.Has(&f.Job.Spec) || f.JobSet == nil || f.JobSet.CreationTimestamp.After(f.settings().LabelledAt(f.Namespace)) {
			return nil
		}
		s.Reason, s.Message, s.Remedy = "BeganUnmanaged", "runs outside of all quotas: it began before Kueue managed its namespace", "suspend it, and it queues"
		return s
	}
	becomes := "it runs outside of all quotas"
	switch {
	case f.Job.UID == "":
		becomes = "it would start at once, outside of all quotas"
	case f.Job.Suspended():
		becomes = "it is suspended and waits for nobody"
		s.Remedy = "resume it (spec.suspend: false) to run it outside of all quotas, or " + s.Remedy
	}
	s.Message = fmt.Sprintf("names queue %s, but Kueue does not manage namespace %s (managedJobsNamespaceSelector): %s", f.queueName(), f.Job.Namespace, becomes)
	return s
}

// managesNamespace reports whether Kueue manages the job's namespace, and whether that can be told.
func (f *Facts) managesNamespace() (managed, known bool) {
	if f.Kueue == nil || f.Namespace == nil {
		return false, false
	}
	return f.settings().NamespaceSelector().Matches(labels.Set(f.Namespace.Labels)), true
}

// settings are Kueue's, and what the manager's configuration sets instead.
func (f *Facts) settings() *kueueconfig.Settings {
	settings, _ := kueueconfig.Of(f.Kueue, cluster.WithDefaults(f.Manager).Overrides)
	return settings
}

// managedRemedy says how a namespace comes to be Kueue's.
func (f *Facts) managedRemedy() string {
	remedy := "ask an admin to have Kueue manage the namespace"
	if f.Kueue != nil {
		if command := f.settings().LabelCommand(f.Job.Namespace); command != "" {
			remedy += ": " + command
		}
	}
	return remedy
}
