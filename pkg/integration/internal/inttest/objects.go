// SPDX-License-Identifier: Apache-2.0

package inttest

import (
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

// Job is TrainJob team/llm.
func Job(uid types.UID) *trainjob.TrainJob {
	return &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: uid}}
}

// Owned is the metadata of what a TrainJob controls.
func Owned(job metav1.Object, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: job.GetNamespace(), Name: name, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(job, trainjob.GVK)},
	}
}

// WorkloadOf makes the Workload of a TrainJob, which waits where no change says otherwise.
func WorkloadOf(job *trainjob.TrainJob, changes ...func(*kueue.Workload)) *kueue.Workload {
	wl := &kueue.Workload{ObjectMeta: Owned(job, jobframework.GetWorkloadNameForOwnerWithGVK(job.Name, job.UID, trainjob.GVK))}
	wl.Spec.QueueName = kueue.LocalQueueName(job.Labels["kueue.x-k8s.io/queue-name"])
	return kit.With(wl, changes...)
}

// AdmittedOf makes the Workload of TrainJob team/llm, which has quota.
func AdmittedOf(uid types.UID, changes ...func(*kueue.Workload)) *kueue.Workload {
	return WorkloadOf(Job(uid), append([]func(*kueue.Workload){kit.Admitted}, changes...)...)
}

// JobSetOf makes the JobSet of a TrainJob.
func JobSetOf(job *trainjob.TrainJob, suspended bool, replicatedJobs ...jobsetapi.ReplicatedJob) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{ObjectMeta: Owned(job, job.Name)}
	js.UID, js.Spec.Suspend, js.Spec.ReplicatedJobs = "js", &suspended, replicatedJobs
	if suspended {
		js.Status.Conditions = []metav1.Condition{{Type: string(jobsetapi.JobSetSuspended), Status: metav1.ConditionTrue}}
	}
	return js
}

// Runtime returns a ClusterTrainingRuntime "torch" of one replicated job, "node".
func Runtime() *trainer.ClusterTrainingRuntime {
	rt := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}}
	rt.Spec.Template.Spec.ReplicatedJobs = []jobsetapi.ReplicatedJob{{Name: "node", Replicas: 1, Template: batchv1.JobTemplateSpec{
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "node", Image: "i"}}}}},
	}}}
	return rt
}

// PodOf makes a pod that a JobSet's Job runs on a node.
func PodOf(namespace, jobSet string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: jobSet + "-0", UID: "pod",
			Labels:          map[string]string{jobsetapi.JobSetNameKey: jobSet, kueueconstants.PodSetLabel: "node"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: jobSet, UID: "j", Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "node"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	return kit.With(pod, changes...)
}

// ClusterQueue makes a ClusterQueue "cq" behind admission checks.
func ClusterQueue(checks ...string) *kueue.ClusterQueue {
	return &kueue.ClusterQueue{
		ObjectMeta: metav1.ObjectMeta{Name: "cq"}, Spec: kueue.ClusterQueueSpec{AdmissionChecksStrategy: kit.Checks(checks...)},
	}
}

// Check makes an AdmissionCheck.
func Check(name, controller string) *kueue.AdmissionCheck {
	return &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: kueue.AdmissionCheckSpec{ControllerName: controller}}
}

// Refusal is what Trainer tells of a JobSet that it could not make.
func Refusal(at time.Time, about types.UID, note string) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "refusal"}, EventTime: metav1.NewMicroTime(at), Type: corev1.EventTypeWarning,
		Reason: "TrainJobResourcesCreationFailed", Regarding: corev1.ObjectReference{Kind: "TrainJob", UID: about}, Note: note,
	}
}

// Manifest returns a TrainJob in a queue, or in none, with a spec.
func Manifest(queue, spec string) string {
	return `{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{"name":"job","labels":{` + queue + `}},"spec":` + spec + `}`
}

// Queued is the label of a TrainJob in queue q, as JSON; Gate is our entry at the gate of
// replicated job node.
const (
	Queued = `"kueue.x-k8s.io/queue-name":"q"`
	Gate   = `{"manager":"kueue.x-k8s.io/manager","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node","template":{"spec":{"template":{"metadata":{"labels":{"kueue-trainer.dev/gated":"true"}},"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}}}}]}}}}`
)
