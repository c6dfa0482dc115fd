// SPDX-License-Identifier: Apache-2.0

package state

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// ChildJobsMade reports whether the Jobs of js are all that JobSet makes of a suspended job.
func ChildJobsMade(js *jobsetapi.JobSet, jobs []batchv1.Job) bool {
	made := map[string]int32{}
	for i := range jobs {
		made[jobs[i].Labels[jobsetapi.ReplicatedJobNameKey]]++
	}
	// Those that start in order are made together: it is only their resumption that JobSet puts off.
	return !slices.ContainsFunc(js.Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) bool {
		return len(rj.DependsOn) == 0 && made[rj.Name] < rj.Replicas
	})
}

// JobNames returns the names of the child Jobs, as JobSet gives them (GenJobName in pkg/util/placement there).
func JobNames(js *jobsetapi.JobSet) []string {
	var names []string
	for _, rj := range js.Spec.ReplicatedJobs {
		for i := range rj.Replicas {
			names = append(names, fmt.Sprintf("%s-%s-%d", js.Name, rj.Name, i))
		}
	}
	return names
}

// SaysActive reports whether JobSet still counts Jobs with pods. It hears of the last pod
// after us, and until then Trainer's webhook refuses a change of the patches.
func SaysActive(js *jobsetapi.JobSet) bool {
	return slices.ContainsFunc(js.Status.ReplicatedJobsStatus, func(rj jobsetapi.ReplicatedJobStatus) bool { return rj.Active > 0 })
}

// LacksGate reports whether the JobSet of job does not have the gate that job has.
func LacksGate(js *jobsetapi.JobSet, job *trainjob.TrainJob, field patch.Field) bool {
	return slices.ContainsFunc(js.Spec.ReplicatedJobs, func(rj jobsetapi.ReplicatedJob) bool {
		return !patch.HasAdmissionGate(rj.Template.Spec.Template.Spec.SchedulingGates) && field.Gates(&job.Spec, rj.Name)
	})
}

// deletedWithin is how long the Job controller may be making pods of a Job that is deleted. After that it makes none,
// however long somebody's finalizer on one of its pods keeps the Job.
const deletedWithin = 5 * time.Second

// HasPods reports whether a Job has pods, terminating ones included, or may still get some.
func HasPods(j batchv1.Job) bool {
	if LivePods(&j) > 0 {
		return true
	}
	if podset.JobEnded(&j) || !j.DeletionTimestamp.IsZero() && time.Since(j.DeletionTimestamp.Time) > deletedWithin {
		return false
	}
	return !ptr.Deref(j.Spec.Suspend, false) || jobResumed(&j)
}

// SeenResumed reports whether the Job controller has answered the last resume of a Job: one that has ended may
// have done so in a run before.
func SeenResumed(j batchv1.Job) bool {
	return !podset.JobEnded(&j) && (j.Status.Active > 0 || jobResumed(&j))
}

// jobResumed reports whether the Job controller last saw the Job unsuspended: then
// pods may exist that its status does not count yet.
func jobResumed(j *batchv1.Job) bool {
	if at := slices.IndexFunc(j.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobSuspended }); at >= 0 {
		return j.Status.Conditions[at].Status != corev1.ConditionTrue
	}
	return j.Status.StartTime != nil
}

// LacksPods reports whether a Job has fewer pods than it started out with. One of which
// some have ended, and others are there, has started.
func LacksPods(child *batchv1.Job) bool {
	ended := child.Status.Succeeded + child.Status.Failed
	return !podset.JobEnded(child) && LivePods(child) < WantedPods(child) && (ended == 0 || LivePods(child) == 0)
}

// WantedPods is how many pods a Job runs at a time, and still has to.
func WantedPods(child *batchv1.Job) int32 {
	wanted := ptr.Deref(child.Spec.Parallelism, 1)
	if child.Spec.Completions != nil {
		wanted = min(wanted, *child.Spec.Completions-child.Status.Succeeded)
	}
	return wanted
}

// LivePods returns how many pods a Job has, terminating ones included.
func LivePods(child *batchv1.Job) int32 {
	return child.Status.Active + ptr.Deref(child.Status.Terminating, 0)
}
