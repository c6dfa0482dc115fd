// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"context"
	"fmt"
	"maps"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	podapi "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/batch"
	batchdefaults "k8s.io/kubernetes/pkg/apis/batch/v1"
	"k8s.io/kubernetes/pkg/apis/core"
	corevalidation "k8s.io/kubernetes/pkg/apis/core/validation"
	jobregistry "k8s.io/kubernetes/pkg/registry/batch/job"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// ofJob asks the API server's own code about the first Job of a replicated job and, if that
// is taken, about its first pod: of a Job's template less is checked than of a pod.
func ofJob(ctx context.Context, js *jobsetapi.JobSet, rj *jobsetapi.ReplicatedJob) []Refusal {
	child := childJob(js, rj)
	batchdefaults.SetObjectDefaults_Job(child)
	job := &batch.Job{}
	if err := batchdefaults.Convert_v1_Job_To_batch_Job(child, job, nil); err != nil {
		return []Refusal{{Kind: "Job", ReplicatedJob: rj.Name, Message: err.Error()}}
	}
	ctx = genericrequest.WithNamespace(ctx, job.Namespace)
	jobregistry.Strategy.PrepareForCreate(ctx, job)
	if errs := jobregistry.Strategy.Validate(ctx, job); len(errs) > 0 {
		return refusals("Job", "", rj, errs)
	}
	pod := &core.Pod{ObjectMeta: job.Spec.Template.ObjectMeta, Spec: job.Spec.Template.Spec}
	pod.Name, pod.Namespace = job.Name+"-0-abcde", job.Namespace
	errs := corevalidation.ValidatePodCreate(pod, podapi.GetValidationOptionsFromPodTemplate(&job.Spec.Template, nil))
	return refusals("Pod", "spec.template.", rj, errs)
}

// childJob is the Job that JobSet makes, as far as validation goes (constructJob in JobSet's
// pkg/controllers, which cannot be imported beside Kueue's feature gates).
func childJob(js *jobsetapi.JobSet, rj *jobsetapi.ReplicatedJob) *batchv1.Job {
	job := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("%s-%s-0", js.Name, rj.Name), Namespace: js.Namespace, UID: "0",
			Labels: maps.Clone(rj.Template.Labels), Annotations: maps.Clone(rj.Template.Annotations),
		},
		Spec: *rj.Template.Spec.DeepCopy(),
	}
	pod := &job.Spec.Template
	pod.Labels = maps.Clone(pod.Labels)
	for _, labels := range []*map[string]string{&job.Labels, &pod.Labels} {
		if *labels == nil {
			*labels = map[string]string{}
		}
		(*labels)[jobsetapi.JobSetNameKey], (*labels)[jobsetapi.ReplicatedJobNameKey] = js.Name, rj.Name
	}
	pod.Spec.Subdomain = subdomain(js)
	for _, policy := range js.Spec.VolumeClaimPolicies {
		for i := range policy.Templates {
			claim := policy.Templates[i].Name
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim + "-" + js.Name},
			}})
		}
	}
	return job
}

func subdomain(js *jobsetapi.JobSet) string {
	if network := js.Spec.Network; network != nil && network.Subdomain != "" {
		return network.Subdomain
	}
	return js.Name
}

func refusals(kind, prefix string, rj *jobsetapi.ReplicatedJob, errs field.ErrorList) []Refusal {
	var all []Refusal
	for _, err := range errs {
		switch prefix + err.Field {
		case "metadata.name", "spec.template.metadata.name", "spec.template.spec.subdomain":
			// These are the JobSet's; of names package podset says how long one may be.
			continue
		}
		// By names: the lists that a list comes from may have its items at other places.
		_, path, _, _ := Follow(Tree(&rj.Template), prefix+err.Field)
		all = append(all, Refusal{Kind: kind, ReplicatedJob: rj.Name, Path: path, Message: err.ErrorBody()})
	}
	return all
}
