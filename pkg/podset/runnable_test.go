// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const nodeRuntime = `
mlPolicy: {numNodes: 1, torch: {}}
template:
  spec:
    replicatedJobs:
    - name: a
      template:
        spec: {template: {spec: {containers: [{name: prepare, image: i}]}}}
    - name: node
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
        spec:
          template:
            metadata: {annotations: {a: b}}
            spec:
              initContainers: [{name: fetch, image: i}]
              containers:
              - {name: node, image: i, resources: {limits: {cpu: 4}}}
              - {name: side, image: i}
`

func TestRunnable(t *testing.T) {
	const (
		perNode = "spec.trainer.resourcesPerNode."
		gpus    = `trainer: {resourcesPerNode: {limits: {nvidia.com/gpu: "8"}}}`
		entry   = `runtimePatches: [{manager: a.io/me, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: %}}}]}}}}]`
	)
	with := func(from, to string) string { return strings.Replace(nodeRuntime, from, to, 1) }
	flux := with("torch: {}", "flux: {numProcPerNode: 1}")
	dataset := with("    - name: a\n      template:\n        spec: {template: {spec: {containers: [{name: prepare, image: i}]}}}",
		"    - name: dataset-initializer\n      template:\n        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: dataset-initializer}}\n"+
			"        spec: {template: {spec: {containers: [{name: dataset-initializer, image: i}]}}}")
	cases := map[string]struct {
		name, spec, runtime string
		served              trainjob.TrainerVersion
		// want is the field, and a word of the message.
		want [][2]string
	}{
		"GPUs":                          {spec: gpus},
		"GPUs with Trainer 2.1":         {spec: gpus, served: trainjob.Trainer21},
		"the longest name":              {name: strings.Repeat("a", 48), spec: `trainer: {numNodes: 10}`},
		"a longer name":                 {name: strings.Repeat("a", 49), spec: `trainer: {numNodes: 10}`, want: [][2]string{{"metadata.name", "at most 48 characters"}}},
		"a name too long for 11 nodes":  {name: strings.Repeat("a", 48), spec: `trainer: {numNodes: 11}`, want: [][2]string{{"metadata.name", "at most 47 characters"}}},
		"a replicated job without room": {runtime: with("name: a", "name: "+strings.Repeat("p", 60)), want: [][2]string{{"spec.runtimeRef", "leaves nothing of 63"}}},
		"a replicated job in capitals":  {runtime: with("name: a", "name: Prepare"), want: [][2]string{{"spec.runtimeRef", "lower case"}}},
		"a volume claim with a long name": {name: strings.Repeat("a", 40),
			runtime: nodeRuntime + "    volumeClaimPolicies: [{templates: [{metadata: {name: " + strings.Repeat("c", 30) + "}, spec: {}}]}]\n",
			want:    [][2]string{{"metadata.name", "at most 32 characters"}}},

		"no nodes":          {spec: `trainer: {numNodes: 0}`, want: [][2]string{{"spec.trainer.numNodes", "at least 1"}}},
		"less than nothing": {spec: `trainer: {numNodes: -1}`, want: [][2]string{{"spec.trainer.numNodes", "at least 1"}}},
		"a runtime with fewer replicas than none": {runtime: with("name: a", "name: a\n      replicas: -1"),
			want: [][2]string{{"spec.runtimeRef", "replicated job a has -1"}}},
		"a runtime with fewer nodes than none, where Trainer takes one": {runtime: with("numNodes: 1", "numNodes: -1")},

		"a part of a GPU": {spec: `trainer: {resourcesPerNode: {limits: {nvidia.com/gpu: 500m}}}`, want: [][2]string{{perNode + "limits[nvidia.com/gpu]", "whole number"}}},
		"a request beside the runtime's limit": {spec: `trainer: {resourcesPerNode: {requests: {cpu: 8}}}`,
			want: [][2]string{{perNode + "requests[cpu]", "which is 4"}}},
		"a limit below the runtime's request": {spec: `trainer: {resourcesPerNode: {limits: {cpu: 1}}}`, runtime: with("limits: {cpu: 4}", "requests: {cpu: 4}"),
			want: [][2]string{{perNode + "requests[cpu]", "which is 1"}}},
		"the runtime's own fault": {spec: `trainer: {resourcesPerNode: {limits: {cpu: 1}}}`, runtime: with("limits: {cpu: 4}", "requests: {nvidia.com/gpu: 1}"),
			want: [][2]string{{"spec.runtimeRef", "container node, resources.requests[nvidia.com/gpu] is 1"}}},
		"an init container of the runtime": {runtime: with("name: fetch,", "name: fetch, resources: {limits: {gpu: 1}},"),
			want: [][2]string{{"spec.runtimeRef", "container fetch, resources.limits[gpu]"}}},
		"another container, for which the TrainJob does not ask": {spec: gpus,
			runtime: with("name: side,", "name: side, resources: {limits: {nvidia.com/gpu: -1}},"),
			want:    [][2]string{{"spec.runtimeRef", "container side, resources.limits[nvidia.com/gpu]"}}},

		"our gate in a patch":                         {spec: strings.Replace(entry, "%", `{spec: {schedulingGates: [{name: kueue-trainer.dev/admission}]}}`, 1), want: [][2]string{{"spec.runtimePatches[a.io/me].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec.schedulingGates[0].name", "leave it out"}}},
		"our label in a patch":                        {spec: strings.Replace(entry, "%", `{metadata: {labels: {kueue-trainer.dev/gated: "true"}}}`, 1), want: [][2]string{{"spec.runtimePatches[a.io/me].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.metadata.labels[kueue-trainer.dev/gated]", "leave it out"}}},
		"a gate of the user's":                        {spec: strings.Replace(entry, "%", `{spec: {schedulingGates: [{name: example.com/later}]}}`, 1)},
		"our gate in an override":                     {served: trainjob.Trainer21, spec: `podTemplateOverrides: [{targetJobs: [{name: node}], spec: {schedulingGates: [{name: kueue-trainer.dev/admission}]}}]`, want: [][2]string{{"spec.podTemplateOverrides[0].spec.schedulingGates[0].name", "leave it out"}}},
		"a runtime that names the node":               {runtime: with("              initContainers:", "              nodeName: a100-0\n              initContainers:"), want: [][2]string{{"spec.runtimeRef", "replicated job node has nodeName a100-0"}}},
		"our gate in the runtime":                     {runtime: with("              initContainers:", "              schedulingGates: [{name: kueue-trainer.dev/admission}]\n              initContainers:"), want: [][2]string{{"spec.runtimeRef", "scheduling gate kueue-trainer.dev/admission"}}},
		"Kueue's label in the runtime":                {runtime: with("annotations: {a: b}", `labels: {kueue.x-k8s.io/podset: node}`), want: [][2]string{{"spec.runtimeRef", "label kueue.x-k8s.io/podset"}}},
		"Kueue's annotation in the runtime":           {runtime: with("annotations: {a: b}", `annotations: {kueue.x-k8s.io/workload: mine}`), want: [][2]string{{"spec.runtimeRef", "annotation kueue.x-k8s.io/workload"}}},
		"a label of JobSet's in a patch":              {spec: strings.Replace(entry, "%", `{metadata: {labels: {jobset.sigs.k8s.io/jobset-name: other}}}`, 1), want: [][2]string{{"spec.runtimePatches[a.io/me].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.metadata.labels[jobset.sigs.k8s.io/jobset-name]", "leave it out"}}},
		"an annotation of Kueue's in a patch":         {spec: strings.Replace(entry, "%", `{metadata: {annotations: {kueue.x-k8s.io/workload: mine}}}`, 1), want: [][2]string{{"spec.runtimePatches[a.io/me].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.metadata.annotations[kueue.x-k8s.io/workload]", "leave it out"}}},
		"Kueue's label in an override":                {served: trainjob.Trainer21, spec: `podTemplateOverrides: [{targetJobs: [{name: node}]}, {targetJobs: [{name: node}], metadata: {labels: {kueue.x-k8s.io/podset: x}}}]`, want: [][2]string{{"spec.podTemplateOverrides[1].metadata.labels[kueue.x-k8s.io/podset]", "leave it out"}}},
		"an annotation of Kubernetes' in the runtime": {runtime: with("annotations: {a: b}", `annotations: {batch.kubernetes.io/job-completion-index: "7"}`), want: [][2]string{{"spec.runtimeRef", "annotation batch.kubernetes.io/job-completion-index"}}},
		"a parent for which Kueue gates the pods":     {runtime: with("annotations: {a: b}", `annotations: {kueue.x-k8s.io/pod-suspending-parent: mine}`), want: [][2]string{{"spec.runtimeRef", "annotation kueue.x-k8s.io/pod-suspending-parent"}}},
		"a plugin that panics without a trainer":      {runtime: flux, want: [][2]string{{"spec.runtimeRef", "plugin flux"}}},
		"a plugin that panics without nodes":          {runtime: flux, spec: `trainer: {}`, want: [][2]string{{"spec.runtimeRef", "plugin flux"}}},
		"its plugin with nodes":                       {runtime: flux, spec: `trainer: {numNodes: 2}`},
		"a cache as the dataset": {runtime: dataset, spec: `initializer: {dataset: {storageUri: "cache://a/b"}}`,
			want: [][2]string{{"spec.initializer.dataset.storageUri", "no quota is charged"}}},
		"a cache by a variable of the initializer's": {runtime: dataset,
			spec: `initializer: {dataset: {storageUri: "hf://a/b", env: [{name: A}, {name: STORAGE_URI, value: "CACHE://a/b"}]}}`,
			want: [][2]string{{"spec.initializer.dataset.env[1].value", "no quota is charged"}}},
		"a cache of the runtime's": {runtime: strings.Replace(dataset, "{name: dataset-initializer, image: i}", `{name: dataset-initializer, image: i, env: [{name: STORAGE_URI, value: "cache://a/b"}]}`, 1),
			want: [][2]string{{"spec.runtimeRef", "container dataset-initializer has variable STORAGE_URI"}}},
		"a dataset that is downloaded": {runtime: dataset, spec: `initializer: {dataset: {storageUri: "hf://cache/b"}}`},
		"our label in the runtime": {runtime: with("annotations: {a: b}", `labels: {kueue-trainer.dev/gated: "true"}`),
			want: [][2]string{{"spec.runtimeRef", "label kueue-trainer.dev/gated"}}},
	}
	renderer := expect.Must(trainjob.NewRenderer(t.Context(), kit.Scheme(trainjob.AddToScheme)))(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := &trainjob.TrainJob{Spec: expect.FromYAML[trainjob.Spec](t, tc.spec)}
			job.Namespace, job.Name, job.Spec.RuntimeRef.Name = "ns", cmp.Or(tc.name, "job"), "torch"
			rt := expect.FromYAML[*trainer.TrainingRuntimeSpec](t, cmp.Or(tc.runtime, nodeRuntime))
			field := patch.Of(cmp.Or(tc.served, trainjob.Trainer23))
			var got [][2]string
			for i, err := range Validate(t.Context(), renderer, job, rt, field) {
				detail := err.Detail
				if i < len(tc.want) && strings.Contains(detail, tc.want[i][1]) {
					detail = tc.want[i][1]
				}
				got = append(got, [2]string{err.Field, detail})
			}
			expect.Same(t, "Unexpected refusals", tc.want, got)
			_, err := Describe(t.Context(), renderer, job, rt, field)
			refused := len(tc.want) > 0
			expect.That(t, errors.Is(err, ErrCannotRun) == refused && (err != nil) == refused, "Describe returned %v", err)
		})
	}
}

// replicated returns a JobSet of one replicated job.
func replicated(name string, replicas int32, completions *int32, mode *batchv1.CompletionMode) *jobsetapi.JobSet {
	rj := jobsetapi.ReplicatedJob{Name: name, Replicas: replicas}
	rj.Template.Spec.Completions, rj.Template.Spec.CompletionMode = completions, mode
	return &jobsetapi.JobSet{Spec: jobsetapi.JobSetSpec{ReplicatedJobs: []jobsetapi.ReplicatedJob{rj}}}
}

// JobSet counts from 0: one digit more for ten is one character too many.
func TestLongestNameThatJobSetTakes(t *testing.T) {
	for name, tc := range map[string]struct {
		jobSet  *jobsetapi.JobSet
		longest int
	}{
		"of ten Jobs":                     {replicated("node", 10, nil, nil), 63 - len("-node-9")},
		"of eleven Jobs":                  {replicated("node", 11, nil, nil), 63 - len("-node-10")},
		"of ten indexed pods":             {replicated("node", 1, new(int32(10)), nil), 63 - len("-node-0-9-abcde")},
		"of pods without an index":        {replicated("node", 1, new(int32(10)), new(batchv1.NonIndexedCompletion)), 63 - len("-node-0")},
		"that leaves room for one letter": {replicated(strings.Repeat("n", 59), 1, nil, nil), 1},
	} {
		t.Run(name, func(t *testing.T) {
			runtime := &blame{}
			expect.Same(t, "Refusals", nil, expect.FieldsAndTypes(validateName(strings.Repeat("a", tc.longest), tc.jobSet, runtime)))
			expect.Same(t, "Refusals", []string{"metadata.name: FieldValueInvalid"}, expect.FieldsAndTypes(validateName(strings.Repeat("a", tc.longest+1), tc.jobSet, runtime)))
		})
	}
}

func TestJobSetIsSparedWhatItCannotHold(t *testing.T) {
	for replicas, want := range map[int32][]string{maxReplicas - 1: nil, maxReplicas: {"spec.runtimeRef: FieldValueInvalid"}} {
		js := replicated("node", replicas, nil, nil)
		js.Spec.ReplicatedJobs = append(js.Spec.ReplicatedJobs, replicated("other", 1, nil, nil).Spec.ReplicatedJobs...)
		expect.Same(t, "Refusals", want, expect.FieldsAndTypes(validateReplicas(js, &blame{job: &trainjob.TrainJob{}})))
	}
}

// Kueue has no Workload without PodSets.
func TestNothingComesOfARuntimeWithoutReplicatedJobs(t *testing.T) {
	for jobs, want := range map[int][]string{0: {"spec.runtimeRef: FieldValueInvalid"}, 1: nil} {
		js := replicated("node", 1, nil, nil)
		js.Spec.ReplicatedJobs = js.Spec.ReplicatedJobs[:jobs]
		expect.Same(t, "Refusals", want, expect.FieldsAndTypes(Unmade(&trainjob.TrainJob{}, nil, js)))
	}
}

func TestNobodyElseMakesThePods(t *testing.T) {
	other := []string{"spec.runtimeRef: FieldValueInvalid"}
	for name, tc := range map[string]struct {
		jobSet, job *string
		want        []string
	}{
		"nobody is named":        {},
		"their own controllers":  {jobSet: new(jobsetapi.JobSetControllerName), job: new(batchv1.JobControllerName)},
		"another one of JobSets": {jobSet: new("example.com/other"), want: other},
		"another one of Jobs":    {job: new("example.com/other"), want: other},
	} {
		t.Run(name, func(t *testing.T) {
			js := replicated("node", 1, nil, nil)
			js.Spec.ManagedBy, js.Spec.ReplicatedJobs[0].Template.Spec.ManagedBy = tc.jobSet, tc.job
			expect.Same(t, "Refusals", tc.want, expect.FieldsAndTypes(validateManaged(js, &blame{job: &trainjob.TrainJob{}})))
		})
	}
}

// A runtime may have a part that runs nothing.
func TestNoPodsAreNoNegativeNumber(t *testing.T) {
	rj := &replicated("node", 0, new(int32(0)), nil).Spec.ReplicatedJobs[0]
	expect.Same(t, "Refusals", nil, expect.FieldsAndTypes(validateJob(rj, &blame{})))
}
