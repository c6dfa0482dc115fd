// SPDX-License-Identifier: Apache-2.0

package provenance

import (
	"encoding/json"
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	jobsetconstants "github.com/kubeflow/trainer/v2/pkg/runtime/framework/plugins/jobset/constants"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// stack holds what the sources say about each field, the strongest last.
type stack map[place][]Setting

// push puts a source on top. An item that was nothing but its key is a field no more when
// the source gives it some; in a patch it says nothing of an item that has some already.
func (s stack) push(source Source, said values) {
	merged := map[place]bool{}
	if source.Kind == Patch {
		for at := range s {
			at.eachItem(func(item place) { merged[item] = true })
		}
	}
	for at := range said {
		at.eachItem(func(item place) { delete(s, item) })
	}
	for at, value := range said {
		if !merged[at] {
			s[at] = append(s[at], Setting{source, value})
		}
	}
}

// settings asks all sources, the weakest first.
func (in Input) settings(js *jobsetapi.JobSet) (stack, error) {
	all := stack{}
	all.push(Source{Kind: Runtime}, ofJobSet(&in.Runtime.Template.ObjectMeta, &in.Runtime.Template.Spec))
	for i, o := range in.Job.Spec.PodTemplateOverrides {
		said, err := ofOverride(o)
		if err != nil {
			return nil, fmt.Errorf("decoding spec.podTemplateOverrides[%d]: %w", i, err)
		}
		all.push(Source{Kind: Patch, Index: i}, said)
	}
	for i, p := range in.Job.Spec.RuntimePatches {
		said, err := ofPatch(p)
		if err != nil {
			return nil, err
		}
		all.push(Source{Kind: Patch, Index: i, Manager: p.Manager}, said)
	}
	all.push(Source{Kind: TrainJob}, in.ofTrainJob(js, all))
	return all, nil
}

// ofOverride says of each target job what Trainer 2.1 merges into its pods: labels,
// annotations and the pod spec.
func ofOverride(o trainjob.RuntimePatch) (values, error) {
	var pod trainer.PodTemplatePatch
	if err := o.DecodeInto(&pod); err != nil {
		return nil, err
	}
	said := values{}
	for _, job := range o.TargetJobs {
		said.addTemplate(job, trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: &pod}})
	}
	return said, nil
}

func ofPatch(p trainjob.RuntimePatch) (values, error) {
	entry, err := p.Decode()
	if err != nil {
		return nil, err
	}
	said := values{}
	template := ptr.Deref(ptr.Deref(entry.TrainingRuntimeSpec, trainer.TrainingRuntimeSpecPatch{}).Template, trainer.JobSetTemplatePatch{})
	metadata := ptr.Deref(template.Metadata, metav1.ObjectMeta{})
	said.addMetadata(metadata.Labels, metadata.Annotations)
	for _, job := range ptr.Deref(template.Spec, trainer.JobSetSpecPatch{}).ReplicatedJobs {
		said.addTemplate(job.Name, job.Template)
	}
	return said, nil
}

// ofTrainJob says what Trainer's JobSet builder takes from the TrainJob's own API
// (pkg/runtime/framework/plugins/jobset/builder.go there). Below are the weaker settings.
func (in Input) ofTrainJob(js *jobsetapi.JobSet, below stack) values {
	said := values{}
	said.addMetadata(in.Labels, in.Annotations)
	for i := range js.Spec.ReplicatedJobs {
		job := &js.Spec.ReplicatedJobs[i]
		if container := in.container(job, below); container != nil {
			var template batchv1.JobTemplateSpec
			template.Spec.Template.Spec.Containers = []corev1.Container{*container}
			said.addTemplate(job.Name, template)
		}
	}
	return said
}

// container is the one of a replicated job that the TrainJob sets something in, with nothing else; nil
// where it does not.
func (in Input) container(job *jobsetapi.ReplicatedJob, below stack) *corev1.Container {
	initializer := ptr.Deref(in.Job.Spec.Initializer, trainer.Initializer{})
	t := in.Job.Spec.Trainer
	switch step := job.Template.Labels[constants.LabelTrainJobAncestor]; {
	case step == constants.DatasetInitializer && initializer.Dataset != nil:
		d := initializer.Dataset
		return initializes(step, d.StorageUri, d.Env, d.SecretRef, envFrom(below, job.Name, step))
	case step == constants.ModelInitializer && initializer.Model != nil:
		m := initializer.Model
		return initializes(step, m.StorageUri, m.Env, m.SecretRef, envFrom(below, job.Name, step))
	case t == nil || !trainjob.RunsNodes(in.Runtime.MLPolicy, job):
		return nil
	case step == constants.AncestorTrainer:
		return &corev1.Container{Name: constants.Node, Image: ptr.Deref(t.Image, ""), Command: t.Command, Args: t.Args,
			Env: t.Env, Resources: ptr.Deref(t.ResourcesPerNode, corev1.ResourceRequirements{})}
	}
	return &corev1.Container{Name: constants.Node, Env: t.Env, Resources: ptr.Deref(t.ResourcesPerNode, corev1.ResourceRequirements{})}
}

func initializes(name string, storageURI *string, env []corev1.EnvVar, secret *corev1.LocalObjectReference, envFrom []corev1.EnvFromSource) *corev1.Container {
	container := &corev1.Container{Name: name, Env: env}
	if storageURI != nil {
		container.Env = append([]corev1.EnvVar{{Name: jobsetconstants.InitializerEnvStorageUri, Value: *storageURI}}, env...)
	}
	if secret != nil {
		container.EnvFrom = slices.Concat(envFrom, []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: *secret}}})
	}
	return container
}

// envFrom is the list that an initializer's secret is added to.
func envFrom(below stack, job, container string) (list []corev1.EnvFromSource) {
	settings := below[place{job, "spec.template.spec.containers[" + container + "].envFrom"}]
	if len(settings) > 0 {
		_ = json.Unmarshal(settings[len(settings)-1].Value, &list) // It was encoded here.
	}
	return list
}
