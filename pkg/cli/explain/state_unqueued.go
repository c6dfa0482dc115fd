// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/config/kueueconfig"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// unqueued is for a job without a Workload: just made, or nobody reacts to it.
func unqueued(f *Facts) *State {
	s := &State{Phase: Unqueued, Reason: "JustMade", Message: "has no Workload yet", Since: since(f.Job.CreationTimestamp)}
	blamed := cmp.Or(f.unmade(f.missing()...), f.classMissing(), f.told(jobevents.ReasonNotAlone, jobevents.ReasonTrainerUnknown, jobevents.ReasonNotDescribed, jobevents.ReasonNoPriority, jobevents.ReasonRefused))
	held := f.heldBack()
	wait, known := f.waitForJobSet()
	switch {
	case !f.Saw(inventory.Workloads):
		s.Reason, s.Hidden, s.Message = Unseen, inventory.Workloads, "is in a queue; you may not see its Workload"
	case f.queueName() == "":
		s.Reason, s.Message, s.Remedy, s.Stuck = "NoQueue", "is held at the admission gate and names no queue", labelRemedy, true
	case runtimeMissing(f.Undescribed):
		s.Reason, s.Message, s.Stuck = "RuntimeMissing", "is not queued, because its pods cannot be told: "+f.Undescribed.Error(), true
	case f.prebuilt() != "":
		return f.withoutPrebuilt()
	case blamed != nil:
		s.because(blamed, "is not queued: ")
	case held != nil:
		s.Reason, s.Message, s.Cause, s.Since = held.Reason, "is not queued: it "+held.Message, held.Message, since(metav1.NewTime(eventTime(held)))
		s.Remedy = fmt.Sprintf("put that right, and it queues again by itself; to have it do so at once: kubectl -n %s annotate trainjob %s try-again=\"$(date)\" --overwrite", f.Job.Namespace, f.Job.Name)
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

// queuesAgain is when a job queues again that gave its quota back, as the manager says by event CannotStart.
var queuesAgain = regexp.MustCompile(`queues again in ([0-9hms]+)`)

// heldBack returns what the manager said of a job that could not start and has yet to queue again; nil where that time is over.
func (f *Facts) heldBack() *corev1.Event {
	told := f.warning(jobevents.ReasonCannotStart)
	in := queuesAgain.FindStringSubmatch(ptr.Deref(told, corev1.Event{}).Message)
	if in == nil {
		return nil
	}
	hold, err := time.ParseDuration(in[1])
	if err != nil || f.overdue(metav1.NewTime(eventTime(told).Add(hold))) {
		return nil
	}
	return told
}

// waitForJobSet is how long the manager waits for a JobSet that is not there, and whether that is known; else the default.
func (f *Facts) waitForJobSet() (wait time.Duration, known bool) {
	if f.JobSet != nil || f.Job.ManagedExternally() {
		return 0, true
	}
	return cluster.WithDefaults(f.Manager).WaitForJobSet.Duration, f.Manager != nil
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

// runtimeMissing tells what only a runtime, or another name, fixes from what the user may not see.
func runtimeMissing(err error) bool {
	return errors.Is(err, trainjob.ErrRuntimeNotFound) || errors.Is(err, trainjob.ErrRuntimeUnsupported)
}

// prebuilt is the Workload that a job names to be its own; empty for none.
func (f *Facts) prebuilt() string { return jobframework.PrebuiltWorkloadNameFor(f.Job) }

// withoutPrebuilt is for a job that does not have the prebuilt Workload that it names.
func (f *Facts) withoutPrebuilt() *State {
	s := &State{Phase: Unqueued, Reason: "PrebuiltMissing", Since: since(f.Job.CreationTimestamp),
		Message: fmt.Sprintf("is not queued: it names prebuilt Workload %s, which is not there or not its own", f.prebuilt()),
		Remedy:  fmt.Sprintf("create Workload %s in namespace %s like the TrainJob, and the job queues", f.prebuilt(), f.Job.Namespace),
		Stuck:   f.overdue(f.Job.CreationTimestamp)}
	if told := f.told(jobevents.ReasonPrebuilt); told != nil {
		s.Message, s.Cause, s.Stuck = "is not queued: "+told.Message, told.Message, true
	}
	return s
}

// workloadOver is for a job whose Workload is finished, while itself it is not: nobody queues it again.
func workloadOver(f *Facts) *State {
	if f.Workload == nil || !kueuelib.IsFinished(f.Workload) {
		return nil
	}
	c := apimeta.FindStatusCondition(f.Workload.Status.Conditions, kueue.WorkloadFinished)
	s := &State{Phase: Deactivated, Reason: c.Reason, Stuck: true, Cause: f.Workload.Name, Since: since(c.LastTransitionTime)}
	switch {
	case c.Reason == kueue.WorkloadFinishedReasonOutOfSync:
		s.Message = fmt.Sprintf("gets no quota any more: its Workload %s was finished without a run: %s", f.Workload.Name, c.Message)
		s.Remedy = fmt.Sprintf("delete Workload %s and create it again like the TrainJob, and the job queues", f.Workload.Name)
		differs := func(e *corev1.Event) bool {
			return e.Reason == jobevents.ReasonPrebuilt && strings.Contains(e.Message, f.Workload.Name+" is not what this TrainJob is")
		}
		if told := find(f.Warnings, differs); told != nil {
			s.Message = "gets no quota any more: " + told.Message
		}
	case c.Reason == jobframework.FailedToStartFinishedReason:
		s.Message = fmt.Sprintf("could not be started, and its Workload %s is finished: %s", f.Workload.Name, c.Message)
		s.Remedy = fmt.Sprintf("put that right, then delete Workload %s, and the job queues again", f.Workload.Name)
	case f.Job.Suspended() && len(f.livePods()) == 0 && f.overdue(c.LastTransitionTime):
		s.Message = fmt.Sprintf("gets no quota any more: its Workload %s is finished, though the TrainJob is not: %s", f.Workload.Name, c.Message)
		s.Remedy = "delete the TrainJob and create it again"
	default:
		return &State{Phase: Stopping, Reason: c.Reason, Since: s.Since,
			Message: fmt.Sprintf("is about to end: its Workload %s is finished: %s", f.Workload.Name, c.Message) + podsLeft(f, "")}
	}
	return s
}

// heldOut is for a job that kubectl trainjob hold or stop keeps out of its queue.
func heldOut(f *Facts) *State {
	name := f.Job.Labels[kueueconstants.QueueLabel]
	queue, is := trainjob.HeldFrom(name)
	if !is || f.Cluster.LocalQueue(f.Job.Namespace, kueue.LocalQueueName(name)) != nil {
		return nil
	}
	if f.Workload != nil && kueuelib.HasQuotaReservation(f.Workload) {
		return &State{Phase: Stopping, Reason: "Held", Message: fmt.Sprintf("is being stopped, to be held out of queue %s", queue) + podsLeft(f, keepsQuota)}
	}
	// Where somebody else than the plugin changed the label, nobody knows when.
	ours := picked(f.Job.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == trainjob.HoldFieldOwner })
	begun := since(metav1.NewTime(kueueconfig.LastWritten(ours, kueueconstants.QueueLabel)))
	s := &State{Phase: Held, Reason: "Held", Stuck: true, Since: begun, Message: fmt.Sprintf("is held out of queue %s by its user", queue),
		Remedy: fmt.Sprintf("kubectl trainjob resume -n %s %s", f.Job.Namespace, f.Job.Name)}
	if f.Workload == nil && !f.Saw(inventory.Workloads) {
		s.Hidden = inventory.Workloads
		s.Message += "; you may not see its Workload, nor so whether it still has quota"
	}
	return s
}
