// SPDX-License-Identifier: Apache-2.0

package caches

import (
	"maps"
	"unique"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// Compact is the transform of all that no other is for. It drops managed fields, and shares strings and lists of resources
// that are equal: objects in caches are only read.
func Compact(in any) (any, error) {
	switch obj := in.(type) {
	case *trainjob.TrainJob:
		shareMeta(&obj.ObjectMeta)
		shareConditions(obj.Status.Conditions)
		if obj.Spec.Trainer != nil && obj.Spec.Trainer.ResourcesPerNode != nil {
			shareLists(obj.Spec.Trainer.ResourcesPerNode)
		}
	case *kueue.Workload:
		shareMeta(&obj.ObjectMeta)
		shareConditions(obj.Status.Conditions)
		for i := range obj.Spec.PodSets {
			shareTemplate(&obj.Spec.PodSets[i].Template)
		}
	case *jobsetapi.JobSet:
		shareMeta(&obj.ObjectMeta)
		shareConditions(obj.Status.Conditions)
		for i := range obj.Spec.ReplicatedJobs {
			shareMeta(&obj.Spec.ReplicatedJobs[i].Template.ObjectMeta)
			shareTemplate(&obj.Spec.ReplicatedJobs[i].Template.Spec.Template)
		}
	case *batchv1.Job:
		shareMeta(&obj.ObjectMeta)
		shareTemplate(&obj.Spec.Template)
	}
	return stripManagedFields(in)
}

func shareTemplate(template *corev1.PodTemplateSpec) {
	shareMeta(&template.ObjectMeta)
	template.Spec.NodeSelector = sharedMap(template.Spec.NodeSelector)
	for i := range template.Spec.Containers {
		shareLists(&template.Spec.Containers[i].Resources)
	}
}

func shareMeta(meta *metav1.ObjectMeta) {
	meta.Namespace = shared(meta.Namespace)
	meta.Labels, meta.Annotations = sharedMap(meta.Labels), sharedMap(meta.Annotations)
}

func shareConditions(conditions []metav1.Condition) {
	for i := range conditions {
		c := &conditions[i]
		c.Type, c.Reason, c.Message = shared(c.Type), shared(c.Reason), shared(c.Message)
	}
}

// shareLists keeps one map where requests and limits are equal.
func shareLists(resources *corev1.ResourceRequirements) {
	if maps.Equal(resources.Requests, resources.Limits) {
		resources.Requests = resources.Limits
	}
}

// sharedMap returns a copy of the right size: a map keeps the memory of what was deleted from it.
func sharedMap(of map[string]string) map[string]string {
	if of == nil {
		return nil
	}
	out := make(map[string]string, len(of))
	for key, value := range of {
		out[shared(key)] = shared(value)
	}
	return out
}

// longest is the length, in bytes, of the strings that many objects may have.
const longest = 256

func shared(text string) string {
	if len(text) > longest {
		return text
	}
	return unique.Make(text).Value()
}
