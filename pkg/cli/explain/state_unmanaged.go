// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
)

const labelRemedy = "name a LocalQueue of its namespace in label kueue.x-k8s.io/queue-name"

// managedElsewhere is for a job that neither Trainer runs nor, by way of Kueue, MultiKueue.
func managedElsewhere(f *Facts) *State {
	if !f.Job.ManagedExternally() || cluster.ForMultiKueue(f.Job) && (f.Workload != nil || f.queueName() != "") {
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
	told := f.warning("NamespaceNotManaged")
	if f.Workload != nil || !known && told == nil {
		return nil
	}
	s := &State{Phase: NotManaged, Reason: "NamespaceNotManaged", Remedy: f.managedRemedy()}
	if known && managed {
		if f.Job.Suspended() || !f.Saw(workloads) || f.Field.Has(&f.Job.Spec) || f.JobSet == nil || f.JobSet.CreationTimestamp.After(f.settings().LabelledAt(f.Namespace)) {
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
	var overrides kueueconfig.Overrides
	if f.Manager != nil {
		overrides = f.Manager.Overrides
	}
	settings, _ := kueueconfig.Of(f.Kueue, overrides)
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
