// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Phase is how far a TrainJob has come.
type Phase string

// The phases. Scripts rely on them.
const (
	// NotCreated is for a manifest.
	NotCreated Phase = "NotCreated"
	// NotManaged: Kueue has nothing to do with it.
	NotManaged Phase = "NotManaged"
	// Unqueued: it asks for a queue and has no Workload.
	Unqueued Phase = "Unqueued"
	// Waiting: it waits for quota.
	Waiting Phase = "Waiting"
	// Reserved: it has quota and waits for admission checks.
	Reserved Phase = "Reserved"
	// Starting: it is admitted, and not all of its pods run.
	Starting Phase = "Starting"
	// Elsewhere: MultiKueue has it in another cluster, which was not looked into.
	Elsewhere Phase = "Elsewhere"
	// Running: all pods that can run do.
	Running Phase = "Running"
	// Stopping: it was evicted, and pods of its former run are left.
	Stopping Phase = "Stopping"
	// Deactivated: somebody, or Kueue, took it out of the queue.
	Deactivated Phase = "Deactivated"
	// Succeeded and Failed: it is over.
	Succeeded Phase = "Succeeded"
	Failed    Phase = "Failed"
)

const (
	// Unseen is the reason of a state that the user may not see enough to tell.
	Unseen = "Unseen"
	// Evaluating is that of a job that Kueue gives quota to when it comes to look.
	Evaluating = "Evaluating"
)

// State is where a TrainJob stands and why.
type State struct {
	Phase Phase `json:"phase"`
	// Reason is one word for scripts, stable like the phases.
	Reason string `json:"reason,omitempty"`
	// Message goes on from the job's name: "waits in queue gpus …".
	Message string `json:"message,omitempty"`
	// Remedy is what would help; empty where nothing has to be done.
	Remedy string `json:"remedy,omitempty"`
	// Stuck is set where the job gets nowhere until somebody acts.
	Stuck bool `json:"stuck"`
	// Cause tells jobs apart that one act does not help together; it is for doctor.
	Cause string `json:"-"`
	// Since is when the state began, as far as that is known.
	Since *metav1.Time `json:"since,omitempty"`
}

// waits reports whether the job is on its way to running, or gets nowhere.
func (s *State) waits() bool {
	switch s.Phase {
	case NotManaged, Running, Succeeded, Failed:
		return s.Stuck
	}
	return true
}

// StateOf tells the state of a TrainJob. The first that applies is it.
func StateOf(f *Facts) State {
	if s := first(f, notCreated, finished, deleting, inWorker, dispatching, managedElsewhere, notManaged, unmanaged, heldOut, workloadOver, deactivated, inPhase); s != nil {
		return *s
	}
	return running(f)
}

// first returns what the first of some looks finds; nil for nothing.
func first(f *Facts, looks ...func(*Facts) *State) *State {
	for _, look := range looks {
		if s := look(f); s != nil {
			return s
		}
	}
	return nil
}

// inPhase is for a job that Kueue has to do with; nil for one that runs.
func inPhase(f *Facts) *State {
	switch state.PhaseOf(f.Job, f.Workload, f.JobSet) {
	case metrics.StateWaitingForTrainer:
		return unqueued(f)
	case metrics.StateStopping:
		return stopping(f)
	case metrics.StateQueued:
		if kueuelib.HasQuotaReservation(f.Workload) {
			return reserving(f)
		}
		return first(f, queueAway, waiting)
	}
	return first(f, unplaced, starting)
}

// since returns when something began, if that is known.
func since(t metav1.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// overdue reports whether something that takes a moment has taken too long.
func (f *Facts) overdue(begun metav1.Time) bool {
	return f.Now.Sub(begun.Time) > patience
}

const labelRemedy = "name a LocalQueue of its namespace in label kueue.x-k8s.io/queue-name"

func finished(f *Facts) *State {
	for _, end := range []struct {
		condition string
		phase     Phase
		verb      string
	}{{trainer.TrainJobComplete, Succeeded, "is complete"}, {trainer.TrainJobFailed, Failed, "has failed"}} {
		if c := apimeta.FindStatusCondition(f.Job.Status.Conditions, end.condition); c != nil && c.Status == metav1.ConditionTrue {
			return &State{Phase: end.phase, Reason: c.Reason, Message: end.verb + ": " + c.Message, Since: since(c.LastTransitionTime)}
		}
	}
	return nil
}

func deleting(f *Facts) *State {
	if f.Job.DeletionTimestamp.IsZero() {
		return nil
	}
	return &State{Phase: Stopping, Reason: "Deleted", Message: "is being deleted" + podsLeft(f), Since: f.Job.DeletionTimestamp}
}

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
		s.Remedy = fmt.Sprintf("resume it (spec.suspend: false), or %s", labelRemedy)
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
	const remedy = "ask an admin to have Kueue manage the namespace"
	if f.Kueue == nil {
		return remedy
	}
	if command := f.settings().LabelCommand(f.Job.Namespace); command != "" {
		return remedy + ": " + command
	}
	return remedy
}

// unqueued is for a job without a Workload: just made, or nobody reacts to it.
func unqueued(f *Facts) *State {
	s := &State{Phase: Unqueued, Reason: "JustMade", Message: "has no Workload yet", Since: since(f.Job.CreationTimestamp)}
	told := f.warning("InTreeActive", "TrainerUnknown", "PodSetsUnknown", noClass, "WriteRefused")
	unmade, classless := f.unmade(f.missing()...), f.classMissing()
	wait, known := f.waitForJobSet()
	switch {
	case !f.Saw(workloads):
		s.Reason, s.Message = Unseen, "is in a queue; you may not see its Workload"
	case f.queueName() == "":
		s.Reason, s.Message, s.Remedy, s.Stuck = "NoQueue", "is held at the admission gate and names no queue", labelRemedy, true
	case runtimeMissing(f.Undescribed):
		s.Reason, s.Message, s.Stuck = "RuntimeMissing", "is not queued, because its pods cannot be told: "+f.Undescribed.Error(), true
	case f.prebuilt() != "":
		return f.withoutPrebuilt()
	case unmade != nil:
		unmade.Phase, unmade.Since, unmade.Message = s.Phase, s.Since, "is not queued: "+unmade.Message
		return unmade
	case classless != nil:
		classless.Phase, classless.Since, classless.Message = s.Phase, s.Since, "is not queued: it "+classless.Message
		return classless
	case told != nil:
		s.Reason, s.Message, s.Cause, s.Stuck = told.Reason, "is not queued: "+told.Message, told.Message, true
	case f.overdue(f.jobSetBy(wait)):
		s.Reason, s.Stuck = "NobodyReacts", true
		s.Message = fmt.Sprintf("asks for queue %s and has no Workload after %s: nobody queues it", f.queueName(), show.Age(f.Now, f.Job.CreationTimestamp.Time))
		s.Remedy = "see that kueue-trainer runs: kubectl trainjob doctor"
		switch {
		case !known:
			s.Message += ", unless the manager's waitForJobSet is longer"
		case wait > config.WaitForJobSet:
			s.Message += ", unless the manager was restarted since and waits again from the beginning"
		}
	case wait > 0:
		s.Reason, s.Message = "AwaitsJobSet", "is not queued yet: Trainer has not made its JobSet, without which it queues after "
		if known {
			s.Message += fmt.Sprintf("%s (the manager's waitForJobSet)", wait)
		} else {
			s.Message += fmt.Sprintf("the manager's waitForJobSet, %s by default", wait)
		}
	case f.JobSet != nil && f.jobsToCome():
		s.Reason, s.Message = "AwaitsJobs", fmt.Sprintf("is not queued yet: JobSet has not made its Jobs, without which it queues after %s", config.WaitForJobs)
	}
	return s
}

// waitForJobSet is how long the manager has the job wait for a JobSet that is not there, and whether
// that is known; else it is the default.
func (f *Facts) waitForJobSet() (wait time.Duration, known bool) {
	switch {
	case f.JobSet != nil || f.Job.ManagedExternally():
		return 0, true
	case f.Manager == nil:
		return config.WaitForJobSet, false
	}
	return f.Manager.WaitForJobSet.Duration, true
}

// jobSetBy is when the JobSet was made, or from when on the job does not wait for it.
func (f *Facts) jobSetBy(wait time.Duration) metav1.Time {
	if js := f.JobSet; js != nil && f.Job.CreationTimestamp.Before(&js.CreationTimestamp) {
		return js.CreationTimestamp
	}
	return metav1.NewTime(f.Job.CreationTimestamp.Add(wait))
}

// missing names what is not there of a job, by the words of refusedMaking.
func (f *Facts) missing() []string {
	switch {
	case f.JobSet == nil:
		return []string{"JobSet"}
	case len(f.Jobs) == 0 || f.jobsToCome():
		return []string{"Jobs", "Service", "volume claims"}
	}
	return nil
}

// runtimeMissing tells what only a runtime, or another name, fixes from what the user may
// not see.
func runtimeMissing(err error) bool {
	return errors.Is(err, trainjob.ErrRuntimeNotFound) || errors.Is(err, trainjob.ErrRuntimeUnsupported)
}

func deactivated(f *Facts) *State {
	if f.Workload == nil || kueuelib.IsActive(f.Workload) {
		return nil
	}
	s := &State{Phase: Deactivated, Reason: "Deactivated", Stuck: true, Since: f.conditionSince(kueue.WorkloadEvicted),
		Message: "was taken out of its queue: spec.active of its Workload is false",
		Remedy: fmt.Sprintf(`kubectl -n %s patch workload %s --type=merge -p '{"spec":{"active":true}}'`,
			f.Workload.Namespace, f.Workload.Name)}
	if evicted := f.condition(kueue.WorkloadEvicted); evicted != nil && evicted.Reason != kueue.WorkloadDeactivated {
		s.Reason, s.Message = evicted.Reason, s.Message+" ("+evicted.Message+")"
	}
	if kueuelib.IsDeactivatedByKueue(f.Workload) {
		s.Remedy = f.anotherWorkload()
	}
	if n := len(f.livePods()); n > 0 {
		s.Message += fmt.Sprintf("; %s still there, while its quota goes to others", show.Count(n, "pod"))
	}
	return s
}

// anotherWorkload is what helps a job whose Workload Kueue deactivated: Kueue queues no such
// Workload again.
func (f *Facts) anotherWorkload() string {
	return fmt.Sprintf("put right what its message says, and create the TrainJob again, or delete its Workload, and it queues again with another: kubectl -n %s delete workload %s",
		f.Workload.Namespace, f.Workload.Name)
}

// stopping is for a job that keeps its quota until the last pod is gone: it was evicted, or suspended by its user, or has
// been admitted again since.
func stopping(f *Facts) *State {
	evicted := f.condition(kueue.WorkloadEvicted)
	if evicted == nil {
		return &State{Phase: Stopping, Reason: "PodsLeft", Message: fmt.Sprintf("is suspended, and pods of its run are left (%s)", f.assignment()) + podsLeft(f)}
	}
	return &State{Phase: Stopping, Reason: evicted.Reason, Message: eviction(f, evicted) + podsLeft(f), Since: since(evicted.LastTransitionTime)}
}

// podsLeft is for a job that has quota as long as it has pods.
func podsLeft(f *Facts) string {
	if there := podsThere(f); there != "" {
		return there + ", it keeps the quota until they are gone"
	}
	return ""
}

func podsThere(f *Facts) string {
	if n := len(f.livePods()); n > 0 {
		return fmt.Sprintf("; %s still there", show.Count(n, "pod"))
	}
	return ""
}
