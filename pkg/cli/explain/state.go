// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobclient"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// Phase is how far a TrainJob has come.
type Phase string

// The phases. Scripts rely on them.
const (
	NotCreated  Phase = "NotCreated"  // a manifest
	NotManaged  Phase = "NotManaged"  // Kueue has nothing to do with it
	Unqueued    Phase = "Unqueued"    // it asks for a queue and has no Workload
	Waiting     Phase = "Waiting"     // it waits for quota
	Reserved    Phase = "Reserved"    // it has quota and waits for admission checks
	Starting    Phase = "Starting"    // it is admitted, and not all of its pods run
	Elsewhere   Phase = "Elsewhere"   // MultiKueue has it in another cluster, which was not looked into
	Running     Phase = "Running"     // all pods that can run do
	Stopping    Phase = "Stopping"    // it was evicted, and pods of its former run are left
	Held        Phase = "Held"        // its user keeps it out of its queue
	Deactivated Phase = "Deactivated" // somebody, or Kueue, took it out of the queue
	Succeeded   Phase = "Succeeded"
	Failed      Phase = "Failed"
)

// Reasons that commands go by.
const (
	Unseen     = "Unseen"     // the reason of a state that the user may not see enough to tell
	Evaluating = "Evaluating" // that of a job that Kueue gives quota to when it comes to look
	// KueueRefuses is that of a job that fits by all that is seen, and that Kueue lets wait. When it starts, nobody can
	// tell who does not know why; it is stuck where Kueue says what no quota helps against.
	KueueRefuses = "KueueRefuses"
)

// State is where a TrainJob stands and why.
type State struct {
	Phase   Phase        `json:"phase"`
	Reason  string       `json:"reason,omitempty"`  // one word for scripts, stable like the phases
	Message string       `json:"message,omitempty"` // goes on from the job's name: "waits in queue gpus …"
	Remedy  string       `json:"remedy,omitempty"`  // what would help; empty where nothing has to be done
	Stuck   bool         `json:"stuck"`             // set where the job gets nowhere until somebody acts
	Cause   string       `json:"-"`                 // tells jobs apart that one act does not help together; it is for doctor
	Hidden  string       `json:"-"`                 // the kind that would tell more, which the user may not list; it is for list
	Since   *metav1.Time `json:"since,omitempty"`   // when the state began, as far as that is known
}

// because takes over why another state lasts, and what helps; words go before what it says.
func (s *State) because(o *State, words string) {
	s.Reason, s.Remedy, s.Cause, s.Stuck, s.Message = o.Reason, o.Remedy, o.Cause, o.Stuck, words+o.Message
}

// waits reports whether the job is on its way to running, or gets nowhere.
func (s *State) waits() bool {
	switch s.Phase {
	case NotManaged, Running, Succeeded, Failed:
		return s.Stuck
	}
	return true
}

// Paint has red for what people have to look at, and green for what is well.
func (s *State) Paint(paint show.Paint) func(string) string {
	switch {
	case s.Stuck || s.Phase == Failed:
		return paint.Red
	case s.Phase == Running || s.Phase == Succeeded || s.Reason == "Fits":
		return paint.Green
	}
	return paint.Yellow
}

// StateOf tells the state of a TrainJob. The first that applies is it.
func StateOf(f *Facts) State {
	return *first(f, notCreated, uncopied, finished, deleting, inWorker, dispatching, managedElsewhere, notManaged, unmanaged, forgotten,
		heldOut, workloadOver, deactivated, inPhase, running)
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

func finished(f *Facts) *State {
	phase, verb, c := Succeeded, "is complete", kueuelib.True(f.Job.Status.Conditions, trainer.TrainJobComplete)
	if c == nil {
		phase, verb, c = Failed, "has failed", kueuelib.True(f.Job.Status.Conditions, trainer.TrainJobFailed)
	}
	if c == nil {
		return nil
	}
	return &State{Phase: phase, Reason: c.Reason, Message: verb + ": " + c.Message, Since: since(c.LastTransitionTime)}
}

// forgotten is for a job that has ended, which Trainer does not say any more: its JobSet is gone, by its TTL for one.
func forgotten(f *Facts) *State {
	s := &State{Phase: Failed, Reason: jobevents.ReasonEnded, Message: "has ended; Trainer forgot it with its JobSet"}
	switch wl := f.Workload; {
	case wl == nil && jobclient.HasEnded(f.Job):
		return s
	case wl == nil || !state.Ended(wl) || !f.Job.Suspended() || len(f.livePods()) > 0:
		return nil
	}
	over, verb := f.condition(kueue.WorkloadFinished), "has failed"
	if over.Reason == kueue.WorkloadFinishedReasonSucceeded {
		s.Phase, verb = Succeeded, "is complete"
	}
	s.Reason, s.Since, s.Message = over.Reason, since(over.LastTransitionTime), fmt.Sprintf("%s (%s); Trainer forgot it with its JobSet", verb, over.Message)
	return s
}

// over reports whether the job has ended, also where Trainer forgot that.
func (f *Facts) over() bool { return f.Job.Finished() || forgotten(f) != nil }

func deleting(f *Facts) *State {
	if f.Job.DeletionTimestamp.IsZero() {
		return nil
	}
	return &State{Phase: Stopping, Reason: "Deleted", Message: "is being deleted" + podsLeft(f, keepsQuota), Since: f.Job.DeletionTimestamp}
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
	s.Message += podsLeft(f, ", while its quota goes to others")
	return s
}

// anotherWorkload is what helps a job whose Workload Kueue deactivated: Kueue queues no such Workload again.
func (f *Facts) anotherWorkload() string {
	return fmt.Sprintf("put right what its message says, and create the TrainJob again, or have somebody with Kueue's role batch-admin delete its Workload, and it queues again with another: kubectl -n %s delete workload %s",
		f.Workload.Namespace, f.Workload.Name)
}

// stopping is for a job that keeps its quota until the last pod is gone: evicted, suspended, or admitted again since.
func stopping(f *Facts) *State {
	s := &State{Phase: Stopping, Reason: "PodsLeft", Message: fmt.Sprintf("is suspended, and pods of its run are left (%s)", f.assignment())}
	if evicted := f.condition(kueue.WorkloadEvicted); evicted != nil {
		s.Reason, s.Message, s.Since = evicted.Reason, eviction(f, evicted), since(evicted.LastTransitionTime)
	}
	s.Message += podsLeft(f, keepsQuota)
	return s
}

// keepsQuota is of pods that are left: a job has its quota as long as it has pods.
const keepsQuota = ", it keeps the quota until they are gone"

// podsLeft says that pods are still there, and what of that; empty where there are none.
func podsLeft(f *Facts, so string) string {
	n := len(f.livePods())
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %s still there%s", show.Count(n, "pod"), so)
}

func running(f *Facts) *State {
	run := int64(len(f.livePods()))
	if !f.Saw(inventory.Pods) {
		_, wanted := f.podsMade()
		run = int64(wanted)
	}
	s := &State{Phase: Running, Reason: "Running", Message: "runs", Since: f.conditionSince(kueue.WorkloadAdmitted)}
	if f.Saw(inventory.Pods) || f.hiddenJobs() == nil {
		s.Message += fmt.Sprintf(" with %s", show.Count(run, "pod"))
	}
	if f.Workload != nil {
		s.Message += fmt.Sprintf(" in %s: %s, %s", f.queueText(), needs(f.PodSets), f.assignment())
	}
	return s
}
