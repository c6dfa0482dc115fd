// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"cmp"
	"errors"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
		inPatch = "spec.runtimePatches[a.io/me].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template."
	)
	patched := func(template string) string {
		return `runtimePatches: [{manager: a.io/me, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: ` + template + `}}}]}}}}]`
	}
	with := func(from, to string) string { return strings.Replace(nodeRuntime, from, to, 1) }
	forATime := with("              initContainers:", "              tolerations: [{key: gpu, operator: Exists, effect: NoExecute, tolerationSeconds: 10}]\n              initContainers:")
	replaced := func(policy string) string {
		return strings.Replace(forATime, "          template:\n            metadata: {annotations", "          "+policy+"\n          template:\n            metadata: {annotations", 1)
	}
	flux := with("torch: {}", "flux: {numProcPerNode: 1}")
	dataset := with("    - name: a\n      template:\n        spec: {template: {spec: {containers: [{name: prepare, image: i}]}}}",
		"    - name: dataset-initializer\n      template:\n        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: dataset-initializer}}\n"+
			"        spec: {template: {spec: {containers: [{name: dataset-initializer, image: i}]}}}")
	renderer := expect.Must(trainjob.NewRenderer(t.Context(), kit.Scheme(trainjob.AddToScheme)))(t)
	type row struct {
		name, spec, runtime string
		served              trainjob.TrainerVersion
		// field is refused with a message that says this, and spec.runtimeRef where it is left out.
		field, says string
	}
	expect.Rows(t, map[string]row{
		"GPUs":                          {spec: gpus},
		"GPUs with Trainer 2.1":         {spec: gpus, served: trainjob.Trainer21},
		"the longest name":              {name: strings.Repeat("a", 48), spec: `trainer: {numNodes: 10}`},
		"a longer name":                 {name: strings.Repeat("a", 49), spec: `trainer: {numNodes: 10}`, field: "metadata.name", says: "at most 48 characters"},
		"a name too long for 11 nodes":  {name: strings.Repeat("a", 48), spec: `trainer: {numNodes: 11}`, field: "metadata.name", says: "at most 47 characters"},
		"a replicated job without room": {runtime: with("name: a", "name: "+strings.Repeat("p", 60)), says: "leaves nothing of 63"},
		"a replicated job in capitals":  {runtime: with("name: a", "name: Prepare"), says: "lower case"},
		"a volume claim with a long name": {name: strings.Repeat("a", 40),
			runtime: nodeRuntime + "    volumeClaimPolicies: [{templates: [{metadata: {name: " + strings.Repeat("c", 30) + "}, spec: {}}]}]\n",
			field:   "metadata.name", says: "at most 32 characters"},

		"no nodes":          {spec: `trainer: {numNodes: 0}`, field: "spec.trainer.numNodes", says: "at least 1"},
		"less than nothing": {spec: `trainer: {numNodes: -1}`, field: "spec.trainer.numNodes", says: "at least 1"},
		"a runtime with fewer replicas than none":                       {runtime: with("name: a", "name: a\n      replicas: -1"), says: "replicated job a has -1"},
		"a runtime with fewer nodes than none, where Trainer takes one": {runtime: with("numNodes: 1", "numNodes: -1")},

		"more nodes than anybody has": {spec: `trainer: {numNodes: 100001}`, field: "spec.trainer.numNodes", says: "a TrainJob may have 100000"},
		"more than etcd takes":        {runtime: with("name: side,", "name: side, command: ["+strings.Repeat("x", maxBytes)+"],"), says: "bytes as JSON"},

		"a JobSet of another controller": {runtime: with("  spec:\n    replicatedJobs:", "  spec:\n    managedBy: example.com/other\n    replicatedJobs:"), says: "managed by example.com/other"},
		"pods of a selector":             {runtime: with("        spec:\n          template:", "        spec:\n          manualSelector: true\n          template:"), says: "selects its pods"},

		"a part of a GPU":                      {spec: `trainer: {resourcesPerNode: {limits: {nvidia.com/gpu: 500m}}}`, field: perNode + "limits[nvidia.com/gpu]", says: "whole number"},
		"a request beside the runtime's limit": {spec: `trainer: {resourcesPerNode: {requests: {cpu: 8}}}`, field: perNode + "requests[cpu]", says: "which is 4"},
		"a limit below the runtime's request": {spec: `trainer: {resourcesPerNode: {limits: {cpu: 1}}}`, runtime: with("limits: {cpu: 4}", "requests: {cpu: 4}"),
			field: perNode + "requests[cpu]", says: "which is 1"},
		"the runtime's own fault": {spec: `trainer: {resourcesPerNode: {limits: {cpu: 1}}}`, runtime: with("limits: {cpu: 4}", "requests: {nvidia.com/gpu: 1}"),
			says: "container node, resources.requests[nvidia.com/gpu] is 1"},
		"an init container of the runtime": {runtime: with("name: fetch,", "name: fetch, resources: {limits: {gpu: 1}},"), says: "container fetch, resources.limits[gpu]"},
		"another container, for which the TrainJob does not ask": {spec: gpus,
			runtime: with("name: side,", "name: side, resources: {limits: {nvidia.com/gpu: -1}},"),
			says:    "container side, resources.limits[nvidia.com/gpu]"},

		"a replicated job that is not there": {spec: strings.Replace(patched(`{}`), "name: node", "name: nodes", 1),
			field: "spec.runtimePatches[a.io/me].trainingRuntimeSpec.template.spec.replicatedJobs[0].name", says: "no replicated job of this name"},
		"our gate in a patch":                                   {spec: patched(`{spec: {schedulingGates: [{name: kueue-trainer.dev/admission}]}}`), field: inPatch + "spec.schedulingGates[0].name", says: "leave it out"},
		"our label in a patch":                                  {spec: patched(`{metadata: {labels: {kueue-trainer.dev/gated: "true"}}}`), field: inPatch + "metadata.labels[kueue-trainer.dev/gated]", says: "leave it out"},
		"a gate of the user's":                                  {spec: patched(`{spec: {schedulingGates: [{name: example.com/later}]}}`)},
		"our gate in an override":                               {served: trainjob.Trainer21, spec: `podTemplateOverrides: [{targetJobs: [{name: node}], spec: {schedulingGates: [{name: kueue-trainer.dev/admission}]}}]`, field: "spec.podTemplateOverrides[0].spec.schedulingGates[0].name", says: "leave it out"},
		"a runtime that names the node":                         {runtime: with("              initContainers:", "              nodeName: a100-0\n              initContainers:"), says: "replicated job node has nodeName a100-0"},
		"a taint that is tolerated for a time":                  {runtime: forATime, says: "replicated job node has tolerationSeconds for taint gpu"},
		"any taint, in a patch":                                 {spec: patched(`{spec: {tolerations: [{operator: Exists, tolerationSeconds: 10}]}}`), field: inPatch + "spec.tolerations", says: "podReplacementPolicy: Failed"},
		"any taint, in an override":                             {served: trainjob.Trainer21, spec: `podTemplateOverrides: [{targetJobs: [{name: node}], spec: {tolerations: [{operator: Exists, tolerationSeconds: 10}]}}]`, field: "spec.podTemplateOverrides[0].spec.tolerations", says: "tolerationSeconds for taint *"},
		"a lost node, for a time":                               {spec: patched(`{spec: {tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 10}, {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 0}, {key: gpu, operator: Exists}]}}`)},
		"for a time, where Jobs await the end of pods":          {runtime: replaced("podReplacementPolicy: Failed")},
		"where they do, because there is a policy for failures": {runtime: replaced("podFailurePolicy: {rules: []}")},
		"our gate in the runtime":                               {runtime: with("              initContainers:", "              schedulingGates: [{name: kueue-trainer.dev/admission}]\n              initContainers:"), says: "scheduling gate kueue-trainer.dev/admission"},
		"Kueue's gate in the runtime":                           {runtime: with("              initContainers:", "              schedulingGates: [{name: kueue.x-k8s.io/topology}]\n              initContainers:"), says: "scheduling gate kueue.x-k8s.io/topology"},
		"Kueue's label of a queue in the runtime":               {runtime: with("annotations: {a: b}", `labels: {kueue.x-k8s.io/local-queue-name: q}`), says: "label kueue.x-k8s.io/local-queue-name"},
		"that of a ClusterQueue":                                {runtime: with("annotations: {a: b}", `labels: {kueue.x-k8s.io/cluster-queue-name: q}`), says: "label kueue.x-k8s.io/cluster-queue-name"},
		"Kueue's label in the runtime":                          {runtime: with("annotations: {a: b}", `labels: {kueue.x-k8s.io/podset: node}`), says: "label kueue.x-k8s.io/podset"},
		"Kueue's annotation in the runtime":                     {runtime: with("annotations: {a: b}", `annotations: {kueue.x-k8s.io/workload: mine}`), says: "annotation kueue.x-k8s.io/workload"},
		"a label of JobSet's in a patch":                        {spec: patched(`{metadata: {labels: {jobset.sigs.k8s.io/jobset-name: other}}}`), field: inPatch + "metadata.labels[jobset.sigs.k8s.io/jobset-name]", says: "leave it out"},
		"an annotation of Kueue's in a patch":                   {spec: patched(`{metadata: {annotations: {kueue.x-k8s.io/workload: mine}}}`), field: inPatch + "metadata.annotations[kueue.x-k8s.io/workload]", says: "leave it out"},
		"Kueue's label in an override":                          {served: trainjob.Trainer21, spec: `podTemplateOverrides: [{targetJobs: [{name: node}]}, {targetJobs: [{name: node}], metadata: {labels: {kueue.x-k8s.io/podset: x}}}]`, field: "spec.podTemplateOverrides[1].metadata.labels[kueue.x-k8s.io/podset]", says: "leave it out"},
		"a label and an annotation of JobSet's":                 {runtime: with("annotations: {a: b}", `annotations: {jobset.sigs.k8s.io/a: b}, labels: {jobset.sigs.k8s.io/z: b}`), says: "label jobset.sigs.k8s.io/z"},
		"an annotation of Kubernetes' in the runtime":           {runtime: with("annotations: {a: b}", `annotations: {batch.kubernetes.io/job-completion-index: "7"}`), says: "annotation batch.kubernetes.io/job-completion-index"},
		"a parent for which Kueue gates the pods":               {runtime: with("annotations: {a: b}", `annotations: {kueue.x-k8s.io/pod-suspending-parent: mine}`), says: "annotation kueue.x-k8s.io/pod-suspending-parent"},
		"a plugin that panics without a trainer":                {runtime: flux, says: "plugin flux"},
		"a plugin that panics without nodes":                    {runtime: flux, spec: `trainer: {}`, says: "plugin flux"},
		"its plugin with nodes":                                 {runtime: flux, spec: `trainer: {numNodes: 2}`},
		"a cache as the dataset":                                {runtime: dataset, spec: `initializer: {dataset: {storageUri: "cache://a/b"}}`, field: "spec.initializer.dataset.storageUri", says: "no quota is charged"},
		"a cache by a variable of the initializer's": {runtime: dataset,
			spec:  `initializer: {dataset: {storageUri: "hf://a/b", env: [{name: A}, {name: STORAGE_URI, value: "CACHE://a/b"}]}}`,
			field: "spec.initializer.dataset.env[1].value", says: "no quota is charged"},
		"a cache of the runtime's": {runtime: strings.Replace(dataset, "{name: dataset-initializer, image: i}", `{name: dataset-initializer, image: i, env: [{name: STORAGE_URI, value: "cache://a/b"}]}`, 1),
			says: "container dataset-initializer has variable STORAGE_URI"},
		"a cache that an init container makes": {runtime: with("{name: fetch, image: i}", `{name: fetch, image: i, env: [{name: STORAGE_URI, value: " cache://a/b"}]}`),
			says: "container fetch has variable STORAGE_URI"},
		"a dataset that is downloaded": {runtime: dataset, spec: `initializer: {dataset: {storageUri: "hf://cache/b"}}`},
		"our label in the runtime":     {runtime: with("annotations: {a: b}", `labels: {kueue-trainer.dev/gated: "true"}`), says: "label kueue-trainer.dev/gated"},
	}, func(t *testing.T, tc row) {
		job := &trainjob.TrainJob{Spec: expect.FromYAML[trainjob.Spec](t, tc.spec)}
		job.Namespace, job.Name, job.Spec.RuntimeRef.Name = "ns", cmp.Or(tc.name, "job"), "torch"
		rt := expect.FromYAML[*trainer.TrainingRuntimeSpec](t, cmp.Or(tc.runtime, nodeRuntime))
		ours := patch.Of(cmp.Or(tc.served, trainjob.Trainer23))
		errs := Validate(t.Context(), renderer, job, rt, ours)
		expect.Says(t, errs.ToAggregate(), tc.says)
		_, err := Describe(t.Context(), renderer, job, rt, ours)
		if tc.says == "" {
			expect.NoError(t, err)
			return
		}
		expect.Same(t, "Unexpected fields", []string{cmp.Or(tc.field, "spec.runtimeRef")}, expect.Each(errs, func(err *field.Error) string { return err.Field }))
		expect.That(t, errors.Is(err, ErrCannotRun) && errors.Is(err, trainjob.ErrPluginPanics) == strings.HasPrefix(tc.says, "plugin"), "Describe returned %v", err)
	})
}

func replicated(name string, replicas int32, completions *int32, mode *batchv1.CompletionMode) *jobsetapi.JobSet {
	rj := jobsetapi.ReplicatedJob{Name: name, Replicas: replicas}
	rj.Template.Spec.Completions, rj.Template.Spec.CompletionMode = completions, mode
	return &jobsetapi.JobSet{Spec: jobsetapi.JobSetSpec{ReplicatedJobs: []jobsetapi.ReplicatedJob{rj}}}
}

// JobSet counts from 0: one digit more for ten is one character too many.
func TestLongestNameThatJobSetTakes(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[*jobsetapi.JobSet, int]{
		"of ten Jobs":                     {In: replicated("node", 10, nil, nil), Want: 63 - len("-node-9")},
		"of eleven Jobs":                  {In: replicated("node", 11, nil, nil), Want: 63 - len("-node-10")},
		"of ten indexed pods":             {In: replicated("node", 1, new(int32(10)), nil), Want: 63 - len("-node-0-9-abcde")},
		"of pods without an index":        {In: replicated("node", 1, new(int32(10)), new(batchv1.NonIndexedCompletion)), Want: 63 - len("-node-0")},
		"that leaves room for one letter": {In: replicated(strings.Repeat("n", 59), 1, nil, nil), Want: 1},
	}, func(t *testing.T, tc expect.Row[*jobsetapi.JobSet, int]) {
		runtime := &blame{}
		expect.Same(t, "Refusals", nil, expect.FieldsAndTypes(validateName(strings.Repeat("a", tc.Want), tc.In, runtime)))
		expect.Same(t, "Refusals", []string{"metadata.name: FieldValueInvalid"}, expect.FieldsAndTypes(validateName(strings.Repeat("a", tc.Want+1), tc.In, runtime)))
	})
}

// Kueue has no Workload without PodSets, JobSet is spared what it cannot hold, and a runtime may have a part that runs nothing.
func TestUnmade(t *testing.T) {
	refused := []string{"spec.runtimeRef: FieldValueInvalid"}
	unmade := func(js *jobsetapi.JobSet) []string {
		return expect.FieldsAndTypes(Unmade(&trainjob.TrainJob{}, nil, js))
	}
	expect.Answers(t, unmade, map[string]expect.Row[*jobsetapi.JobSet, []string]{
		"no replicated job":           {In: jobSet(), Want: refused},
		"one":                         {In: replicated("node", 1, nil, nil)},
		"one that runs nothing":       {In: replicated("node", 0, new(int32(0)), nil)},
		"fewer completions than none": {In: replicated("node", 1, new(int32(-1)), nil), Want: refused},
		"as many Jobs as it can":      {In: jobSet(makeJob("node").replicas(maxReplicas-1), makeJob("other"))},
		"one more":                    {In: jobSet(makeJob("node").replicas(maxReplicas), makeJob("other")), Want: refused},
	})
}

func TestNobodyElseMakesThePods(t *testing.T) {
	other := []string{"spec.runtimeRef: FieldValueInvalid"}
	type row struct {
		jobSet, job *string
		want        []string
	}
	expect.Rows(t, map[string]row{
		"nobody is named":        {},
		"their own controllers":  {jobSet: new(jobsetapi.JobSetControllerName), job: new(batchv1.JobControllerName)},
		"another one of JobSets": {jobSet: new("example.com/other"), want: other},
		"another one of Jobs":    {job: new("example.com/other"), want: other},
	}, func(t *testing.T, tc row) {
		js := replicated("node", 1, nil, nil)
		js.Spec.ManagedBy, js.Spec.ReplicatedJobs[0].Template.Spec.ManagedBy = tc.jobSet, tc.job
		expect.Same(t, "Refusals", tc.want, expect.FieldsAndTypes(validateManaged(js, &blame{job: &trainjob.TrainJob{}})))
	})
}
