// SPDX-License-Identifier: Apache-2.0

package provenance_test

import (
	"encoding/json"
	"flag"
	"slices"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/provenance"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/generations/random"
	"github.com/kueue-trainer/kueue-trainer/test/generations/removal"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "of the random TrainJobs")

// world renders with Trainer's library.
type world struct {
	*testing.T
	renderer *trainjob.Renderer
}

func newWorld(t *testing.T) world {
	t.Helper()
	return world{t, expect.Must(trainjob.NewRenderer(t.Context(), kit.Scheme(trainjob.AddToScheme)))(t)}
}

// explain renders and asks who set what.
func (w world) explain(spec *trainer.TrainingRuntimeSpec, job *trainjob.TrainJob) []provenance.Field {
	w.Helper()
	js := expect.Must(w.renderer.Render(w.Context(), job, spec, job.Spec.RuntimePatches))(w)
	return expect.Must(provenance.Explain(provenance.Input{Runtime: spec, Job: job}, js))(w)
}

const testRuntime = `
mlPolicy: {numNodes: 1, torch: {}}
template:
  metadata: {labels: {of: runtime}}
  spec:
    replicatedJobs:
    - name: node
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
        spec:
          template:
            metadata: {labels: {team: base}}
            spec:
              nodeSelector: {pool: base}
              containers:
              - name: node
                image: torch
                env: [{name: A, value: base}, {name: C, value: base}]
                resources: {requests: {cpu: "4"}, limits: {memory: 8Gi}}
`

const testJob = `
metadata: {name: job, namespace: ns}
spec:
  runtimeRef: {name: torch}
  trainer: {image: mine, env: [{name: A, value: job}, {name: C}, {name: PET_NNODES, value: "9"}], resourcesPerNode: {requests: {cpu: "8"}}}
  runtimePatches:
  - manager: example.com/a
    trainingRuntimeSpec:
      template:
        metadata: {labels: {of: a}}
        spec:
          replicatedJobs:
          - name: node
            template:
              metadata: {annotations: {of: a}}
              spec: {template: {metadata: {labels: {team: a}}, spec: {
                nodeSelector: {pool: a, zone: a}, tolerations: [{key: spot, operator: Exists}],
                volumes: [{name: data, emptyDir: {}}], containers: [{name: node, env: [{name: C}]}], schedulingGates: [{name: example.com/wait}]}}}
  - manager: kueue.x-k8s.io/manager
    trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {
      nodeSelector: {pool: kueue}, tolerations: [{key: nvidia.com/gpu, operator: Exists}]}}}}}]}}}
`

func TestExplain(t *testing.T) {
	a, kueue := provenance.Source{provenance.Patch, 0, "example.com/a"}, provenance.Source{provenance.Patch, 1, "kueue.x-k8s.io/manager"}
	own, base := provenance.Source{Kind: provenance.TrainJob}, provenance.Source{Kind: provenance.Runtime}
	said := func(s provenance.Source, value string) provenance.Setting {
		return provenance.Setting{s, json.RawMessage(value)}
	}
	const pod = "spec.template.spec."
	fields := newWorld(t).explain(expect.FromYAML[*trainer.TrainingRuntimeSpec](t, testRuntime), expect.FromYAML[*trainjob.TrainJob](t, testJob))
	type row struct {
		job, path string
		want      provenance.Setting
		overrode  []provenance.Setting
	}
	expect.Rows(t, map[string]row{
		"a label of the JobSet":                    {"", "metadata.labels[of]", said(a, `"a"`), []provenance.Setting{said(base, `"runtime"`)}},
		"an annotation of a Job":                   {"node", "metadata.annotations[of]", said(a, `"a"`), nil},
		"a label of the pods":                      {"node", "spec.template.metadata.labels[team]", said(a, `"a"`), []provenance.Setting{said(base, `"base"`)}},
		"a node selector, later entries win":       {"node", pod + "nodeSelector[pool]", said(kueue, `"kueue"`), []provenance.Setting{said(a, `"a"`), said(base, `"base"`)}},
		"a node selector that only one sets":       {"node", pod + "nodeSelector[zone]", said(a, `"a"`), nil},
		"tolerations, which are replaced":          {"node", pod + "tolerations", said(kueue, `[{"key":"nvidia.com/gpu","operator":"Exists"}]`), []provenance.Setting{said(a, `[{"key":"spot","operator":"Exists"}]`)}},
		"a volume":                                 {"node", pod + "volumes[data].emptyDir", said(a, `{}`), nil},
		"a gate":                                   {"node", pod + "schedulingGates[example.com/wait]", said(a, `{"name":"example.com/wait"}`), nil},
		"an image":                                 {"node", pod + "containers[node].image", said(own, `"mine"`), []provenance.Setting{said(base, `"torch"`)}},
		"a variable":                               {"node", pod + "containers[node].env[A].value", said(own, `"job"`), []provenance.Setting{said(base, `"base"`)}},
		"a variable without a value":               {"node", pod + "containers[node].env[C]", said(own, `{"name":"C"}`), nil},
		"a resource":                               {"node", pod + "containers[node].resources.requests[cpu]", said(own, `"8"`), []provenance.Setting{said(base, `"4"`)}},
		"a resource that is merged":                {"node", pod + "containers[node].resources.limits[memory]", said(base, `"8Gi"`), nil},
		"a variable of the framework, set by hand": {"node", pod + "containers[node].env[PET_NNODES].value", said(own, `"9"`), nil},
		"a variable of the framework":              {"node", pod + "containers[node].env[PET_MASTER_ADDR].value", said(provenance.Source{Kind: provenance.Trainer}, `"job-node-0-0.job"`), nil},
		"the number of pods":                       {"node", "spec.parallelism", said(provenance.Source{Kind: provenance.Trainer}, `1`), nil},
	}, func(t *testing.T, tc row) {
		want := []provenance.Field{{Job: tc.job, Path: tc.path, Setting: tc.want, Overrode: tc.overrode}}
		got := slices.DeleteFunc(slices.Clone(fields), func(f provenance.Field) bool { return f.Job != tc.job || f.Path != tc.path })
		for i := range got {
			got[i].Overrode = append([]provenance.Setting(nil), got[i].Overrode...)
		}
		expect.Same(t, "Unexpected fields", want, got)
	})
}

// Ports that differ by their protocol only, and constraints for one topology, have the
// same key in a strategic merge.
func TestExplainItemsWithTheSameKey(t *testing.T) {
	spec := expect.FromYAML[*trainer.TrainingRuntimeSpec](t, testRuntime)
	pod := &spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
	pod.Containers[0].Ports = []corev1.ContainerPort{
		{ContainerPort: 53, Protocol: corev1.ProtocolTCP}, {ContainerPort: 53, Protocol: corev1.ProtocolUDP}, {ContainerPort: 80},
	}
	pod.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
		{TopologyKey: "zone", WhenUnsatisfiable: corev1.DoNotSchedule}, {TopologyKey: "zone", WhenUnsatisfiable: corev1.ScheduleAnyway},
	}
	js := &jobsetapi.JobSet{Spec: *spec.Template.Spec.DeepCopy()}
	fields := expect.Must(provenance.Explain(provenance.Input{Runtime: spec, Job: &trainjob.TrainJob{}}, js))(t)
	got := map[string]string{}
	for _, f := range fields {
		expect.That(t, f.Kind == provenance.Runtime, "%s comes from %s", f.Path, f.Source)
		if strings.Contains(f.Path, "ports[") || strings.HasSuffix(f.Path, "whenUnsatisfiable") {
			got[strings.TrimPrefix(f.Path, "spec.template.spec.")] = string(f.Value)
		}
	}
	want := map[string]string{
		"containers[node].ports[53].protocol":                 `"TCP"`,
		"containers[node].ports[53#2].protocol":               `"UDP"`,
		"containers[node].ports[80]":                          `{"containerPort":80}`,
		"topologySpreadConstraints[zone].whenUnsatisfiable":   `"DoNotSchedule"`,
		"topologySpreadConstraints[zone#2].whenUnsatisfiable": `"ScheduleAnyway"`,
	}
	expect.Same(t, "Unexpected fields", want, got)
}

// A variable without a value is a field of its own, until a patch gives it one.
func TestExplainVariableThatPatchAndTrainJobSet(t *testing.T) {
	spec := expect.FromYAML[*trainer.TrainingRuntimeSpec](t, testRuntime)
	spec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "B"}}
	job := expect.FromYAML[*trainjob.TrainJob](t, `{spec: {trainer: {env: [{name: B}]}, podTemplateOverrides: [
  {targetJobs: [{name: node}], spec: {containers: [{name: node, env: [{name: B, value: patched}]}]}}]}}`)
	js := &jobsetapi.JobSet{Spec: *spec.Template.Spec.DeepCopy()} // The TrainJob's variable is the runtime's.
	fields := expect.Must(provenance.Explain(provenance.Input{Runtime: spec, Job: job}, js))(t)
	at := slices.IndexFunc(fields, func(f provenance.Field) bool { return strings.HasSuffix(f.Path, "env[B]") })
	expect.That(t, at >= 0 && fields[at].Kind == provenance.TrainJob && len(fields[at].Overrode) == 0,
		"The TrainJob sets it, and without it the value would be the patch's, a field of another name: %+v", fields)
}

func TestSourceString(t *testing.T) {
	for want, source := range map[string]provenance.Source{
		"runtime": {Kind: provenance.Runtime}, "TrainJob": {Kind: provenance.TrainJob}, "Trainer": {Kind: provenance.Trainer},
		"example.com/a": {Kind: provenance.Patch, Manager: "example.com/a"}, "podTemplateOverrides[3]": {Kind: provenance.Patch, Index: 3},
	} {
		expect.Same(t, "Unexpected text", want, source.String())
	}
}

// TestRemovedSources takes each source away in turn. Every field that it is said to have
// set must become what it is said to have overridden, or be gone.
func TestRemovedSources(t *testing.T) {
	w, s := newWorld(t), random.New(*seed)
	checked := 0
	for range 100 {
		data := expect.JSON(t, map[string]any{"runtime": s.Runtime(), "job": s.Job(random.Object{"runtimePatches": s.RuntimePatches(true)})})
		in := expect.FromYAML[*struct {
			Runtime trainer.TrainingRuntimeSpec
			Job     trainjob.TrainJob
		}](t, data)
		fields := w.explain(&in.Runtime, &in.Job)
		for _, r := range removal.All(provenance.Input{Runtime: &in.Runtime, Job: &in.Job}) {
			n, err := removal.Check(fields, r.Source, w.explain(r.Input.Runtime, r.Input.Job))
			if checked += n; err != nil {
				t.Fatalf("%v (-seed %d) in %s", err, *seed, data)
			}
		}
	}
	t.Logf("%d fields (-seed %d)", checked, *seed)
}
