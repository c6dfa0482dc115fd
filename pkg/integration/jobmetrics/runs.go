// SPDX-License-Identifier: Apache-2.0

package jobmetrics

import (
	"context"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/state"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Run is the last one of a TrainJob, from a resumption to the stop, for what is measured of it. Of a run that another
// process began it is unknown whether its pods were ready before; it is taken for measured then.
type Run struct {
	queue metrics.Queue
	// admitted is by Kueue's clock, began is zero where no run is known.
	admitted, began time.Time
	// ready is set once its pods were ready, over once it was stopped.
	ready, over bool
}

// underWay reports whether a run is known that was not stopped yet.
func (r *Run) underWay() bool { return !r.began.IsZero() && !r.over }

// Starts records a start that the manager made, by the admission of wl. How long it took after the
// admission is told of the first start alone: others wait for whoever stopped the job meanwhile.
func (r *Run) Starts(recorder *metrics.Recorder, wl *kueue.Workload) {
	former, kind := *r, metrics.StartFirst
	*r = Run{queue: admittedBy(wl), admitted: state.AdmittedAt(wl), began: time.Now()}
	again := !former.began.IsZero()
	if again || apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadEvicted) != nil {
		kind = metrics.StartAgain
	}
	recorder.Started(r.queue, kind)
	if !again || !r.admitted.Equal(former.admitted) {
		recorder.StartedAfter(r.queue, time.Since(r.admitted))
	}
}

// Runs records how long it took until the pods of a job were ready, once for each run. wl is what holds its quota, or nil.
func (r *Run) Runs(recorder *metrics.Recorder, job *trainjob.TrainJob, wl *kueue.Workload, ready func() bool) {
	switch {
	case job.Suspended():
	case !r.underWay():
		if wl != nil && kueuelib.IsAdmitted(wl) {
			*r = Run{queue: admittedBy(wl), admitted: state.AdmittedAt(wl), began: resumedAt(job, wl), ready: ready()}
		}
	case !r.ready && ready():
		r.ready = true
		recorder.Ready(r.queue, time.Since(r.began))
	}
}

// resumedAt returns when Trainer took note of a start that another process made.
func resumedAt(job *trainjob.TrainJob, wl *kueue.Workload) time.Time {
	if said := apimeta.FindStatusCondition(job.Status.Conditions, trainer.TrainJobSuspended); said != nil && said.Status == metav1.ConditionFalse {
		return said.LastTransitionTime.Time
	}
	return state.AdmittedAt(wl)
}

// Stops records that the manager suspended a job that ran.
func (r *Run) Stops(recorder *metrics.Recorder, job *trainjob.TrainJob, wl *kueue.Workload, reason string) {
	queue := r.queue
	if wl != nil {
		queue = admittedBy(wl)
	} else if !r.underWay() {
		queue = metrics.Queue{Namespace: job.Namespace, LocalQueue: string(jobframework.QueueNameForObject(job))}
	}
	r.over = !r.began.IsZero()
	recorder.Stopped(queue, reason)
}

// FoundSuspended records the stop of a job that is found suspended though it was not known to be: by
// its user, or by the manager, which has not heard of its own success.
func (r *Run) FoundSuspended(recorder *metrics.Recorder, job *trainjob.TrainJob, wl *kueue.Workload) {
	if !r.underWay() || !job.Suspended() {
		return
	}
	reason := metrics.StopByUser
	if wl != nil && kueuelib.IsEvicted(wl) {
		reason = state.ReasonOf(wl, kueue.WorkloadEvicted)
	}
	r.Stops(recorder, job, wl, reason)
}

// StopReason returns the word of the metrics for why jobframework stops a job. wl is what holds its quota, or nil.
func StopReason(wl *kueue.Workload, reason jobframework.StopReason) string {
	switch {
	case reason == jobframework.StopReasonWorkloadEvicted && wl != nil && kueuelib.IsEvicted(wl):
		return state.ReasonOf(wl, kueue.WorkloadEvicted)
	case reason == jobframework.StopReasonWorkloadDeleted:
		return metrics.StopWorkloadDeleted
	case reason == jobframework.StopReasonNoMatchingWorkload:
		return metrics.StopNoMatchingWorkload
	}
	return metrics.StopNotAdmitted
}

// admittedBy returns the queue that admitted a Workload.
func admittedBy(wl *kueue.Workload) metrics.Queue {
	queue := metrics.Queue{Namespace: wl.Namespace, LocalQueue: string(wl.Spec.QueueName)}
	if wl.Status.Admission != nil {
		queue.ClusterQueue = string(wl.Status.Admission.ClusterQueue)
	}
	return queue
}

// OfWorkloads records how long evicted jobs had pods after that, until their quota was given back, and how long jobs
// ran, once for each that ends while this process looks: what has ended before it began to is none of its updates. It
// filters nothing.
func OfWorkloads(recorder *metrics.Recorder) predicate.Predicate {
	runs := func(wl *kueue.Workload) {
		if ledger.OfTrainJob(wl) && kueuelib.IsAdmitted(wl) && !kueuelib.IsFinished(wl) {
			recorder.Runs(admittedBy(wl))
		}
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool {
			runs(e.Object.(*kueue.Workload))
			return true
		},
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*kueue.Workload), e.ObjectNew.(*kueue.Workload)
			runs(after)
			if ledger.OfTrainJob(after) && before.DeletionTimestamp.IsZero() && kueuelib.IsAdmitted(before) && kueuelib.IsEvicted(before) &&
				!kueuelib.HasQuotaReservation(after) && !kueuelib.IsFinished(after) {
				recorder.Gone(admittedBy(before), time.Since(state.StoppedSince(before)))
			}
			if ran, ended := kueuelib.RanFor(after); ended && ledger.OfTrainJob(after) && !kueuelib.IsFinished(before) {
				recorder.Ended(admittedBy(after), ran)
			}
			return true
		},
	}
}

// FactsOf finds in the caches what the ledger does not read off a Workload. What cannot be read is left out: the next look has it.
func FactsOf(ctx context.Context, cached client.Reader, wl *kueue.Workload, userLabel string, waitsForPods bool) ledger.Facts {
	var job *trainjob.TrainJob
	if owner := state.ControllerOfKind(wl, trainjob.GVK); owner != nil {
		found := &trainjob.TrainJob{}
		if cached.Get(ctx, client.ObjectKey{Namespace: wl.Namespace, Name: owner.Name}, found) == nil && found.UID == owner.UID {
			job = found
		}
	}
	facts := ledger.FactsOf(job, userLabel)
	facts.WaitsForPods = waitsForPods
	if job != nil && !facts.WaitsForPods {
		view, _ := state.Observe(ctx, cached, client.ObjectKeyFromObject(job))
		facts.Started = ledger.StartOf(job, wl, view.ChildJobsOf(job))
	}
	return facts
}
