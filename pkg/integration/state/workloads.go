// SPDX-License-Identifier: Apache-2.0

// Package state reads what there is of a TrainJob, and answers what that means: may it run, does
// it hold quota, since when does it stop.
//
// reader.go reads from the caches, and asks the API server; workloads.go answers by the Workloads of a job, what it does now among it, children.go by what
// Trainer and JobSet made of it.
package state

import (
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// MayRun reports whether the job of wl may have pods.
func MayRun(wl *kueue.Workload) bool {
	return kueuelib.IsAdmitted(wl) && !kueuelib.IsEvicted(wl) && kueuelib.IsActive(wl) && !kueuelib.IsFinished(wl)
}

// HoldsQuota reports whether Kueue counts a Workload against its ClusterQueue.
func HoldsQuota(wl *kueue.Workload) bool {
	return kueuelib.HasQuotaReservation(wl) && !kueuelib.IsFinished(wl)
}

// StoppingSince returns when the first of these Workloads began to go; now if none has.
func StoppingSince(workloads []*kueue.Workload) time.Time {
	since := time.Now()
	for _, wl := range workloads {
		if at := StoppedSince(wl); !at.IsZero() && at.Before(since) {
			since = at
		}
	}
	return since
}

// StoppedSince tells when it was decided that the job of a Workload stops; zero: it was not.
func StoppedSince(wl *kueue.Workload) time.Time {
	if !wl.DeletionTimestamp.IsZero() {
		return wl.DeletionTimestamp.Time
	}
	return ptr.Deref(True(wl, kueue.WorkloadEvicted), metav1.Condition{}).LastTransitionTime.Time
}

// AdmittedAt returns when a Workload was admitted; now if it was not.
func AdmittedAt(wl *kueue.Workload) time.Time {
	if admitted := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadAdmitted); admitted != nil {
		return admitted.LastTransitionTime.Time
	}
	return time.Now()
}

// True returns a condition of a Workload that is true, or nil.
func True(wl *kueue.Workload, condition string) *metav1.Condition {
	return kueuelib.True(wl.Status.Conditions, condition)
}

// ReasonOf returns the reason of a condition that is true; empty: it is not.
func ReasonOf(wl *kueue.Workload, condition string) string {
	return ptr.Deref(True(wl, condition), metav1.Condition{}).Reason
}

// Ended reports whether a Workload is finished because its job is.
func Ended(wl *kueue.Workload) bool {
	reason := ReasonOf(wl, kueue.WorkloadFinished)
	return reason == kueue.WorkloadFinishedReasonSucceeded || reason == kueue.WorkloadFinishedReasonFailed
}

// JobSetKind and JobKind are what a TrainJob is made into.
var (
	JobSetKind = jobsetapi.SchemeGroupVersion.WithKind("JobSet")
	JobKind    = batchv1.SchemeGroupVersion.WithKind("Job")
)

// ControllerOfKind returns the controller of obj if it is of a kind, in any version, or nil.
func ControllerOfKind(obj client.Object, kind schema.GroupVersionKind) *metav1.OwnerReference {
	if owner := metav1.GetControllerOfNoCopy(obj); owner != nil && owner.Kind == kind.Kind && strings.HasPrefix(owner.APIVersion, kind.Group+"/") {
		return owner
	}
	return nil
}

// IsControlledBy reports whether owner, which is a TrainJob, a JobSet or a Job, controls obj. By the UID alone it would do so
// where somebody writes it beside a kind that there is not: the policies guard references to these kinds, and nobody
// collects the garbage of another.
func IsControlledBy(obj, owner client.Object) bool {
	kind := trainjob.GVK
	switch owner.(type) {
	case *jobsetapi.JobSet:
		kind = JobSetKind
	case *batchv1.Job:
		kind = JobKind
	}
	controller := ControllerOfKind(obj, kind)
	return controller != nil && controller.UID == owner.GetUID()
}

// PhaseOf returns what a TrainJob of a queue does now, in the words of pkg/metrics, by its Workload and its
// JobSet, which may be nil; empty: it is over, and holds nothing. The metrics and the plugin go by it.
func PhaseOf(job *trainjob.TrainJob, wl *kueue.Workload, js *jobsetapi.JobSet) string {
	over := job.Finished() || !job.DeletionTimestamp.IsZero()
	holds := wl != nil && HoldsQuota(wl)
	switch {
	case over && holds:
		return metrics.StateStopping
	case over:
		return ""
	case wl == nil:
		return metrics.StateWaitingForTrainer
	case holds && !StoppedSince(wl).IsZero():
		return metrics.StateStopping
	case !kueuelib.IsAdmitted(wl):
		return metrics.StateQueued
	case job.Suspended() && runs(js):
		return metrics.StateStopping
	case job.Suspended():
		return metrics.StateAdmitted
	case ready(job, js):
		return metrics.StateRunning
	}
	return metrics.StateStarting
}

// runs reports whether a JobSet has pods, or may still get some.
func runs(js *jobsetapi.JobSet) bool {
	return js != nil && (!ptr.Deref(js.Spec.Suspend, false) || SaysActive(js))
}

// ready reports whether the pods of a resumed TrainJob are ready. The JobSet of one that runs in
// another cluster is not here; its status is: something of every replicated job is ready or done.
func ready(job *trainjob.TrainJob, js *jobsetapi.JobSet) bool {
	statuses := job.Status.JobsStatus
	if job.ManagedExternally() {
		return len(statuses) > 0 && !slices.ContainsFunc(statuses, func(s trainer.JobStatus) bool {
			return ptr.Deref(s.Ready, 0)+ptr.Deref(s.Succeeded, 0) == 0
		})
	}
	return js != nil && podset.Ready(js, statuses)
}
