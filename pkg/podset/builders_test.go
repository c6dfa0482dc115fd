// SPDX-License-Identifier: Apache-2.0

package podset

import (
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// jobBuilder builds a replicated job of one replica with one pod.
type jobBuilder struct{ jobsetapi.ReplicatedJob }

func makeJob(name string) *jobBuilder {
	b := &jobBuilder{jobsetapi.ReplicatedJob{Name: name, Replicas: 1}}
	b.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "main"}}
	return b
}

func (b *jobBuilder) replicas(n int32) *jobBuilder {
	b.Replicas = n
	return b
}

func (b *jobBuilder) pods(parallelism, completions *int32) *jobBuilder {
	b.Template.Spec.Parallelism, b.Template.Spec.Completions = parallelism, completions
	return b
}

func (b *jobBuilder) gpus(name corev1.ResourceName) *jobBuilder {
	b.Template.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{name: resource.MustParse("8")}
	return b
}

func (b *jobBuilder) tolerations(list ...corev1.Toleration) *jobBuilder {
	b.Template.Spec.Template.Spec.Tolerations = list
	return b
}

func (b *jobBuilder) annotation(key, value string) *jobBuilder {
	b.Template.Spec.Template.Annotations = map[string]string{key: value}
	return b
}

func (b *jobBuilder) dependsOn(name string, status jobsetapi.DependsOnStatus) *jobBuilder {
	b.DependsOn = append(b.DependsOn, jobsetapi.DependsOn{Name: name, Status: status})
	return b
}

func jobSet(jobs ...*jobBuilder) *jobsetapi.JobSet {
	js := &jobsetapi.JobSet{}
	for _, b := range jobs {
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, b.ReplicatedJob)
	}
	return js
}

// status returns ready, succeeded and failed child Jobs of a replicated job.
func status(name string, ready, succeeded, failed int32) trainer.JobStatus {
	return trainer.JobStatus{Name: name, Ready: new(ready), Succeeded: new(succeeded), Failed: new(failed)}
}

func exists(key string) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
}

func gates(names ...string) []corev1.PodSchedulingGate {
	var all []corev1.PodSchedulingGate
	for _, name := range names {
		all = append(all, corev1.PodSchedulingGate{Name: name})
	}
	return all
}
