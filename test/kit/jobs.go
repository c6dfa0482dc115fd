// SPDX-License-Identifier: Apache-2.0

package kit

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// ChildJob builds a Job that a JobSet made of one of its replicated jobs.
func ChildJob(js *jobsetapi.JobSet, replicatedJob string, changes ...func(*batchv1.Job)) *batchv1.Job {
	return With(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: js.Namespace, Name: js.Name + "-" + replicatedJob + "-0",
		Labels:          map[string]string{jobsetapi.JobSetNameKey: js.Name, jobsetapi.ReplicatedJobNameKey: replicatedJob},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(js, jobsetapi.SchemeGroupVersion.WithKind("JobSet"))},
	}}, changes...)
}

// Active gives a Job pods that run.
func Active(pods int32) func(*batchv1.Job) {
	return func(child *batchv1.Job) { child.Status.Active = pods }
}

// Succeeded has pods of a Job be done.
func Succeeded(pods int32) func(*batchv1.Job) {
	return func(child *batchv1.Job) { child.Status.Succeeded = pods }
}

// Completed has a Job be done.
func Completed(child *batchv1.Job) {
	child.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
}

// ReplicatedJobs are the parts of a JobSet with one replicated job of so many Jobs.
func ReplicatedJobs(name string, replicas int32) []jobsetapi.ReplicatedJob {
	return []jobsetapi.ReplicatedJob{{Name: name, Replicas: replicas}}
}
