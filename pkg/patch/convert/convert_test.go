// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const owner = "example.com/team"

// trainJob is the manifest of a TrainJob with a spec in YAML.
func trainJob(t testing.TB, apiVersion, spec string) []byte {
	t.Helper()
	return expect.Must(yaml.YAMLToJSON([]byte("apiVersion: " + apiVersion + "\nkind: TrainJob\nmetadata: {name: job}\nspec: " + spec)))(t)
}

func specOf(t testing.TB, manifest []byte) any {
	t.Helper()
	job := expect.FromJSON[struct {
		APIVersion, Kind string
		Metadata         map[string]any
		Spec             any
	}](t, string(manifest))
	expect.That(t, job.APIVersion == "trainer.kubeflow.org/v1alpha1" && job.Kind == "TrainJob" && job.Metadata["name"] == "job",
		"Not the head of the TrainJob: %s", manifest)
	return job.Spec
}

// inNode is the part of an entry that patches the pods of node.
func inNode(podSpec string) string { return inJobs(inPods("node", "spec: {"+podSpec+"}")) }

// inJobs is the part of an entry that patches replicated jobs.
func inJobs(jobs ...string) string {
	return "trainingRuntimeSpec: {template: {spec: {replicatedJobs: [" + strings.Join(jobs, ", ") + "]}}}"
}

// inPods patches the pod template of a replicated job.
func inPods(job, template string) string {
	return "{name: " + job + ", template: {spec: {template: {" + template + "}}}}"
}

type conversion func([]byte) ([]byte, []string, field.ErrorList)

func toPatches(data []byte) ([]byte, []string, field.ErrorList) {
	return ManifestToRuntimePatches(data, owner)
}

func way(way conversion) conversion {
	if way == nil {
		return toPatches
	}
	return way
}

func TestManifests(t *testing.T) {
	const served = "trainer.kubeflow.org/v1alpha1"
	type row struct {
		// way is toPatches where it is left out.
		way                    conversion
		apiVersion, spec, want string
		// warnings holds a part of each.
		warnings []string
	}
	expect.Rows(t, map[string]row{
		"Trainer's migration guide": {spec: `
  podTemplateOverrides:
  - targetJobs: [{name: node}]
    spec:
      serviceAccountName: ml-training-sa
      nodeSelector: {accelerator: nvidia-tesla-v100}
      volumes: [{name: training-data, persistentVolumeClaim: {claimName: ml-team-training-pvc}}]
      containers: [{name: trainer, volumeMounts: [{name: training-data, mountPath: /workspace/data}]}]`,
			want: `{runtimePatches: [{manager: example.com/team, ` + inNode(`
      serviceAccountName: ml-training-sa,
      nodeSelector: {accelerator: nvidia-tesla-v100},
      volumes: [{name: training-data, persistentVolumeClaim: {claimName: ml-team-training-pvc}}],
      containers: [{name: trainer, volumeMounts: [{name: training-data, mountPath: /workspace/data}]}]`) + `}]}`},
		"several overrides collapse, one for several jobs spreads": {spec: `
  runtimeRef: {name: torch}
  labels: {of: job}
  podTemplateOverrides:
  - targetJobs: [{name: node}, {name: launcher}, {name: node}]
    metadata: {labels: {team: ml, tier: a}}
    spec:
      serviceAccountName: base-sa
      tolerations: [{key: a}, {key: b}]
      nodeSelector: {pool: a, zone: a}
      containers: [{name: side, env: [{name: A, value: "1"}, {name: B, value: "1"}]}]
  - targetJobs: [{name: node}]
    metadata: {labels: {team: vision}}
    spec:
      serviceAccountName: custom-sa
      tolerations: [{key: c}]
      nodeSelector: {pool: b}
      affinity: {}
      containers: [{name: side, env: [{name: A, value: ""}, {name: B, value: "2"}]}]`,
			want: `
  runtimeRef: {name: torch}
  runtimePatches:
  - manager: example.com/team
    trainingRuntimeSpec:
      template:
        metadata: {labels: {of: job}}
        spec:
          replicatedJobs:
          - ` + inPods("node", `metadata: {labels: {team: vision, tier: a}}, spec: {
              serviceAccountName: custom-sa, tolerations: [{key: c}], nodeSelector: {pool: b, zone: a}, affinity: {},
              containers: [{name: side, env: [{name: A, value: "1"}, {name: B, value: "2"}]}]}`) + `
          - ` + inPods("launcher", `metadata: {labels: {team: ml, tier: a}}, spec: {
              serviceAccountName: base-sa, tolerations: [{key: a}, {key: b}], nodeSelector: {pool: a, zone: a},
              containers: [{name: side, env: [{name: A, value: "1"}, {name: B, value: "1"}]}]}`)},
		"fields that nobody knows come along": {spec: `
  future: {a: 1}
  podTemplateOverrides:
  - targetJobs: [{name: node}]
    spec: {newField: {x: 9007199254740993, y: [1]}, containers: [{name: c, newer: false}]}
  - targetJobs: [{name: node}]
    spec: {newField: {y: [2], z: null}, containers: [{name: c, newest: {}}]}`,
			want: `
  future: {a: 1}
  runtimePatches: [{manager: example.com/team, ` + inNode(`
      newField: {x: 9007199254740993, y: [2], z: null}, containers: [{name: c, newer: false, newest: {}}]`) + `}]`,
			warnings: []string{"containers[0].newer: Forbidden: Trainer does not patch it", "containers[0].newest: Forbidden", "spec.newField: Forbidden"}},
		"overrides without content name their jobs": {spec: `{podTemplateOverrides: [{targetJobs: [{name: node}], metadata: null, spec: null}]}`,
			want: `{runtimePatches: [{manager: example.com/team, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node}]}}}}]}`},
		"an empty list leaves nothing": {spec: `{podTemplateOverrides: [], labels: {}}`, want: `{}`},
		"nothing to convert":           {spec: `{suspend: true, runtimePatches: [{manager: a.io/x}]}`, want: `{suspend: true, runtimePatches: [{manager: a.io/x}]}`},
		"a version that nobody serves": {apiVersion: "trainer.kubeflow.org/v2alpha1", spec: `{runtimePatches: [{manager: a.io/x}]}`,
			want: `{runtimePatches: [{manager: a.io/x}]}`, warnings: []string{"v2alpha1; it is written as trainer.kubeflow.org/v1alpha1"}},
		"an order that may change": {spec: `
  podTemplateOverrides:
  - {targetJobs: [{name: node}], spec: {initContainers: [{name: a}]}}
  - {targetJobs: [{name: node}], spec: {initContainers: [{name: b}]}}`,
			want:     `{runtimePatches: [{manager: example.com/team, ` + inNode("initContainers: [{name: b}, {name: a}]") + `}]}`,
			warnings: []string{`podTemplateOverrides[1]: several overrides of replicated job "node" patch initContainers`}},
		"resources mean something else": {spec: `{trainer: {resourcesPerNode: {requests: {cpu: 1}}}, podTemplateOverrides: []}`,
			want: `{trainer: {resourcesPerNode: {requests: {cpu: 1}}}}`, warnings: []string{"spec.trainer.resourcesPerNode"}},
		"resources mean something else, without overrides too": {spec: `{trainer: {resourcesPerNode: {requests: {cpu: 1}}}}`,
			want: `{trainer: {resourcesPerNode: {requests: {cpu: 1}}}}`, warnings: []string{"spec.trainer.resourcesPerNode"}},
		"resources of a newer TrainJob mean what they do": {spec: `{trainer: {resourcesPerNode: {}}, runtimePatches: []}`,
			want: `{trainer: {resourcesPerNode: {}}, runtimePatches: []}`},
		"resources mean something else the other way, without patches too": {way: ManifestToPodTemplateOverrides,
			spec: `{trainer: {resourcesPerNode: {requests: {cpu: 1}}}}`, want: `{trainer: {resourcesPerNode: {requests: {cpu: 1}}}}`,
			warnings: []string{"spec.trainer.resourcesPerNode"}},
		"resources of an older TrainJob mean what they do": {way: ManifestToPodTemplateOverrides,
			spec: `{trainer: {resourcesPerNode: {}}, podTemplateOverrides: []}`, want: `{trainer: {resourcesPerNode: {}}, podTemplateOverrides: []}`},
		"templateOverrides with lists for jobs and pods": {spec: `
  templateOverrides:
  - manager: kueue.x-k8s.io/manager
    pod:
    - {time: "2026-02-17T10:00:00Z", targetJobs: [{name: trainer}], spec: {nodeSelector: {accelerator: a, zone: z}}}
    - {time: "2026-02-17T11:00:00Z", targetJobs: [{name: trainer}], spec: {nodeSelector: {accelerator: b}}}
  - manager: abc.example.com/abc
    job:
    - {time: "2026-02-17T10:00:00Z", targetJobs: [{name: trainer}], metadata: {labels: {custom-label: value}}}
    - {metadata: {annotations: {of: jobset}}}`,
			want: `
  runtimePatches:
  - manager: kueue.x-k8s.io/manager
    time: "2026-02-17T11:00:00Z"
    ` + inJobs(inPods("trainer", "spec: {nodeSelector: {accelerator: b, zone: z}}")) + `
  - manager: abc.example.com/abc
    time: "2026-02-17T10:00:00Z"
    trainingRuntimeSpec: {template: {metadata: {annotations: {of: jobset}}, spec: {replicatedJobs: [
      {name: trainer, template: {metadata: {labels: {custom-label: value}}}}]}}}`},
		"flat entries with managers and times": {spec: `
  podTemplateOverrides:
  - {manager: b.io/x, time: "2026-02-17T10:00:00Z", targetJobs: [{name: node}], spec: {nodeSelector: {a: b}}}
  - {targetJobs: [{name: node}], spec: {nodeSelector: {a: mine}}}
  jobTemplateOverrides:
  - {manager: b.io/x, time: "2026-02-17T09:00:00Z", targetJobs: [{name: node}], metadata: {labels: {l: v}}}
  templateOverrides:
  - {manager: c.io/x, targetJobs: [{name: node}], metadata: {labels: {p: v}}}`,
			want: `
  runtimePatches:
  - manager: b.io/x
    time: "2026-02-17T10:00:00Z"
    trainingRuntimeSpec: {template: {spec: {replicatedJobs: [
      {name: node, template: {metadata: {labels: {l: v}}, spec: {template: {spec: {nodeSelector: {a: b}}}}}}]}}}
  - manager: example.com/team
    ` + inNode("nodeSelector: {a: mine}") + `
  - manager: c.io/x
    ` + inJobs(inPods("node", "metadata: {labels: {p: v}}"))},
		"a manager that comes first for one job only": {spec: `
  podTemplateOverrides:
  - {manager: a.io/x, targetJobs: [{name: node}]}
  - {manager: b.io/x, targetJobs: [{name: launcher}]}
  - {manager: a.io/x, targetJobs: [{name: launcher}]}`,
			want: `
  runtimePatches:
  - {manager: b.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: launcher}]}}}}
  - {manager: a.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node}, {name: launcher}]}}}}`},
		"times against the order": {spec: `
  templateOverrides:
  - manager: a.io/x
    pod:
    - {time: "2026-02-17T11:00:00Z", targetJobs: [{name: node}]}
    - {time: "2026-02-17T10:00:00Z", targetJobs: [{name: node}]}`,
			want:     `{runtimePatches: [{manager: a.io/x, time: "2026-02-17T11:00:00Z", trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node}]}}}}]}`,
			warnings: []string{"pod[1].time: it is older"}},
		"patches to overrides": {way: ManifestToPodTemplateOverrides,
			spec: `
  runtimePatches:
  - manager: a.io/x
    time: "2026-02-17T10:00:00Z"
    trainingRuntimeSpec: {template: {metadata: {labels: {a: "1", b: "1"}}, spec: {replicatedJobs: [
      {name: node, template: {metadata: {}, spec: {template: {metadata: {labels: {p: v}}, spec: {nodeSelector: {x: "y"}, future: [1]}}}}},
      {name: launcher}]}}}
  - manager: b.io/x
    trainingRuntimeSpec: {template: {metadata: {labels: {b: "2"}, annotations: {c: "3"}}}}`,
			want: `
  labels: {a: "1", b: "2"}
  annotations: {c: "3"}
  podTemplateOverrides:
  - {targetJobs: [{name: node}], metadata: {labels: {p: v}}, spec: {nodeSelector: {x: "y"}, future: [1]}}
  - {targetJobs: [{name: launcher}]}`,
			warnings: []string{"those of a.io/x, b.io/x are lost", "podTemplateOverrides[0].spec.future: Forbidden"}},
		"what we wrote on Trainer 2.1 is left out": {spec: `
  podTemplateOverrides:
  - {targetJobs: [{name: node}], spec: {nodeSelector: {mine: "1"}}}
  - targetJobs: [{name: node}, {name: launcher}]
    metadata: {labels: {kueue-trainer.dev/gated: "true"}, annotations: {kueue-trainer.dev/manager: kueue.x-k8s.io/manager}}
    spec: {schedulingGates: [{name: kueue-trainer.dev/admission}]}
  - {targetJobs: [{name: node}], metadata: {annotations: {kueue-trainer.dev/manager: someone}}}`,
			want: `{runtimePatches: [{manager: example.com/team, ` +
				inJobs(inPods("node", `metadata: {annotations: {kueue-trainer.dev/manager: someone}}, spec: {nodeSelector: {mine: "1"}}`)) + `}]}`,
			warnings: []string{"spec.podTemplateOverrides[1]: it is left out"}},
		"nothing but what we wrote on Trainer 2.1": {spec: `{podTemplateOverrides: [{targetJobs: [{name: node}], metadata: {annotations: {kueue-trainer.dev/manager: kueue.x-k8s.io/manager}},
  spec: {nodeSelector: {pool: h100}}}]}`,
			want:     `{}`,
			warnings: []string{"spec.podTemplateOverrides[0]: it is left out"}},
		"what we wrote on Trainer 2.3 is left out": {way: ManifestToPodTemplateOverrides,
			spec: `{runtimePatches: [{manager: a.io/x, ` + inNode("nodeSelector: {mine: a}") + `},
  {manager: kueue.x-k8s.io/manager, time: "2026-02-17T10:00:00Z", ` + inNode("schedulingGates: [{name: kueue-trainer.dev/admission}]") + `}]}`,
			want:     `{podTemplateOverrides: [{targetJobs: [{name: node}], spec: {nodeSelector: {mine: a}}}]}`,
			warnings: []string{"spec.runtimePatches[1]: it is left out", "those of a.io/x are lost"}},
		"a volume that a container mounts at several paths": {spec: `
  podTemplateOverrides:
  - targetJobs: [{name: node}, {name: launcher}]
    spec: {volumes: [{name: data}], containers: [{name: side, env: [{name: A}], volumeMounts: [{name: data, mountPath: /a}]}, {name: log}]}
  - {targetJobs: [{name: node}], spec: {containers: [{name: side, volumeMounts: [{name: data, mountPath: /b}, {name: other, mountPath: /o}]}]}}
  - {targetJobs: [{name: node}], spec: {containers: [{name: side, volumeMounts: [{name: data, mountPath: /c}]}]}}
  - {manager: example.com/team-2, time: "2026-02-17T10:00:00Z", targetJobs: [{name: node}], spec: {containers: [{name: side, volumeMounts: [{name: data, mountPath: /b, readOnly: true}]}]}}`,
			want: `
  runtimePatches:
  - manager: example.com/team
    ` + inJobs(inPods("node", `spec: {volumes: [{name: data}], containers: [
        {name: side, env: [{name: A}], volumeMounts: [{name: data, mountPath: /c}, {name: other, mountPath: /o}]}, {name: log}]}`),
				inPods("launcher", `spec: {volumes: [{name: data}], containers: [
        {name: side, env: [{name: A}], volumeMounts: [{name: data, mountPath: /a}]}, {name: log}]}`)) + `
  - manager: example.com/team-3
    ` + inNode("containers: [{name: side, volumeMounts: [{name: data, mountPath: /b}]}]") + `
  - manager: example.com/team-4
    ` + inNode("containers: [{name: side, volumeMounts: [{name: data, mountPath: /a}]}]") + `
  - manager: example.com/team-2
    time: "2026-02-17T10:00:00Z"
    ` + inNode("containers: [{name: side, volumeMounts: [{name: data, mountPath: /b, readOnly: true}]}]"),
			warnings: []string{`manager "example.com/team-3"`, `manager "example.com/team-4"`}},
		"overrides stay overrides": {way: ManifestToPodTemplateOverrides, spec: `{podTemplateOverrides: [{targetJobs: []}]}`,
			want: `{podTemplateOverrides: [{targetJobs: []}]}`},
	}, func(t *testing.T, tc row) {
		got, warnings, errs := way(tc.way)(trainJob(t, cmp.Or(tc.apiVersion, served), tc.spec))
		expect.Same(t, "Unexpected errors", nil, errs)
		expect.Same(t, "Unexpected spec", expect.FromYAML[any](t, tc.want), specOf(t, got))
		expect.That(t, slices.EqualFunc(warnings, tc.warnings, strings.Contains), "Warnings are %q, want one with each of %q", warnings, tc.warnings)
	})
}

func TestRefusals(t *testing.T) {
	type row struct {
		// way is toPatches where it is left out.
		way      conversion
		manifest string
		want     []string
	}
	expect.Rows(t, map[string]row{
		"no JSON":            {manifest: `no`, want: []string{"<nil>"}},
		"another kind":       {manifest: `{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"Job"}`, want: []string{"kind"}},
		"another API":        {manifest: `{"apiVersion":"batch/v1","kind":"TrainJob"}`, want: []string{"apiVersion"}},
		"a spec of text":     {manifest: `{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","spec":"x"}`, want: []string{"spec"}},
		"overrides as text":  {manifest: `{podTemplateOverrides: x}`, want: []string{"spec.podTemplateOverrides"}},
		"an override of 7":   {manifest: `{podTemplateOverrides: [7]}`, want: []string{"spec.podTemplateOverrides[0]", "spec.podTemplateOverrides[0].targetJobs"}},
		"both generations":   {manifest: `{podTemplateOverrides: [], runtimePatches: []}`, want: []string{"spec.runtimePatches"}},
		"no target jobs":     {manifest: `{podTemplateOverrides: [{spec: {}}]}`, want: []string{"spec.podTemplateOverrides[0].targetJobs"}},
		"a target of nobody": {manifest: `{podTemplateOverrides: [{targetJobs: [{name: ""}]}]}`, want: []string{"spec.podTemplateOverrides[0].targetJobs[0].name"}},
		"what no patch has": {manifest: `{podTemplateOverrides: [{targetJobs: [{name: a, index: 1}], other: 1, metadata: {name: x, labels: {a: 1}}}]}`,
			want: []string{
				"spec.podTemplateOverrides[0].other", "spec.podTemplateOverrides[0].targetJobs[0].index",
				"spec.podTemplateOverrides[0].metadata.name", "spec.podTemplateOverrides[0].metadata.labels[a]",
			}},
		"a spec that Trainer cannot read":     {manifest: `{podTemplateOverrides: [{targetJobs: [{name: a}], spec: {tolerations: x}}]}`, want: []string{"spec.podTemplateOverrides[0].spec"}},
		"processes by name":                   {manifest: `{podTemplateOverrides: [], trainer: {numProcPerNode: gpu}}`, want: []string{"spec.trainer.numProcPerNode"}},
		"processes by name without overrides": {manifest: `{trainer: {numProcPerNode: auto}}`, want: []string{"spec.trainer.numProcPerNode"}},
		"a time that is none":                 {manifest: `{podTemplateOverrides: [{manager: a.io/x, time: now, targetJobs: [{name: a}]}]}`, want: []string{"spec.podTemplateOverrides[0].time"}},
		"an entry of nobody":                  {manifest: `{templateOverrides: [{pod: []}]}`, want: []string{"spec.templateOverrides[0].manager"}},
		"a Job's spec":                        {manifest: `{templateOverrides: [{manager: a.io/x, job: [{spec: {}}]}]}`, want: []string{"spec.templateOverrides[0].job[0].spec"}},
		"a list among the fields of an entry": {manifest: `{templateOverrides: [{manager: a.io/x, pod: [], spec: {}}]}`, want: []string{"spec.templateOverrides[0].spec"}},
		"a manager both before and after another": {manifest: `{podTemplateOverrides: [
  {manager: a.io/x, targetJobs: [{name: node}]}, {manager: b.io/x, targetJobs: [{name: node}]}, {manager: a.io/x, targetJobs: [{name: node}]}]}`,
			want: []string{"spec.podTemplateOverrides[2]"}},
		"a manager that is no path of a domain": {manifest: `{podTemplateOverrides: [{manager: kueue, targetJobs: [{name: a}]}]}`,
			want: []string{"spec.runtimePatches[0].manager"}},
		"more managers than a list may have": {manifest: `{podTemplateOverrides: [` + kit.Numbered(17, "{manager: a.io/m%d, targetJobs: [{name: node}]}") + `]}`,
			want: []string{"spec.runtimePatches"}},
		"more than a pod may have once it is one patch": {manifest: `{podTemplateOverrides: [
  {targetJobs: [{name: node}], spec: {schedulingGates: [` + kit.Numbered(16, "{name: a%d}") + `], containers: [{name: side, env: [` + kit.Numbered(100, "{name: A%d}") + `]}]}},
  {targetJobs: [{name: node}], spec: {schedulingGates: [{name: b}], containers: [{name: side, env: [` + kit.Numbered(100, "{name: B%d}") + `]}]}}]}`,
			want: []string{
				"spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].env",
				"spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec.schedulingGates",
			}},
		"variables that Trainer's webhook forbids": {manifest: `{podTemplateOverrides: [{targetJobs: [{name: node}], spec: {containers: [{name: node, env: [{name: A, value: b}]}]}}]}`,
			want: []string{"spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].env"}},
		"the same in patches": {way: ManifestToPodTemplateOverrides,
			manifest: `{runtimePatches: [{manager: a.io/x, ` + inNode("containers: [{name: node, env: [{name: A, value: b}]}]") + `}]}`,
			want:     []string{"spec.podTemplateOverrides[0].spec.containers[0].env"}},
		"an owner that we are": {way: func(manifest []byte) ([]byte, []string, field.ErrorList) {
			return ManifestToRuntimePatches(manifest, "kueue.x-k8s.io/manager")
		}, manifest: `{podTemplateOverrides: [{targetJobs: [{name: node}]}]}`, want: []string{"owner"}},
		"a container of nobody": {way: ManifestToPodTemplateOverrides, manifest: `{runtimePatches: [{manager: a.io/x, ` + inNode("containers: [{}]") + `}]}`,
			want: []string{"spec.podTemplateOverrides[0].spec.containers[0].name"}},
		"what Trainer 2.1 cannot express": {way: ManifestToPodTemplateOverrides,
			manifest: `{activeDeadlineSeconds: 5, runtimePatches: [{manager: a.io/x, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {
  metadata: {labels: {a: b}},
  spec: {template: {spec: {securityContext: {}, terminationGracePeriodSeconds: 5, containers: [{name: c, securityContext: {}}]}}}}}]}}}}]}`,
			want: []string{
				"spec.activeDeadlineSeconds",
				"spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.metadata",
				"spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec.securityContext",
				"spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec.terminationGracePeriodSeconds",
				"spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].securityContext",
			}},
		"patches as text":            {way: ManifestToPodTemplateOverrides, manifest: `{runtimePatches: x}`, want: []string{"spec.runtimePatches"}},
		"a patch of nobody":          {way: ManifestToPodTemplateOverrides, manifest: `{runtimePatches: [{}]}`, want: []string{"spec.runtimePatches[0].manager"}},
		"a replicated job of nobody": {way: ManifestToPodTemplateOverrides, manifest: `{runtimePatches: [{manager: a, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [null]}}}}]}`, want: []string{"spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].name"}},
	}, func(t *testing.T, tc row) {
		manifest := []byte(tc.manifest)
		if !strings.HasPrefix(tc.manifest, `{"`) && tc.manifest != "no" {
			manifest = trainJob(t, "trainer.kubeflow.org/v1alpha1", tc.manifest)
		}
		got, _, errs := way(tc.way)(manifest)
		expect.That(t, got == nil, "There are errors and a manifest: %s", got)
		fields := expect.Each(errs, func(err *field.Error) string { return err.Field })
		expect.Same(t, fmt.Sprintf("Unexpected errors %v", errs.ToAggregate()), tc.want, fields)
	})
}

// Managers that patch many jobs in one order are ordered along one way of very many.
func TestManyManagersOfManyJobs(t *testing.T) {
	const managers, jobs = 16, 40
	var overrides []string
	for j := range jobs {
		for m := range managers {
			overrides = append(overrides, fmt.Sprintf("{manager: a.io/m%d, targetJobs: [{name: j%d}]}", m, j))
		}
	}
	data, _, errs := toPatches(trainJob(t, "trainer.kubeflow.org/v1alpha1", "{podTemplateOverrides: ["+strings.Join(overrides, ",")+"]}"))
	expect.Same(t, "Unexpected errors", nil, errs)
	type entry = struct{ Manager string }
	job := expect.FromJSON[struct {
		Spec struct{ RuntimePatches []entry }
	}](t, string(data))
	got := expect.Each(job.Spec.RuntimePatches, func(e entry) string { return e.Manager })
	expect.Same(t, "Unexpected order", kit.Numbered(managers, "a.io/m%d"), strings.Join(got, ", "))
}

// odd are manifests for the fuzzer to start from.
var odd = []string{
	`null`, `{}`, `[]`,
	`{podTemplateOverrides: null}`,
	`{podTemplateOverrides: [null, {targetJobs: [null]}, {targetJobs: [{name: a}], spec: {containers: [null, {name: null}, {name: [1]}, 7]}}]}`,
	`{podTemplateOverrides: [{targetJobs: [{name: a}], spec: {volumes: [{name: v}, {name: v}, {}]}}, {targetJobs: [{name: a}], spec: {volumes: [{name: v, emptyDir: {}}, {name: ""}]}}]}`,
	`{podTemplateOverrides: [{targetJobs: [{name: ü}], metadata: {labels: {"\0": "日本"}}}, {targetJobs: [{name: ü}], spec: {affinity: {podAffinity: {}}, nodeSelector: {$patch: delete}}}]}`,
	`{templateOverrides: [{manager: a, pod: [null], job: [{targetJobs: []}]}, {manager: a}]}`,
	`{runtimePatches: [null, {manager: a}, {manager: a, trainingRuntimeSpec: {template: {metadata: {labels: null}, spec: {replicatedJobs: [{name: a, template: null}, {name: a}]}}}}]}`,
	`{labels: {a: b}, annotations: [], trainer: [], runtimePatches: 7}`,
}

// FuzzManifests looks for manifests that make a conversion panic, and for conversions
// whose result is not converted already.
func FuzzManifests(f *testing.F) {
	for _, spec := range odd {
		f.Add(trainJob(f, "trainer.kubeflow.org/v1alpha1", spec))
	}
	f.Add([]byte(`{"podTemplateOverrides":[` + strings.Repeat(`{"targetJobs":[{"name":"a"}]},`, 1000) + `{}]}`))
	f.Fuzz(func(t *testing.T, manifest []byte) {
		for _, way := range []conversion{toPatches, ManifestToPodTemplateOverrides} {
			got, _, errs := way(manifest)
			expect.Need(t, (got == nil) == (len(errs) > 0), "The result is %s, the errors %v", got, errs)
			if got == nil {
				continue
			}
			again, _, errs := way(got)
			diff := gocmp.Diff(string(got), string(again))
			expect.That(t, diff == "" && len(errs) == 0, "Converted twice it is another one (-once,+twice):\n%s\n%v", diff, errs)
		}
	})
}
