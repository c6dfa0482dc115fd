// SPDX-License-Identifier: Apache-2.0

package options

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

type object = map[string]any

// inPod is a RuntimePatch of the pods of node.
func inPod(pod *PodTemplatePatch) RuntimePatch {
	return RuntimePatch{&TrainingRuntimeSpecPatch{&JobSetTemplatePatch{Spec: &JobSetSpecPatch{[]ReplicatedJobPatch{
		{Name: "node", Template: &JobTemplatePatch{Spec: &JobSpecPatch{pod}}},
	}}}}}
}

const beforePod, afterPod = `{"spec":{"runtimePatches":[{"manager":"trainer.kubeflow.org/kubeflow-sdk","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node","template":{"spec":{"template":`,
	`}}}]}}}}]}}`

func TestApply(t *testing.T) {
	cases := map[string]struct {
		options []Option
		trainer Trainer
		// want is the TrainJob in JSON, without what every one has.
		want string
	}{
		"no option":                         {want: `{}`},
		"a name":                            {options: []Option{Name("mine")}, want: `{"metadata":{"name":"mine"}}`},
		"labels: the last option wins":      {options: []Option{Labels{"a": "1"}, Labels{"b": "2"}}, want: `{"metadata":{"labels":{"b":"2"}}}`},
		"annotations: the last option wins": {options: []Option{Annotations{"a": "1"}, Annotations{"b": "2"}}, want: `{"metadata":{"annotations":{"b":"2"}}}`},
		"command and arguments of a container": {
			options: []Option{TrainerCommand{"torchrun"}, TrainerArgs{"train.py", "--fast"}}, trainer: CustomTrainerContainer,
			want: `{"spec":{"trainer":{"command":["torchrun"],"args":["train.py","--fast"]}}}`,
		},
		"a command without a trainer": {options: []Option{TrainerCommand{"torchrun"}}, want: `{"spec":{"trainer":{"command":["torchrun"]}}}`},
		"a patch of nothing":          {options: []Option{RuntimePatch{}}, want: `{"spec":{"runtimePatches":[{"manager":"trainer.kubeflow.org/kubeflow-sdk"}]}}`},
		"a patch of empty parts": {
			options: []Option{RuntimePatch{&TrainingRuntimeSpecPatch{&JobSetTemplatePatch{Spec: &JobSetSpecPatch{[]ReplicatedJobPatch{}}}}}},
			want:    `{"spec":{"runtimePatches":[{"manager":"trainer.kubeflow.org/kubeflow-sdk"}]}}`,
		},
		"empty parts below a replicated job": {
			options: []Option{inPod(&PodTemplatePatch{Spec: &PodSpecPatch{Containers: []ContainerPatch{}}})},
			want:    `{"spec":{"runtimePatches":[{"manager":"trainer.kubeflow.org/kubeflow-sdk","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node"}]}}}}]}}`,
		},
		"objects stay as they are, empty ones too": {
			options: []Option{inPod(&PodTemplatePatch{
				Metadata: object{},
				Spec:     &PodSpecPatch{NodeSelector: map[string]string{}, Affinity: object{"nodeAffinity": nil}, Volumes: []object{{}}},
			})},
			want: beforePod + `{"metadata":{},"spec":{"nodeSelector":{},"affinity":{"nodeAffinity":null},"volumes":[{}]}}` + afterPod,
		},
		"everything a pod can have": {
			options: []Option{inPod(&PodTemplatePatch{
				Metadata: object{"labels": object{"team": "ml"}},
				Spec: &PodSpecPatch{
					ServiceAccountName: ptr.To("sa"),
					Volumes:            []object{{"name": "data", "emptyDir": object{}}},
					InitContainers:     []ContainerPatch{{Name: "fetch", Env: []object{{"name": "ID", "value": ""}}}},
					Containers: []ContainerPatch{{
						Name: "side",
						Env: []object{
							{"name": "POD", "valueFrom": object{"fieldRef": object{"fieldPath": "metadata.name"}}},
							{"name": "KEY", "valueFrom": object{"secretKeyRef": object{"name": "s", "key": "k"}}},
						},
						VolumeMounts:    []object{{"name": "data", "mountPath": "/data", "readOnly": false}},
						SecurityContext: object{"privileged": false},
					}},
					ImagePullSecrets: []object{{"name": "registry"}},
					SecurityContext:  object{"fsGroup": 7},
					NodeSelector:     map[string]string{"pool": "gpu"},
					Affinity:         object{"podAffinity": object{}},
					Tolerations:      []object{{"key": "nvidia.com/gpu", "operator": "Exists"}},
					SchedulingGates:  []object{{"name": "example.com/wait"}},

					TerminationGracePeriodSeconds: ptr.To[int64](30),
				},
			})},
			want: beforePod + `{"metadata":{"labels":{"team":"ml"}},"spec":{
				"serviceAccountName":"sa",
				"volumes":[{"name":"data","emptyDir":{}}],
				"initContainers":[{"name":"fetch","env":[{"name":"ID","value":""}]}],
				"containers":[{"name":"side",
					"env":[{"name":"POD","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}},{"name":"KEY","valueFrom":{"secretKeyRef":{"name":"s","key":"k"}}}],
					"volumeMounts":[{"name":"data","mountPath":"/data","readOnly":false}],
					"securityContext":{"privileged":false}}],
				"imagePullSecrets":[{"name":"registry"}],
				"securityContext":{"fsGroup":7},
				"nodeSelector":{"pool":"gpu"},
				"affinity":{"podAffinity":{}},
				"tolerations":[{"key":"nvidia.com/gpu","operator":"Exists"}],
				"schedulingGates":[{"name":"example.com/wait"}],
				"terminationGracePeriodSeconds":30}}` + afterPod,
		},
		"metadata of the JobSet and of a Job": {
			options: []Option{RuntimePatch{&TrainingRuntimeSpecPatch{&JobSetTemplatePatch{
				Metadata: object{"labels": object{"a": "1"}},
				Spec: &JobSetSpecPatch{[]ReplicatedJobPatch{{
					Name: "node", Template: &JobTemplatePatch{Metadata: object{"annotations": object{"b": "2"}}},
				}}},
			}}}},
			want: `{"spec":{"runtimePatches":[{"manager":"trainer.kubeflow.org/kubeflow-sdk","trainingRuntimeSpec":{"template":{
				"metadata":{"labels":{"a":"1"}},
				"spec":{"replicatedJobs":[{"name":"node","template":{"metadata":{"annotations":{"b":"2"}}}}]}}}}]}}`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := &trainjob.TrainJob{}
			for _, option := range tc.options {
				expect.NoError(t, option.Apply(job, tc.trainer))
			}
			expect.Same(t, "Unexpected TrainJob", expect.FromJSON[object](t, tc.want), withoutDefaults(t, job))
		})
	}
}

// TestTrainJobOfTheSDK builds the TrainJob that docs/use.md#from-python submits by the SDK.
func TestTrainJobOfTheSDK(t *testing.T) {
	data := expect.Must(os.ReadFile(filepath.Join("..", "..", "docs", "samples", "sdk-trainjob.json")))(t)
	job := expect.FromJSON[trainjob.TrainJob](t, string(data))
	want := withoutDefaults(t, &job)
	job.ObjectMeta, job.Spec.RuntimePatches = metav1.ObjectMeta{}, nil
	job.Spec.Trainer.Command, job.Spec.Trainer.Args = nil, nil

	patch := inPod(&PodTemplatePatch{
		Metadata: object{"labels": object{"example.com/stage": "training"}},
		Spec: &PodSpecPatch{
			Volumes: []object{{"name": "scratch", "emptyDir": object{"sizeLimit": "2Gi"}}},
			Containers: []ContainerPatch{{
				Name:            "node",
				VolumeMounts:    []object{{"name": "scratch", "mountPath": "/scratch", "readOnly": false}},
				SecurityContext: object{"allowPrivilegeEscalation": false},
			}},
			ImagePullSecrets: []object{{"name": "registry"}},
			SecurityContext:  object{"runAsNonRoot": false},
			NodeSelector:     map[string]string{"kubernetes.io/os": "linux"},
			Affinity: object{"nodeAffinity": object{"preferredDuringSchedulingIgnoredDuringExecution": []object{{
				"weight":     1,
				"preference": object{"matchExpressions": []object{{"key": "nvidia.com/gpu.count", "operator": "In", "values": []string{"8"}}}},
			}}}},
			Tolerations: []object{{"key": "team", "operator": "Equal", "value": "research", "effect": "NoSchedule"}},
		},
	})
	jobSet := patch.TrainingRuntimeSpec.Template
	jobSet.Metadata = object{"labels": object{"example.com/project": "bert"}}
	jobSet.Spec.ReplicatedJobs[0].Template.Metadata = object{"annotations": object{"example.com/owner": "ada"}}
	for _, option := range []Option{
		Name("finetune-bert"), Labels{"kueue.x-k8s.io/queue-name": "gpus", "team": "research"},
		Annotations{"example.com/notebook": "experiments/bert.ipynb"},
		TrainerCommand{"torchrun"}, TrainerArgs{"finetune.py", "--lr=0.00002"}, patch,
	} {
		expect.NoError(t, option.Apply(&job, CustomTrainerContainer))
	}
	expect.Same(t, "Unexpected TrainJob", want, withoutDefaults(t, &job))
}

// withoutDefaults leaves out what an empty TrainJob has.
func withoutDefaults(t *testing.T, job *trainjob.TrainJob) object {
	t.Helper()
	value := expect.FromJSON[object](t, expect.JSON(t, job))
	delete(value, "status")
	for key, part := range value {
		if part, ok := part.(object); ok && len(part) == 0 {
			delete(value, key)
		}
	}
	return value
}

func TestRefusals(t *testing.T) {
	const containers = "trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0]"
	container := func(c ContainerPatch) []Option {
		return []Option{inPod(&PodTemplatePatch{Spec: &PodSpecPatch{Containers: []ContainerPatch{c}}})}
	}
	cases := map[string]struct {
		options []Option
		trainer Trainer
		// fields are those of a field.ErrorList, message another error.
		fields  []string
		message string
	}{
		"a command for a function": {
			options: []Option{TrainerCommand{"x"}}, trainer: CustomTrainer,
			message: "TrainerCommand does not go with CustomTrainer, which has a command and arguments of its own: use CustomTrainerContainer, or remove the option",
		},
		"arguments for a built-in trainer": {
			options: []Option{TrainerArgs{"x"}}, trainer: BuiltinTrainer,
			message: "TrainerArgs does not go with BuiltinTrainer, which has a command and arguments of its own: use CustomTrainerContainer, or remove the option",
		},
		"a command of nothing": {
			options: []Option{TrainerCommand{}}, trainer: CustomTrainerContainer,
			message: "TrainerCommand is an empty list, which does not get into a TrainJob, so the runtime's would run: leave the option out if that is meant, or say what to run",
		},
		"arguments of nothing": {
			options: []Option{TrainerArgs(nil)},
			message: "TrainerArgs is an empty list, which does not get into a TrainJob, so the runtime's would run: leave the option out if that is meant, or say what to run",
		},
		"two patches": {
			options: []Option{RuntimePatch{}, RuntimePatch{}},
			message: `there is an entry of manager "trainer.kubeflow.org/kubeflow-sdk" in spec.runtimePatches: put both patches into one RuntimePatch`,
		},
		"a container without a name": {options: container(ContainerPatch{}), fields: []string{containers + ".name"}},
		"a container of blanks":      {options: container(ContainerPatch{Name: " \t"}), fields: []string{containers + ".name"}},
		"a variable without a name":  {options: container(ContainerPatch{Name: "c", Env: []object{{"value": "x"}}}), fields: []string{containers + ".env[0].name"}},
		"a variable with no name":    {options: container(ContainerPatch{Name: "c", Env: []object{{"name": "", "value": "x"}}}), fields: []string{containers + ".env[0].name"}},
		"a variable without a value": {options: container(ContainerPatch{Name: "c", Env: []object{{"name": "A"}}}), fields: []string{containers + ".env[0]"}},
		"a value from text":          {options: container(ContainerPatch{Name: "c", Env: []object{{"name": "A", "valueFrom": "x"}}}), fields: []string{containers + ".env[0].valueFrom"}},
		"a value from anything":      {options: container(ContainerPatch{Name: "c", Env: []object{{"name": "A", "valueFrom": object{"file": 1}}}}), fields: []string{containers + ".env[0].valueFrom"}},
		"a mount without a name":     {options: container(ContainerPatch{Name: "c", VolumeMounts: []object{{"mountPath": "/x"}}}), fields: []string{containers + ".volumeMounts[0].name"}},
		"a mount without a path":     {options: container(ContainerPatch{Name: "c", VolumeMounts: []object{{"name": "v"}}}), fields: []string{containers + ".volumeMounts[0].mountPath"}},
		"a mount at a number":        {options: container(ContainerPatch{Name: "c", VolumeMounts: []object{{"name": "v", "mountPath": 7}}}), fields: []string{containers + ".volumeMounts[0].mountPath"}},
		"a mount at a relative path": {options: container(ContainerPatch{Name: "c", VolumeMounts: []object{{"name": "v", "mountPath": "x"}}}), fields: []string{containers + ".volumeMounts[0].mountPath"}},
		"everything at once, in order": {
			options: container(ContainerPatch{Env: []object{{}}, VolumeMounts: []object{{}}}),
			fields:  []string{containers + ".name", containers + ".env[0].name", containers + ".env[0]", containers + ".volumeMounts[0].name", containers + ".volumeMounts[0].mountPath"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := &trainjob.TrainJob{}
			var err error
			for _, option := range tc.options {
				err = option.Apply(job, tc.trainer)
			}
			expect.ErrorWith(t, err)
			if tc.message != "" {
				expect.Same(t, "Unexpected error", tc.message, err.Error())
				return
			}
			var fields []string
			aggregate, _ := errors.AsType[utilerrors.Aggregate](err)
			for _, one := range aggregate.Errors() {
				invalid, _ := errors.AsType[*field.Error](one)
				fields = append(fields, invalid.Field)
			}
			expect.Same(t, "Unexpected errors", tc.fields, fields)
			expect.That(t, len(job.Spec.RuntimePatches) == 0, "A refused patch was added")
		})
	}
}
