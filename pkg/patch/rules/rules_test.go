// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const testRuntime = `
template:
  spec:
    replicatedJobs:
    - name: dataset-initializer
      template: {spec: {template: {spec: {containers: [{name: dataset-initializer}]}}}}
    - name: node
      template: {spec: {template: {spec: {initContainers: [{name: fetch}], containers: [{name: node}, {name: side}]}}}}
`

// jobOf is a TrainJob with lists in YAML.
func jobOf(t testing.TB, overrides, patches string) *trainjob.Spec {
	t.Helper()
	return &trainjob.Spec{
		PodTemplateOverrides: expect.FromYAML[[]trainjob.RuntimePatch](t, overrides), RuntimePatches: expect.FromYAML[[]trainjob.RuntimePatch](t, patches),
	}
}

func runtimeSpec(t testing.TB) *trainer.TrainingRuntimeSpec {
	t.Helper()
	return expect.FromYAML[*trainer.TrainingRuntimeSpec](t, testRuntime)
}

// patching is a TrainJob of a release with one patch of the pods of node.
func patching(t testing.TB, generation trainjob.TrainerVersion, podSpec string) *trainjob.Spec {
	t.Helper()
	if generation == trainjob.Trainer21 {
		return jobOf(t, `[{targetJobs: [{name: node}], spec: `+podSpec+`}]`, "")
	}
	return jobOf(t, "", `[{manager: a.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [`+
		`{name: node, template: {spec: {template: {spec: `+podSpec+`}}}}]}}}}]`)
}

// found returns the fields of errors below the pod spec of patching, and the types.
func found(errs ...*field.Error) []string {
	return trimmed(errs, "spec.podTemplateOverrides[0].spec",
		"spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec",
		"spec.podTemplateOverrides", "spec.runtimePatches")
}

// trimmed returns the fields of errors without the first prefix that they have, and the types.
func trimmed(errs field.ErrorList, prefixes ...string) []string {
	all := expect.FieldsAndTypes(errs)
	for i, path := range all {
		if at := slices.IndexFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(path, prefix) }); at >= 0 {
			all[i] = strings.TrimPrefix(path[len(prefixes[at]):], ".")
		}
	}
	return all
}

var generations = []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22, trainjob.Trainer23}

func TestPodSpecs(t *testing.T) {
	all, newer := generations, generations[1:]
	type row struct {
		podSpec string
		// in are the releases that refuse it; the others take it.
		in            []trainjob.TrainerVersion
		want, warning []string
	}
	expect.Rows(t, map[string]row{
		"nothing": {podSpec: `{}`},
		"everything that is right": {podSpec: `{nodeSelector: {a: b}, tolerations: [{}], volumes: [{name: v}], serviceAccountName: sa,
			containers: [{name: side, env: [{name: A}], volumeMounts: [{name: v, mountPath: /x}]}], initContainers: [{name: fetch, env: [{name: A}]}]}`},
		"variables of the trainer":              {podSpec: `{containers: [{name: node, env: [{name: A}]}]}`, in: all, want: []string{"containers[0].env: FieldValueForbidden"}},
		"variables of an initializer anywhere":  {podSpec: `{containers: [{name: model-initializer, env: [{name: A}]}]}`, in: all, want: []string{"containers[0].env: FieldValueForbidden"}, warning: []string{"containers[0].name: FieldValueInvalid"}},
		"no variables of the trainer":           {podSpec: `{containers: [{name: node, env: []}]}`},
		"a container that does not exist":       {podSpec: `{containers: [{name: other}]}`, warning: []string{"containers[0].name: FieldValueInvalid"}},
		"an init container that does not exist": {podSpec: `{initContainers: [{name: other}]}`, warning: []string{"initContainers[0].name: FieldValueInvalid"}},
		"an image":                              {podSpec: `{containers: [{name: node, image: i}]}`, in: all, want: []string{"containers[0].image: FieldValueForbidden"}},
		"two containers of a name":              {podSpec: `{containers: [{name: side}, {name: side}]}`, in: all, want: []string{"containers[1].name: FieldValueDuplicate"}},
		"a container without a name":            {podSpec: `{containers: [{volumeMounts: []}]}`, in: all, want: []string{"containers[0].name: FieldValueRequired"}},
		"a volume mounted twice":                {podSpec: `{containers: [{name: side, volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /b}]}]}`, in: all, want: []string{"containers[0].volumeMounts[1].name: FieldValueDuplicate"}},
		"a secret without a name":               {podSpec: `{imagePullSecrets: [{}]}`, warning: []string{"imagePullSecrets[0].name: FieldValueRequired"}},
		"a long service account":                {podSpec: `{serviceAccountName: ` + strings.Repeat("x", 254) + `}`, in: newer, want: []string{"serviceAccountName: FieldValueTooLong"}},
		"many gates":                            {podSpec: `{schedulingGates: [` + kit.Numbered(17, "{name: g%d}") + `]}`, in: newer, want: []string{"schedulingGates: FieldValueTooMany"}},
		"a security context":                    {podSpec: `{securityContext: {}}`, in: generations[:1], want: []string{"securityContext: FieldValueForbidden"}},
		"a grace period":                        {podSpec: `{terminationGracePeriodSeconds: 5}`, in: generations[:2]},
		"a grace period below zero":             {podSpec: `{terminationGracePeriodSeconds: -5}`, in: all},
		"a number for a text":                   {podSpec: `{nodeSelector: {a: 1}}`, in: all},
	}, func(t *testing.T, tc row) {
		for _, generation := range generations {
			verdict := Create(generation, runtimeSpec(t), patching(t, generation, tc.podSpec))
			refuses := slices.Contains(tc.in, generation)
			expect.That(t, (len(verdict.Errors) > 0) == refuses, "Generation %d must refuse: %v, and it finds %v", generation, refuses, verdict.Errors)
			if refuses && tc.want != nil {
				expect.Same(t, fmt.Sprintf("Unexpected errors for Generation %d", generation), tc.want, found(verdict.Errors...))
			}
			expect.Same(t, fmt.Sprintf("Unexpected warnings for Generation %d", generation), tc.warning, found(append(verdict.Warnings, verdict.Unmade...)...))
		}
	})
}

func TestEntries(t *testing.T) {
	const inNode = "trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec"
	const command = "[0]." + inNode + ".containers[0]"
	secrets := func(list string) string {
		return `trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {imagePullSecrets: ` + list + `}}}}}]}}}`
	}
	type row struct {
		// generation is 2.1 for overrides and 2.3 for patches, where it is left out.
		generation         trainjob.TrainerVersion
		overrides, patches string
		want, warning      []string
		// says is in the first error or warning.
		says string
	}
	expect.Rows(t, map[string]row{
		"an unknown job of 2.1": {overrides: `[{targetJobs: [{name: node}, {name: worker}]}]`, want: []string{"[0].targetJobs[1].name: FieldValueInvalid"},
			says: "it has: dataset-initializer, node"},
		"an unknown job of 2.2": {generation: trainjob.Trainer22,
			patches: `[{manager: a.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: worker}]}}}}]`,
			want:    []string{"[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].name: FieldValueInvalid"}, says: "it has: dataset-initializer, node"},
		"an unknown job of 2.3": {patches: `[{manager: a.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: worker}]}}}}]`,
			warning: []string{"[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].name: FieldValueInvalid"}, says: "a JobSet that cannot run"},
		"no target jobs":      {overrides: `[{}]`, want: []string{"[0].targetJobs: FieldValueRequired"}},
		"an override of 7":    {overrides: `[7]`, want: []string{"[0]: FieldValueTypeInvalid"}},
		"an override of null": {overrides: `[null]`, want: []string{"[0]: FieldValueTypeInvalid"}},
		"a found error is told once, and none of an override that is merged nowhere": {
			overrides: `[{targetJobs: [{name: node}, {name: dataset-initializer}], spec: {containers: [{name: node, env: [{name: A}]}]}}, {targetJobs: [], spec: {containers: [{name: node, env: [{name: A}]}]}}]`,
			want:      []string{"[0].spec.containers[0].env: FieldValueForbidden"}, warning: []string{"[0].spec.containers[0].name: FieldValueInvalid"},
			says: "spec.trainer.env"},
		"the command of the trainer": {patches: `[{manager: a.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {containers: [{name: node, command: [x], resources: {}}]}}}}}]}}}}]`,
			want: []string{command + ".command: FieldValueForbidden", command + ".resources: FieldValueForbidden"}, says: "use spec.trainer.command"},
		"metadata": {patches: `[{manager: a.io/x, trainingRuntimeSpec: {template: {metadata: {labels: {a: b}, name: x, uid: u}, spec: {replicatedJobs: [{name: node, template: {metadata: {finalizers: []}}}]}}}}]`,
			want: []string{"[0].trainingRuntimeSpec.template.metadata.uid: FieldValueForbidden"},
			warning: []string{
				"[0].trainingRuntimeSpec.template.metadata.name: FieldValueForbidden",
				"[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.metadata.finalizers: FieldValueForbidden",
			}},
		"managers": {patches: `[{manager: a.io/x}, {manager: a.io/x}, {}, {manager: x}, {manager: a.io/` + strings.Repeat("x", 249) + `}]`,
			want: []string{
				"[1].manager: FieldValueDuplicate", "[2].manager: FieldValueRequired",
				"[4].manager: FieldValueTooLong", "[3].manager: FieldValueInvalid",
			}},
		"a secret without a name, and another entry's": {patches: `[{manager: a.io/x, ` + secrets("[{}, {name: a}]") + `}, {manager: a.io/y, ` + secrets("[{name: b}]") + `}]`,
			want: []string{"[0]." + inNode + ".imagePullSecrets[0].name: FieldValueRequired"}},
		"a secret without a name, and an entry for another job": {overrides: `[{targetJobs: [{name: node}, {name: node}], spec: {imagePullSecrets: [{}]}}, {targetJobs: [{name: dataset-initializer}], spec: {imagePullSecrets: [{name: b}]}}]`,
			warning: []string{"[0].spec.imagePullSecrets[0].name: FieldValueRequired"}, says: "nobody else"},
		"a time that is none":   {patches: `[{manager: a.io/x, time: now}]`, want: []string{"[0].time: FieldValueTypeInvalid"}},
		"a time that is a list": {patches: `[{manager: a.io/x, time: []}]`, want: []string{"[0].time: FieldValueTypeInvalid"}},
		"seventeen entries": {patches: `[` + strings.Repeat(`{manager: a.io/x}, `, 16) + `{manager: b.io/x}]`,
			want: []string{": FieldValueTooMany", "[1].manager: FieldValueDuplicate"}},
	}, func(t *testing.T, tc row) {
		job, served := jobOf(t, tc.overrides, tc.patches), trainjob.Trainer23
		if tc.overrides != "" {
			served = trainjob.Trainer21
		}
		verdict := Create(cmp.Or(tc.generation, served), runtimeSpec(t), job)
		warnings := slices.Concat(verdict.Warnings, verdict.Unmade)
		expect.Same(t, "Unexpected errors", tc.want, trimmed(verdict.Errors, "spec.podTemplateOverrides", "spec.runtimePatches"))
		expect.Same(t, "Unexpected warnings", tc.warning, trimmed(warnings, "spec.podTemplateOverrides", "spec.runtimePatches"))
		expect.ErrorWith(t, slices.Concat(verdict.Errors, warnings)[0], tc.says)
	})
}

func TestWithoutRuntime(t *testing.T) {
	for _, generation := range generations {
		fine := patching(t, generation, `{containers: [{name: anything}], imagePullSecrets: [{name: s}]}`)
		verdict := Create(generation, nil, fine)
		expect.That(t, len(verdict.Errors)+len(verdict.Warnings) == 0, "Generation %d says what only a runtime can tell: %v", generation, verdict)
		verdict = Create(generation, nil, patching(t, generation, `{tolerations: {}, containers: [{name: node, env: [{name: A}]}]}`))
		expect.That(t, len(verdict.Errors) != 0, "Generation %d refuses nothing", generation)
	}
}

// FuzzVerdicts looks for lists that make the rules panic.
func FuzzVerdicts(f *testing.F) {
	for _, list := range []string{
		`null`, `[]`, `[null]`, `[7, "x", []]`,
		`[{"manager":"a.io/x","trainingRuntimeSpec":{"template":null}}]`,
		`[{"manager":null,"time":null,"trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[null,{"name":null},{"name":"node","template":{"spec":{"template":{"spec":{"containers":[null,{"name":"ü","env":[null]},{"name":"ü"}]}}}}}]}}}}]`,
		`[{"targetJobs":[null,{"name":"node"}],"spec":{"volumes":[null,{"name":""}],"initContainers":[{"volumeMounts":[{}]}],"terminationGracePeriodSeconds":-0}}]`,
		`[{"targetJobs":[]},{"targetJobs":null,"metadata":{"labels":{"a":null}}},{"TargetJobs":[{"Name":"node"}]}]`,
		`[` + strings.Repeat(`{"manager":"a.io/x"},`, 1000) + `{}]`,
	} {
		f.Add([]byte(list))
	}
	spec := runtimeSpec(f)
	f.Fuzz(func(t *testing.T, list []byte) {
		var job trainjob.Spec
		if json.Unmarshal(list, &job.RuntimePatches) != nil || json.Unmarshal(list, &job.PodTemplateOverrides) != nil {
			return
		}
		for _, generation := range generations {
			Create(generation, spec, &job)
		}
	})
}

// TestFields is for what the API server says without a CRD; for what the CRDs say there
// is test/generations.
func TestFields(t *testing.T) {
	type row struct {
		metadata, spec string
		// fields and pods are the fields that Fields and Pods find wrong.
		fields, pods []string
	}
	expect.Rows(t, map[string]row{
		"in order": {metadata: `{name: a, namespace: ns, labels: {a.io/b: c, d: ""}, annotations: {A.io/b: "any text"}}`,
			spec: `trainer: {numNodes: 2, env: [{name: 1 A}], resourcesPerNode: {limits: {nvidia.com/gpu: 2, cpu: 2}, requests: {nvidia.com/gpu: "2", cpu: 1}}}`},
		"metadata that is of no use": {metadata: `{generateName: Bad-, namespace: Bad NS, labels: {foo bar: a, b: a b}, annotations: {a b: x}, finalizers: [a b]}`,
			fields: []string{
				"metadata.namespace", "metadata.generateName", "metadata.labels[b]", "metadata.labels[foo bar]", "metadata.annotations[a b]", "metadata.finalizers",
			}},
		"amounts that are none, in their places": {spec: `trainer: {numNodes: "2", resourcesPerNode: {limits: {nvidia.com/gpu: x, cpu: 1}, requests: {memory: 1 GB}}}`,
			fields: []string{
				"spec.trainer.numNodes", "spec.trainer.resourcesPerNode.limits[nvidia.com/gpu]", "spec.trainer.resourcesPerNode.requests.memory",
			}},
		"an item of a list that is none": {spec: `trainer: {env: [{name: A}, {name: 7}]}`, fields: []string{"spec.trainer.env[1].name"}},
		"what no pod can have": {spec: `{trainer: {numNodes: -1, env: [{name: A=B}], resourcesPerNode: {limits: {"": 1, a b!: 1}}},
				initializer: {dataset: {env: [{name: ""}]}, model: {env: [{name: ü}]}}}`,
			pods: []string{
				"spec.trainer.env[0].name", "spec.trainer.numNodes", "spec.trainer.resourcesPerNode.limits[]", "spec.trainer.resourcesPerNode.limits[a b!]",
				"spec.initializer.dataset.env[0].name", "spec.initializer.model.env[0].name",
			}},
		"requests that do not go with limits": {spec: `trainer: {resourcesPerNode: {limits: {nvidia.com/gpu: 2, cpu: 1, memory: -1}, requests: {nvidia.com/gpu: 1, cpu: 2}}}`,
			pods: []string{
				"spec.trainer.resourcesPerNode.limits[memory]", "spec.trainer.resourcesPerNode.requests[cpu]", "spec.trainer.resourcesPerNode.requests[nvidia.com/gpu]",
			}},
		"a trainer that is none": {spec: `trainer: 7`, fields: []string{"spec.trainer"}},
	}, func(t *testing.T, tc row) {
		type object = map[string]any
		spec := expect.FromYAML[object](t, cmp.Or(tc.spec, "{}"))
		spec["runtimeRef"] = object{"name": "torch"}
		job := object{
			"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "spec": spec,
			"metadata": expect.FromYAML[any](t, cmp.Or(tc.metadata, "{name: a}")),
		}
		data := []byte(expect.JSON(t, job))
		for _, generation := range generations {
			expect.Same(t, fmt.Sprintf("Unexpected fields for Trainer %s", generation), tc.fields, places(Fields(generation, data)))
			expect.Same(t, fmt.Sprintf("Unexpected findings about pods for Trainer %s", generation), tc.pods, places(Pods(generation, data)))
		}
	})
}

func places(errs field.ErrorList) []string {
	return expect.Each(errs, func(err *field.Error) string { return err.Field })
}
