// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Facts are what was read of a TrainJob and of what was made of it.
type Facts struct {
	Now time.Time
	Job *trainjob.TrainJob
	// Gated reports whether the webhook of the manager put the job behind the gate.
	Gated     bool
	Workloads []kueue.Workload
	// JobSet is nil while there is none.
	JobSet *jobsetapi.JobSet
	Jobs   []batchv1.Job
	Pods   []corev1.Pod
	// Events are of all of these, and of pods that are gone.
	Events []corev1.Event
	Unseen []string

	// Copies are in the clusters that MultiKueue gave the job to, in this order.
	Copies []Copy
}

// Copy is what was read of the copy of a job in a worker; nil where Worker says why there is nothing.
type Copy struct {
	Worker
	Facts *Facts
	// last is set for the worker that has the job, or had it when it ended.
	last bool
}

// Of tells the timeline.
func Of(f *Facts) Timeline {
	there := stepsThere(f)
	// Kueue copies the status of its TrainJob from the worker: what was done there was done once.
	here := slices.DeleteFunc(stepsIn(f), func(s Step) bool {
		return s.Actor == Trainer && slices.ContainsFunc(there, func(o Step) bool { return o.Actor == s.Actor && o.Time.Equal(s.Time) && o.Step == s.Step })
	})
	all := inOrder(append(here, there...))
	t := Timeline{
		Namespace: f.Job.Namespace, Name: f.Job.Name, Steps: all, Spans: spans(parts(all, f.Now)),
		Ended: f.Job.Finished(), Unseen: f.Unseen,
	}
	for i := range f.Copies {
		if worker := f.Copies[i].Worker; f.Copies[i].last {
			t.Worker = &worker
		} else {
			t.FormerWorkers = append(t.FormerWorkers, worker)
		}
	}
	return t
}

func stepsIn(f *Facts) []Step {
	all := slices.Concat(jobSteps(f), workloadSteps(f), jobSetSteps(f), eventSteps(f), podSteps(f))
	return once(slices.DeleteFunc(all, func(s Step) bool { return s.Time.IsZero() }))
}

func jobSteps(f *Facts) []Step {
	object := "TrainJob " + f.Job.Name
	begun := f.Job.CreationTimestamp.Time
	steps := []Step{{Time: begun, Actor: User, Object: object, Step: "created it", milestone: created}}
	if f.Gated {
		steps = append(steps, Step{Time: begun, Actor: Webhook, Object: object, Step: "suspended it and put it behind the admission gate", milestone: gated})
	}
	creator := ""
	for _, entry := range f.Job.ManagedFields {
		switch {
		case entry.Subresource != "" || entry.Time == nil || controller(entry.Manager):
		case entry.Time.Time.Equal(begun):
			creator = cmp.Or(creator, fmt.Sprintf(" (%s)", entry.Manager))
		default:
			steps = append(steps, changeStep(f.Job, object, entry))
		}
	}
	steps[0].Step += creator
	for _, c := range f.Job.Status.Conditions {
		s := Step{Time: c.LastTransitionTime.Time, Actor: Trainer, Object: object}
		switch {
		case c.Type == trainer.TrainJobSuspended && c.Status == metav1.ConditionFalse:
			s.Step, s.milestone = "took note that it is resumed", resumed
		case c.Status != metav1.ConditionTrue:
			continue
		case c.Type == trainer.TrainJobComplete || c.Type == trainer.TrainJobFailed:
			s.Step, s.milestone = fmt.Sprintf("reported it as %s: %s", c.Type, c.Message), finished
		default:
			s.Step, s.milestone = fmt.Sprintf("reported %s: %s", c.Type, c.Message), noted
		}
		steps = append(steps, s)
	}
	return steps
}

func changeStep(job *trainjob.TrainJob, object string, entry metav1.ManagedFieldsEntry) Step {
	s := Step{Time: entry.Time.Time, Actor: User, Object: object, Step: fmt.Sprintf("changed it (%s)", entry.Manager), milestone: changed}
	switch _, is := trainjob.HeldFrom(job.Labels[kueueconstants.QueueLabel]); {
	case entry.Manager == trainjob.HoldFieldOwner && is:
		s.milestone = held
	case entry.Manager == trainjob.HoldFieldOwner:
		s.milestone = unheld
	}
	return s
}

// controller reports whether a manager of fields is none that people work with.
func controller(manager string) bool {
	return strings.HasPrefix(manager, "kueue") || strings.HasPrefix(manager, "trainer") || manager == "manager"
}

var conditionSteps = map[string]Step{
	kueue.WorkloadQuotaReserved: {Actor: Kueue, Step: "reserved quota", milestone: quota},
	kueue.WorkloadAdmitted:      {Actor: Kueue, Step: "admitted it", milestone: admitted},
	kueue.WorkloadPodsReady:     {Actor: Manager, Step: "reported all pods as ready", milestone: ready},
	kueue.WorkloadEvicted:       {Actor: Kueue, Step: "evicted it", milestone: evicted},
	kueue.WorkloadFinished:      {Actor: Manager, Step: "finished it, and its quota is free", milestone: noted},
}

func workloadSteps(f *Facts) []Step {
	var steps []Step
	for i := range f.Workloads {
		wl := &f.Workloads[i]
		object, wasEvicted := "Workload "+wl.Name, apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted) != nil
		steps = append(steps, Step{Time: wl.CreationTimestamp.Time, Actor: Manager, Object: object, Step: "made it", milestone: queued})
		for _, c := range wl.Status.Conditions {
			s, known := conditionSteps[c.Type]
			if known && c.Status == metav1.ConditionTrue && c.Reason != placeholder.PodsLeft {
				s.Time, s.Object = c.LastTransitionTime.Time, object
				if s.milestone == evicted {
					s.Step, s.milestone = s.Step+": "+c.Message, evictedBy(c.Reason)
				}
				steps = append(steps, s)
			}
			if c.Type == kueue.WorkloadRequeued && c.Status == metav1.ConditionTrue && c.Reason == kueue.WorkloadReactivated {
				steps = append(steps, Step{Time: c.LastTransitionTime.Time, Actor: Kueue, Object: object, Step: "queued it again: it was activated", milestone: activated})
			}
			if c.Type == kueue.WorkloadQuotaReserved && c.Status == metav1.ConditionFalse && wasEvicted {
				steps = append(steps, Step{Time: c.LastTransitionTime.Time, Actor: Manager, Object: object, Step: "gave the quota back: no pod is left", milestone: quotaFree})
			}
		}
		for _, check := range wl.Status.AdmissionChecks {
			steps = append(steps, Step{Time: check.LastTransitionTime.Time, Actor: Kueue, Object: object,
				Step: fmt.Sprintf("noted admission check %s as %s", check.Name, check.State), milestone: noted})
		}
	}
	return steps
}

func jobSetSteps(f *Facts) []Step {
	var steps []Step
	if f.JobSet != nil {
		steps = append(steps, Step{Time: f.JobSet.CreationTimestamp.Time, Actor: Trainer, Object: "JobSet " + f.JobSet.Name, Step: "made it", milestone: prepared})
	}
	for i := range f.Jobs {
		steps = append(steps, Step{Time: f.Jobs[i].CreationTimestamp.Time, Actor: JobSet, Object: "Job " + f.Jobs[i].Name, Step: "made it", milestone: prepared})
	}
	return steps
}

// eventMilestones are the events that tell of milestones, by kind and reason.
var eventMilestones = map[string]milestone{
	"TrainJob/Started":       started,
	"TrainJob/Stopped":       stopped,
	"TrainJob/QueuedAgain":   quotaFree,
	"Workload/QuotaReserved": quota,
	"Workload/Admitted":      admitted,
	"Workload/Preempted":     evicted,
	"JobSet/SuspendedJobs":   stopped,
}

// waits are the reasons with which Kueue tells that a Workload does not get quota: "Pending", and
// behind its feature gate UnadmittedWorkloadsObservability what it waits for.
var waits = []string{
	"Pending", kueue.WorkloadQuotaReservedReasonWaitingForQuota, kueue.WorkloadQuotaReservedReasonNoMatchingFlavor,
	kueue.WorkloadQuotaReservedReasonExceedsMaxQuota, kueue.WorkloadQuotaReservedReasonTopologyPlacementFailed,
	kueue.WorkloadQuotaReservedReasonWaitingForPreemptedWorkloads, kueue.WorkloadQuotaReservedReasonWaitingForPodsReady,
	kueue.WorkloadQuotaReservedReasonPendingEvaluation, kueue.WorkloadQuotaReservedReasonMisconfigured, kueue.WorkloadQuotaReservedReasonSuspended,
}

func milestoneOf(e *corev1.Event) milestone {
	kind := e.InvolvedObject.Kind
	switch {
	case kind == "Workload" && strings.HasPrefix(e.Reason, "EvictedDueTo"):
		return evictedBy(strings.TrimPrefix(e.Reason, "EvictedDueTo"))
	case kind == "Workload" && slices.Contains(waits, e.Reason):
		return waiting
	}
	return cmp.Or(eventMilestones[kind+"/"+e.Reason], noted)
}

func evictedBy(reason string) milestone {
	if strings.HasPrefix(reason, kueue.WorkloadDeactivated) {
		return deactivated
	}
	return evicted
}

// actorsOf are who events of a kind are of, where they are of nobody else.
var actorsOf = map[string]Actor{"TrainJob": Manager, "Workload": Kueue, "JobSet": JobSet, "Job": JobController}

func eventSteps(f *Facts) []Step {
	var steps []Step
	for i := range f.Events {
		e := &f.Events[i]
		actor, known := actorsOf[e.InvolvedObject.Kind]
		if !known || e.Reason == "SuccessfulCreate" {
			continue
		}
		s := Step{
			Time: firstTime(e), Actor: actor, Object: e.InvolvedObject.Kind + " " + e.InvolvedObject.Name,
			Step: e.Reason + ": " + e.Message, milestone: milestoneOf(e),
		}
		if name, made := workloadMade(e, f.Job.Namespace); made {
			s.Object, s.Step, s.milestone = "Workload "+name, "made it", queued
		}
		last := ptr.Deref(e.Series, corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(e.LastTimestamp.Time)}).LastObservedTime
		steps = append(steps, seen(s, last.Time)...)
	}
	return steps
}

// seen returns what an event tells that was seen again, last at a time: of a milestone, the first
// and the last. The last is the latest that was written down, which is the second mostly: clients
// write a series when it begins, and then every half hour.
func seen(s Step, last time.Time) []Step {
	switch {
	case !last.After(s.Time):
		return []Step{s}
	case s.milestone == noted:
		s.Until = &last
		return []Step{s}
	}
	again := s
	again.Time = last
	return []Step{s, again}
}

func workloadMade(e *corev1.Event, namespace string) (name string, made bool) {
	return strings.CutPrefix(e.Message, "Created Workload: "+namespace+"/")
}

// firstTime is when an event was seen first, in whatever field its writer noted it.
func firstTime(e *corev1.Event) time.Time {
	return cmp.Or(e.EventTime.Time, e.FirstTimestamp.Time, e.CreationTimestamp.Time)
}
