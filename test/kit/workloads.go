// SPDX-License-Identifier: Apache-2.0

package kit

import (
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// Workload builds one that waits in a queue since a time, with its name as its UID.
func Workload(namespace, name, queue string, since time.Time, podSets ...kueue.PodSet) *kueue.Workload {
	return &kueue.Workload{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(since)},
		Spec:       kueue.WorkloadSpec{QueueName: kueue.LocalQueueName(queue), Priority: new(int32(0)), PodSets: podSets},
	}
}

// What Kueue, MultiKueue and people do with a Workload.

// Runs has it admitted at a time, with quota of a flavor.
func Runs(clusterQueue, flavor string, since time.Time) func(*kueue.Workload) {
	return All(Admitted, Assigned(clusterQueue, flavor), Since(since))
}

// Admitted gives it quota.
func Admitted(wl *kueue.Workload) {
	Is(kueue.WorkloadQuotaReserved, "")(wl)
	Is(kueue.WorkloadAdmitted, "")(wl)
	wl.Status.Admission = &kueue.Admission{}
}

// Assigned has a ClusterQueue give it quota of a flavor, for all that its pods ask for.
func Assigned(clusterQueue, flavor string) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		wl.Status.Admission = &kueue.Admission{ClusterQueue: kueue.ClusterQueueReference(clusterQueue)}
		for _, ps := range wl.Spec.PodSets {
			assigned := kueue.PodSetAssignment{
				Name: ps.Name, Count: &ps.Count, Flavors: map[corev1.ResourceName]kueue.ResourceFlavorReference{}, ResourceUsage: corev1.ResourceList{},
			}
			for name, amount := range ps.Template.Spec.Containers[0].Resources.Requests {
				amount.Mul(int64(ps.Count))
				assigned.Flavors[name], assigned.ResourceUsage[name] = kueue.ResourceFlavorReference(flavor), amount
			}
			wl.Status.Admission.PodSetAssignments = append(wl.Status.Admission.PodSetAssignments, assigned)
		}
	}
}

// Deactivated has it not run.
func Deactivated(wl *kueue.Workload) { wl.Spec.Active = new(false) }

// Copied makes it one that MultiKueue made in a worker.
func Copied(wl *kueue.Workload) {
	wl.Labels = map[string]string{kueue.MultiKueueOriginLabel: "manager"}
}

// Held has Kueue's finalizer keep it until its quota is given back.
func Held(wl *kueue.Workload) { wl.Finalizers = []string{kueue.ResourceInUseFinalizerName} }

// Is makes a condition true.
func Is(condition, reason string) func(*kueue.Workload) { return Says(True(condition, reason)) }

// Isnt makes a condition false.
func Isnt(condition, reason string) func(*kueue.Workload) {
	isnt := True(condition, reason)
	isnt.Status = metav1.ConditionFalse
	return Says(isnt)
}

// Says sets a condition.
func Says(condition metav1.Condition) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		apimeta.RemoveStatusCondition(&wl.Status.Conditions, condition.Type)
		wl.Status.Conditions = append(wl.Status.Conditions, condition)
	}
}

// Since has it have said since a time what it says by now.
func Since(at time.Time) func(*kueue.Workload) {
	return func(wl *kueue.Workload) {
		for i := range wl.Status.Conditions {
			wl.Status.Conditions[i].LastTransitionTime = metav1.NewTime(at)
		}
	}
}

// All are several changes as one.
func All[T any](changes ...func(*T)) func(*T) { return func(obj *T) { With(obj, changes...) } }

// True is a condition that has held for long.
func True(condition, reason string) metav1.Condition {
	return metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: reason, LastTransitionTime: metav1.Unix(1, 0)}
}

// ChildJob builds a Job that a JobSet made of one of its replicated jobs.
func ChildJob(js *jobsetapi.JobSet, replicatedJob string, changes ...func(*batchv1.Job)) *batchv1.Job {
	return With(&batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: js.Namespace, Name: js.Name + "-" + replicatedJob + "-0",
		Labels:          map[string]string{jobsetapi.JobSetNameKey: js.Name, jobsetapi.ReplicatedJobNameKey: replicatedJob},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(js, jobsetapi.SchemeGroupVersion.WithKind("JobSet"))},
	}}, changes...)
}

// Active sets how many pods of a Job run.
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
