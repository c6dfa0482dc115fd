// SPDX-License-Identifier: Apache-2.0

package caches

import (
	"maps"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/placeholder"
	"github.com/kueue-trainer/kueue-trainer/pkg/podset"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// The Trim functions are transforms: they drop what the manager does not look
// at before it is stored. Of JobSets and Jobs the manager only writes differences, in which
// a part that is missing on both sides is left alone; jobframework writes Workloads whole.

// trimWorkload empties the Workloads that belong to other kinds of jobs. One without a
// controller stays whole: it may be a TrainJob's soon. So does one with a TrainJob among its
// owners: jobframework finds a TrainJob's Workloads by any of them. And so does a remainder: whether
// it is charged decides over it.
func trimWorkload(in any) (any, error) {
	wl, ok := in.(*kueue.Workload)
	if ok && ofAnother(wl) && wl.Labels[placeholder.Label] == "" &&
		!slices.ContainsFunc(wl.OwnerReferences, func(owner metav1.OwnerReference) bool { return owner.Kind == trainjob.GVK.Kind }) {
		wl.Spec, wl.Status = kueue.WorkloadSpec{}, kueue.WorkloadStatus{}
	}
	return Compact(in)
}

// trimJobSet empties the JobSets that no TrainJob controls, and drops what their
// pods run, but not what they ask for.
func trimJobSet(in any) (any, error) {
	js, ok := in.(*jobsetapi.JobSet)
	if !ok {
		return Compact(in)
	}
	if owner := metav1.GetControllerOfNoCopy(js); owner == nil || ofAnother(js) {
		js.Spec, js.Status = jobsetapi.JobSetSpec{}, jobsetapi.JobSetStatus{}
	}
	for i := range js.Spec.ReplicatedJobs {
		template := &js.Spec.ReplicatedJobs[i].Template.Spec.Template
		asked := askedOf(&template.Spec)
		trimTemplate(template)
		asked.NodeSelector, asked.Tolerations, asked.SchedulingGates = template.Spec.NodeSelector, template.Spec.Tolerations, template.Spec.SchedulingGates
		template.Spec = asked
	}
	return Compact(in)
}

// TrimJob drops what the pods of a Job run, and what JobSet and the Job controller write on
// them, and on the Job itself all but whose it is: these are most of its bytes. Of a Job that no TrainJob has queued, as
// anybody may make with a megabyte of tolerations, it drops a large rest, too.
func TrimJob(in any) (any, error) {
	if job, ok := in.(*batchv1.Job); ok {
		job.Annotations, job.Spec.Selector = nil, nil
		maps.DeleteFunc(job.Labels, func(key, _ string) bool {
			return key != jobsetapi.JobSetNameKey && key != jobsetapi.ReplicatedJobNameKey
		})
		template := &job.Spec.Template
		trimTemplate(template)
		maps.DeleteFunc(template.Labels, ofControllers)
		maps.DeleteFunc(template.Annotations, ofControllers)
		if !queued(job) && template.Size() > maxUnqueued {
			*template = corev1.PodTemplateSpec{}
		}
	}
	return Compact(in)
}

// maxUnqueued is how many bytes are kept of the pods of a Job that may queue yet: a placement has to leave what others, as
// JobSet, have written there.
const maxUnqueued = 4 << 10

// queued reports whether a Job may be a queued TrainJob's: JobSet made it, and an admission placed its pods or may yet.
func queued(job *batchv1.Job) bool {
	owner, template := metav1.GetControllerOfNoCopy(job), &job.Spec.Template
	if owner == nil || owner.Kind != "JobSet" {
		return false
	}
	_, marked := template.Labels[patch.GatedLabel]
	_, placed := template.Labels[kueueconstants.PodSetLabel]
	_, overridden := template.Annotations[patch.ManagerAnnotation]
	return marked || placed || overridden || patch.HasAdmissionGate(template.Spec.SchedulingGates)
}

// trimPod keeps of a pod behind the gate what PlacePod of pkg/podset brings to an admission, and of any other pod that
// has the label, as anybody may make with a megabyte in it, that it is there.
func trimPod(in any) (any, error) {
	if pod, ok := in.(*corev1.Pod); ok {
		_, ofJobSet := pod.Labels[jobsetapi.JobSetNameKey]
		spec := pod.Spec
		pod.Spec, pod.Status = corev1.PodSpec{}, corev1.PodStatus{}
		if ofJobSet && patch.HasAdmissionGate(spec.SchedulingGates) {
			pod.Spec = corev1.PodSpec{NodeSelector: spec.NodeSelector, Tolerations: spec.Tolerations, SchedulingGates: spec.SchedulingGates}
			// JobSet's name stays, as on a Job.
			maps.DeleteFunc(pod.Annotations, func(key, _ string) bool { return key != jobsetapi.JobSetNameKey && !podset.Owned(key) })
		} else {
			maps.DeleteFunc(pod.Labels, func(key, _ string) bool { return key != jobsetapi.JobSetNameKey && key != patch.GatedLabel })
			pod.Annotations, pod.Finalizers = nil, nil
		}
	}
	return Compact(in)
}

// ofControllers reports whether a label or annotation is JobSet's or the Job controller's.
// No admission has one. JobSet's name stays: a merge patch made of an empty map would take
// the whole map from the Job.
func ofControllers(key, _ string) bool {
	domain, _, _ := strings.Cut(key, "/")
	return key != jobsetapi.JobSetNameKey &&
		(domain == "jobset.sigs.k8s.io" || domain == "batch.kubernetes.io" || key == "controller-uid" || key == "job-name")
}

func ofAnother(obj client.Object) bool {
	owner := metav1.GetControllerOfNoCopy(obj)
	return owner != nil && owner.Kind != trainjob.GVK.Kind
}

// askedOf keeps what Excess of pkg/podset compares.
func askedOf(spec *corev1.PodSpec) corev1.PodSpec {
	return corev1.PodSpec{
		InitContainers: common(resourcesOf(spec.InitContainers)), Containers: common(resourcesOf(spec.Containers)),
		Resources: spec.Resources, Overhead: spec.Overhead, ResourceClaims: spec.ResourceClaims, NodeName: spec.NodeName,
	}
}

func resourcesOf(containers []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for i := range containers {
		out = append(out, corev1.Container{Name: containers[i].Name, Resources: containers[i].Resources, RestartPolicy: containers[i].RestartPolicy})
	}
	return out
}

// trimTemplate keeps what PlaceTemplate of pkg/podset brings to an admission.
func trimTemplate(template *corev1.PodTemplateSpec) {
	template.Spec = corev1.PodSpec{
		NodeSelector:    template.Spec.NodeSelector,
		Tolerations:     template.Spec.Tolerations,
		SchedulingGates: template.Spec.SchedulingGates,
	}
}
