// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"
	"sigs.k8s.io/kueue/pkg/controller/jobframework"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/options"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/convert"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// request is what the flags ask for.
type request struct {
	name, namespace string
	// runtime is a name, or a kind and a name with a slash between them.
	runtime string
	nodes   int32
	gpus    int64
	// resource is what GPUs are asked for by.
	resource        string
	image           string
	command, args   []string
	env             []string
	queue, priority string
	// topology is required=LEVEL or preferred=LEVEL.
	topology            string
	labels, annotations []string
	// patch is a file with a runtime patch, or the patch itself.
	patch string
}

// trainJob makes the TrainJob, with runtimePatches. builtin is for a runtime that brings a
// trainer of its own.
func (r *request) trainJob(builtin bool) (*trainjob.TrainJob, error) {
	job := &trainjob.TrainJob{}
	job.APIVersion, job.Kind = trainjob.GVK.ToAPIVersionAndKind()
	job.Namespace = r.namespace
	ref, err := r.runtimeRef()
	if err != nil {
		return nil, err
	}
	job.Spec.RuntimeRef = ref
	if r.name == "" {
		job.GenerateName = ref.Name + "-"
	}
	if job.Spec.Trainer, err = r.trainer(); err != nil {
		return nil, err
	}
	all, err := r.options()
	if err != nil {
		return nil, err
	}
	of := options.NoTrainer
	switch {
	case r.image != "":
		of = options.CustomTrainerContainer
	case builtin:
		of = options.BuiltinTrainer
	}
	for _, option := range all {
		if err := option.Apply(job, of); err != nil {
			return nil, err
		}
	}
	return job, nil
}

func (r *request) runtimeRef() (trainer.RuntimeRef, error) {
	kind, name, found := strings.Cut(r.runtime, "/")
	if !found {
		kind, name = trainer.ClusterTrainingRuntimeKind, kind
	}
	ref := trainer.RuntimeRef{Name: name, APIGroup: ptr.To(trainer.GroupVersion.Group)}
	switch strings.ToLower(kind) {
	case "clustertrainingruntime":
		ref.Kind = ptr.To(trainer.ClusterTrainingRuntimeKind)
	case "trainingruntime":
		ref.Kind = ptr.To(trainer.TrainingRuntimeKind)
	default:
		return ref, fmt.Errorf("--runtime %s: the kind is clustertrainingruntime or trainingruntime", r.runtime)
	}
	return ref, nil
}

// trainer returns what the flags say of it, or nil.
func (r *request) trainer() (*trainer.Trainer, error) {
	t := &trainer.Trainer{}
	if r.nodes < 0 || r.gpus < 0 {
		return nil, errors.New("--nodes and --gpus-per-node are 1 or more")
	}
	if r.nodes > 0 {
		t.NumNodes = &r.nodes
	}
	if r.image != "" {
		t.Image = &r.image
	}
	if r.gpus > 0 {
		amount := corev1.ResourceList{corev1.ResourceName(r.resource): *resource.NewQuantity(r.gpus, resource.DecimalSI)}
		// Both, whatever the runtime has: they must be equal.
		t.ResourcesPerNode = &corev1.ResourceRequirements{Limits: amount, Requests: amount}
	}
	for _, variable := range r.env {
		name, value, ok := strings.Cut(variable, "=")
		if !ok || name == "" {
			return nil, fmt.Errorf("--env %s: write NAME=VALUE", variable)
		}
		// The API server takes more, and no shell does.
		if wrong := validation.IsEnvVarName(name); len(wrong) > 0 {
			return nil, fmt.Errorf("--env %s: %q is no name of a variable: %s", variable, name, strings.Join(wrong, ", "))
		}
		t.Env = append(t.Env, corev1.EnvVar{Name: name, Value: value})
	}
	if t.NumNodes == nil && t.Image == nil && t.ResourcesPerNode == nil && t.Env == nil {
		return nil, nil
	}
	return t, nil
}

// options returns those of the SDK that the flags ask for.
func (r *request) options() ([]options.Option, error) {
	var all []options.Option
	if r.name != "" {
		all = append(all, options.Name(r.name))
	}
	labels, err := pairs("--label", r.labels)
	if err != nil {
		return nil, err
	}
	for flag, label := range map[string]struct{ key, value string }{
		"--queue": {kueueconstants.QueueLabel, r.queue}, "--priority": {kueueconstants.WorkloadPriorityClassLabel, r.priority},
	} {
		if old, ok := labels[label.key]; ok && label.value != "" && old != label.value {
			return nil, fmt.Errorf("%s and --label %s name different ones: leave one of them out", flag, label.key)
		}
		if label.value != "" {
			labels[label.key] = label.value
		}
	}
	annotations, err := pairs("--annotation", r.annotations)
	if err != nil {
		return nil, err
	}
	if len(labels) > 0 {
		all = append(all, options.Labels(labels))
	}
	if len(annotations) > 0 {
		all = append(all, options.Annotations(annotations))
	}
	if len(r.command) > 0 {
		all = append(all, options.TrainerCommand(r.command))
	}
	if len(r.args) > 0 {
		all = append(all, options.TrainerArgs(r.args))
	}
	patch, err := r.runtimePatch()
	if err != nil {
		return nil, err
	}
	if patch.TrainingRuntimeSpec != nil {
		all = append(all, patch)
	}
	return all, nil
}

// pairs reads KEY=VALUE.
func pairs(flag string, values []string) (map[string]string, error) {
	read := map[string]string{}
	for _, pair := range values {
		key, value, ok := strings.Cut(pair, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("%s %s: write KEY=VALUE", flag, pair)
		}
		read[key] = value
	}
	return read, nil
}

// runtimePatch reads --runtime-patch, and adds what --topology asks for.
func (r *request) runtimePatch() (options.RuntimePatch, error) {
	var given struct {
		TrainingRuntimeSpec *options.TrainingRuntimeSpecPatch `json:"trainingRuntimeSpec"`
	}
	if r.patch != "" {
		data := []byte(r.patch)
		if !strings.ContainsAny(r.patch, "{\n:") {
			var err error
			if data, err = os.ReadFile(r.patch); err != nil {
				return options.RuntimePatch{}, fmt.Errorf("--runtime-patch: %w", err)
			}
		}
		if err := yaml.UnmarshalStrict(data, &given); err != nil {
			return options.RuntimePatch{}, fmt.Errorf("--runtime-patch is not what follows a manager in spec.runtimePatches, {trainingRuntimeSpec: {template: ...}}: %w", err)
		}
		if given.TrainingRuntimeSpec == nil {
			return options.RuntimePatch{}, errors.New("--runtime-patch says nothing: it begins with trainingRuntimeSpec")
		}
	}
	patch := options.RuntimePatch{TrainingRuntimeSpec: given.TrainingRuntimeSpec}
	return patch, r.addTopology(&patch)
}

// manifest returns the TrainJob as the generation has it. What a rule refuses has an exit
// code of its own.
func manifest(job *trainjob.TrainJob, generation trainjob.TrainerVersion) (*unstructured.Unstructured, error) {
	data, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	if generation == trainjob.Trainer21 {
		older, _, errs := convert.ManifestToPodTemplateOverrides(data)
		if len(errs) > 0 {
			return nil, exit.With(exit.Findings, fmt.Errorf("for Trainer 2.1, which the cluster has: %w", errs.ToAggregate()))
		}
		data = older
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(data); err != nil {
		return nil, err
	}
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	if data, err = u.MarshalJSON(); err != nil {
		return nil, err
	}
	errs := slices.Concat(rules.Fields(generation, data), rules.Pods(data), jobframework.ValidateQueueName(job))
	return u, exit.With(exit.Findings, errs.ToAggregate())
}
