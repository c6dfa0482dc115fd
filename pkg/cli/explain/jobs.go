// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
)

// podsMade counts the pods that are there, and those that there should be by now: what Jobs that
// are not over want at a time, and those of Jobs that are due.
func (f *Facts) podsMade() (made, wanted int32) {
	for i := range f.Jobs {
		job := &f.Jobs[i]
		if podset.JobEnded(job) {
			continue
		}
		wanted += podsAtATime(job)
		for j := range f.Pods {
			if f.Pods[j].Labels[batchv1.JobNameLabel] == job.Name {
				made++
			}
		}
	}
	if f.JobSet == nil {
		return made, wanted
	}
	for i := range f.JobSet.Spec.ReplicatedJobs {
		rj := &f.JobSet.Spec.ReplicatedJobs[i]
		wanted += f.jobsDue(rj) * podset.PodsPerReplica(rj)
	}
	return made, wanted
}

// jobsToCome reports whether JobSet has yet to make or to resume Jobs. It makes Service and
// volume claims before that, so whatever refused them once has been overcome afterwards.
func (f *Facts) jobsToCome() bool {
	for i := range f.JobSet.Spec.ReplicatedJobs {
		if f.jobsDue(&f.JobSet.Spec.ReplicatedJobs[i]) > 0 {
			return true
		}
	}
	return !ptr.Deref(f.JobSet.Spec.Suspend, false) && slices.ContainsFunc(f.Jobs, func(job batchv1.Job) bool {
		return ptr.Deref(job.Spec.Suspend, false) && !podset.JobEnded(&job)
	})
}

// jobsDue counts the Jobs of a replicated job that are not there and that wait for no other.
func (f *Facts) jobsDue(rj *jobsetapi.ReplicatedJob) int32 {
	if slices.ContainsFunc(f.dependencies(rj), func(on jobsetapi.DependsOn) bool { return !f.reached(on) }) {
		return 0
	}
	return max(0, rj.Replicas-int32(len(f.jobsOf(rj.Name))))
}

// dependencies returns what a replicated job waits for: what it depends on or, where the JobSet starts
// in order, the one before it, which waits for those before itself.
func (f *Facts) dependencies(rj *jobsetapi.ReplicatedJob) []jobsetapi.DependsOn {
	all := f.JobSet.Spec.ReplicatedJobs
	before := slices.IndexFunc(all, func(other jobsetapi.ReplicatedJob) bool { return other.Name == rj.Name }) - 1
	policy := f.JobSet.Spec.StartupPolicy
	if policy == nil || policy.StartupPolicyOrder != jobsetapi.InOrder || before < 0 {
		return rj.DependsOn
	}
	return []jobsetapi.DependsOn{{Name: all[before].Name, Status: jobsetapi.DependencyReady}}
}

// reached reports whether the replicated job that another waits for is so far, by the rule of
// JobSet's dependencyReachedStatus. It goes by the Jobs: JobSet does not note how far they are
// while it cannot make the next.
func (f *Facts) reached(on jobsetapi.DependsOn) bool {
	for i := range f.JobSet.Spec.ReplicatedJobs {
		rj := &f.JobSet.Spec.ReplicatedJobs[i]
		if rj.Name != on.Name {
			continue
		}
		reached := slices.DeleteFunc(f.jobsOf(on.Name), func(job *batchv1.Job) bool {
			if on.Status == jobsetapi.DependencyReady {
				return !podset.JobEnded(job) && job.Status.Succeeded+ptr.Deref(job.Status.Ready, 0) < podsAtATime(job)
			}
			return !has(job, batchv1.JobComplete)
		})
		return len(reached) >= int(rj.Replicas)
	}
	return false
}

// jobsOf returns the Jobs of a replicated job that are there.
func (f *Facts) jobsOf(replicatedJob string) []*batchv1.Job {
	var jobs []*batchv1.Job
	for i := range f.Jobs {
		if f.Jobs[i].Labels[jobsetapi.ReplicatedJobNameKey] == replicatedJob {
			jobs = append(jobs, &f.Jobs[i])
		}
	}
	return jobs
}

// jobsOverSince returns when the last Job has completed, or a time after that.
func (f *Facts) jobsOverSince(since metav1.Time) metav1.Time {
	for i := range f.Jobs {
		if at := f.Jobs[i].Status.CompletionTime; at != nil && since.Before(at) {
			since = *at
		}
	}
	return since
}

// podsAtATime is how many pods of a Job there may be.
func podsAtATime(job *batchv1.Job) int32 {
	parallelism := ptr.Deref(job.Spec.Parallelism, 1)
	return min(parallelism, ptr.Deref(job.Spec.Completions, parallelism))
}

func has(job *batchv1.Job, condition batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return c.Status == corev1.ConditionTrue && c.Type == condition
	})
}
