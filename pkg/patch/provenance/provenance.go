// SPDX-License-Identifier: Apache-2.0

// Package provenance tells who set a field of the JobSet that Trainer makes of a
// TrainJob, and what it would be otherwise.
//
// The order is that of Trainer's guides: the TrainJob's own API wins over later patches,
// those over earlier ones, and all of them over the runtime. What Trainer really
// rendered has the last word: a field that none of them said is Trainer's own.
package provenance

import (
	"bytes"
	"cmp"
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

// Kind is what a source is.
type Kind string

const (
	// Runtime is the TrainingRuntime or ClusterTrainingRuntime.
	Runtime Kind = "runtime"
	// Patch is an entry of spec.runtimePatches, or of spec.podTemplateOverrides.
	Patch Kind = "patch"
	// TrainJob is spec.trainer, spec.initializer and, in Trainer 2.1, spec.labels and
	// spec.annotations.
	TrainJob Kind = "TrainJob"
	// Trainer is the controller with its plugins: numbers of pods, variables of a framework.
	Trainer Kind = "Trainer"
)

// Source is who can set a field.
type Source struct {
	Kind Kind
	// Index is the place of a Patch in its list.
	Index int
	// Manager owns a Patch; empty for overrides, which have no owner.
	Manager string
}

func (s Source) String() string {
	switch {
	case s.Kind != Patch:
		return string(s.Kind)
	case s.Manager != "":
		return s.Manager
	}
	return fmt.Sprintf("podTemplateOverrides[%d]", s.Index)
}

// Setting is a source and the value that it sets.
type Setting struct {
	Source
	// Value is JSON, encoded by Trainer's types.
	Value json.RawMessage
}

// Field is one value of the JobSet.
type Field struct {
	// Job is the replicated job; empty for the JobSet itself.
	Job string
	// Path goes on from the JobSet or from the template of the replicated job, with keys
	// of maps and keyed lists in brackets: spec.template.spec.nodeSelector[pool]. Items with
	// the same key are counted: ports[53] and ports[53#2]. A list that Kubernetes replaces
	// as a whole, such as tolerations, is one field.
	Path string
	// Setting is the effective one.
	Setting
	// Overrode are those that it took the place of, the strongest first.
	Overrode []Setting
}

// Input is what Trainer rendered the JobSet from.
type Input struct {
	// Runtime must be there: it is the weakest source of almost every field.
	Runtime *trainer.TrainingRuntimeSpec
	// Job must be there. It has the entries, or the overrides of Trainer 2.1.
	Job *trainjob.TrainJob
	// Labels and Annotations are those of a TrainJob of Trainer 2.1.
	Labels, Annotations map[string]string
}

// Explain returns a Field for each value of the JobSet's metadata (labels and annotations)
// and of its Job templates, sorted. The error is of patches that Trainer cannot have rendered from.
func Explain(in Input, js *jobsetapi.JobSet) ([]Field, error) {
	said, err := in.settings(js)
	if err != nil {
		return nil, err
	}
	rendered := ofJobSet(&js.ObjectMeta, &js.Spec)
	fields := make([]Field, 0, len(rendered))
	for at, value := range rendered {
		fields = append(fields, explain(at, value, said[at]))
	}
	slices.SortFunc(fields, func(a, b Field) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Path, b.Path))
	})
	return fields, nil
}

// explain finds the strongest setting, the settings' last, that has the rendered value.
// Stronger ones did not come into effect.
func explain(at place, value json.RawMessage, settings []Setting) Field {
	f := Field{Job: at.job, Path: at.path, Setting: Setting{Source{Kind: Trainer}, value}}
	slices.Reverse(settings)
	effective := slices.IndexFunc(settings, func(s Setting) bool { return bytes.Equal(s.Value, value) })
	if effective >= 0 {
		f.Setting = settings[effective]
	}
	f.Overrode = settings[effective+1:]
	return f
}

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
