// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Ready reports whether every replicated job that JobSet can have started is ready
// or done. Counts in statuses are child Jobs, as JobSet reports them.
func Ready(js *jobsetapi.JobSet, statuses []trainer.JobStatus) bool {
	byName := index(statuses)
	return !slices.ContainsFunc(Due(js, statuses), func(rj jobsetapi.ReplicatedJob) bool {
		status := byName[rj.Name]
		return ptr.Deref(status.Ready, 0)+ptr.Deref(status.Succeeded, 0) < rj.Replicas
	})
}

// dependenciesMet is JobSet's rule (pkg/controllers/depends_on.go there): Complete
// wants all replicas succeeded, Ready wants all ready, succeeded or failed.
func dependenciesMet(rj *jobsetapi.ReplicatedJob, replicas map[string]int32, byName map[string]trainer.JobStatus) bool {
	for _, dep := range rj.DependsOn {
		status := byName[dep.Name]
		done := ptr.Deref(status.Succeeded, 0)
		if dep.Status == jobsetapi.DependencyReady {
			done += ptr.Deref(status.Ready, 0) + ptr.Deref(status.Failed, 0)
		}
		if done != replicas[dep.Name] {
			return false
		}
	}
	return true
}

// AnySucceeded reports whether a child Job of any replicated job is done.
func AnySucceeded(statuses []trainer.JobStatus) bool {
	return slices.ContainsFunc(statuses, func(s trainer.JobStatus) bool { return ptr.Deref(s.Succeeded, 0) > 0 })
}

// Reclaimable returns per PodSet the pods of child Jobs that have succeeded, and never
// less than was given already. A JobSet that may restart runs its succeeded Jobs once
// more, so it gives nothing; nor does a Job with a TTL, which JobSet creates again once the
// TTL has deleted it.
func Reclaimable(js *jobsetapi.JobSet, statuses []trainer.JobStatus, given []kueue.ReclaimablePod) []kueue.ReclaimablePod {
	if mayRestart(js.Spec.FailurePolicy) {
		return given
	}
	counts := map[kueue.PodSetReference]int32{}
	for _, r := range given {
		counts[r.Name] = r.Count
	}
	byName := index(statuses)
	var reclaimable []kueue.ReclaimablePod
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		name := kueue.NewPodSetReference(rj.Name)
		succeeded := min(ptr.Deref(byName[rj.Name].Succeeded, 0), rj.Replicas)
		if rj.Template.Spec.TTLSecondsAfterFinished != nil {
			succeeded = 0
		}
		if count := max(succeeded*PodsPerReplica(rj), counts[name]); count > 0 {
			reclaimable = append(reclaimable, kueue.ReclaimablePod{Name: name, Count: count})
		}
	}
	return reclaimable
}

// mayRestart reports whether JobSet may make Jobs again: some of its rules do so whatever
// maxRestarts says (JobSet's pkg/controllers/failure_policy.go).
func mayRestart(policy *jobsetapi.FailurePolicy) bool {
	return policy != nil && (policy.MaxRestarts > 0 || slices.ContainsFunc(policy.Rules, func(rule jobsetapi.FailurePolicyRule) bool {
		return rule.Action == jobsetapi.RestartJobSetAndIgnoreMaxRestarts || rule.Action == jobsetapi.RestartJobAndIgnoreMaxRestarts
	}))
}

func index(statuses []trainer.JobStatus) map[string]trainer.JobStatus {
	byName := make(map[string]trainer.JobStatus, len(statuses))
	for _, s := range statuses {
		byName[s.Name] = s
	}
	return byName
}

// JobEnded reports whether a Job is complete or has failed.
func JobEnded(job *batchv1.Job) bool { return JobHas(job, batchv1.JobComplete, batchv1.JobFailed) }

// JobHas reports whether one of some conditions of a Job is true.
func JobHas(job *batchv1.Job, types ...batchv1.JobConditionType) bool {
	return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
		return slices.Contains(types, c.Type) && c.Status == corev1.ConditionTrue
	})
}

// PodEnded reports whether a pod has succeeded or failed.
func PodEnded(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// Due returns the replicated jobs whose turn has come: JobSet makes and resumes the child
// Jobs of the others later.
func Due(js *jobsetapi.JobSet, statuses []trainer.JobStatus) []jobsetapi.ReplicatedJob {
	byName := index(statuses)
	replicas := map[string]int32{}
	inOrder := js.Spec.StartupPolicy != nil && js.Spec.StartupPolicy.StartupPolicyOrder == jobsetapi.InOrder
	var due []jobsetapi.ReplicatedJob
	for i := range js.Spec.ReplicatedJobs {
		rj := &js.Spec.ReplicatedJobs[i]
		replicas[rj.Name] = rj.Replicas
		if !dependenciesMet(rj, replicas, byName) {
			continue
		}
		due = append(due, *rj)
		status := byName[rj.Name]
		if inOrder && ptr.Deref(status.Ready, 0)+ptr.Deref(status.Succeeded, 0)+ptr.Deref(status.Failed, 0) < rj.Replicas {
			return due
		}
	}
	return due
}
