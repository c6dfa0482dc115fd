// SPDX-License-Identifier: Apache-2.0

package submit

import (
	"cmp"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const ofTorch = "runtimeRef: {apiGroup: trainer.kubeflow.org, kind: ClusterTrainingRuntime, name: torch}"

func TestTrainJob(t *testing.T) {
	// patched is the spec of a TrainJob that patches the pod template of node.
	patched := func(template string) string {
		return ofTorch + "\nruntimePatches: [{manager: trainer.kubeflow.org/kubeflow-sdk, trainingRuntimeSpec: " +
			"{template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: " + template + "}}}]}}}}]"
	}
	// launched is a runtime of MPI.
	launched := expect.FromYAML[*trainer.TrainingRuntimeSpec](t, `{mlPolicy: {mpi: {runLauncherAsNode: true}}, template: {spec: {replicatedJobs: [
{name: node}, {name: launcher, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}}}]}}}`)
	type row struct {
		request        request
		runtime        *trainer.TrainingRuntimeSpec
		generation     trainjob.TrainerVersion
		metadata, spec string // metadata and spec are in YAML; there is always the namespace
	}
	expect.Rows(t, map[string]row{
		"the least":                  {request: request{runtime: "torch"}, metadata: "{generateName: torch-}", spec: "{" + ofTorch + "}"},
		"a runtime of the namespace": {request: request{name: "a", runtime: "trainingruntime/mine"}, metadata: "{name: a}", spec: "{runtimeRef: {apiGroup: trainer.kubeflow.org, kind: TrainingRuntime, name: mine}}"},
		"everything": {request: request{
			name: "a", runtime: "torch", nodes: 2, gpus: 1, resource: "nvidia.com/mig-1g.10gb", image: "i",
			command: []string{"run", "-x"}, args: []string{"a,b"}, env: []string{"A=b=c", "EMPTY="}, queue: "q", priority: "p",
			labels: []string{"team=a"}, annotations: []string{"note="},
		}, metadata: `{name: a, labels: {kueue.x-k8s.io/queue-name: q, kueue.x-k8s.io/priority-class: p, team: a}, annotations: {note: ""}}`,
			spec: ofTorch + "\ntrainer: {numNodes: 2, image: i, command: [run, -x], args: [\"a,b\"], env: [{name: A, value: b=c}, {name: EMPTY}], " +
				"resourcesPerNode: {limits: {nvidia.com/mig-1g.10gb: '1'}, requests: {nvidia.com/mig-1g.10gb: '1'}}}"},
		"a topology": {request: request{name: "a", runtime: "torch", topology: "required=cloud.provider.com/rack"}, metadata: "{name: a}",
			spec: patched("{metadata: {annotations: {kueue.x-k8s.io/podset-required-topology: cloud.provider.com/rack}}}")},
		"a topology goes into the patch that is given": {request: request{name: "a", runtime: "torch", topology: "preferred=rack", patch: patchOfNode}, metadata: "{name: a}",
			spec: patched(`{metadata: {annotations: {mine: "1", kueue.x-k8s.io/podset-preferred-topology: rack}}, spec: {nodeSelector: {a: b}}}`)},
		"a topology of MPI, whose launcher is a node": {request: request{name: "a", runtime: "torch", topology: "required=rack"}, runtime: launched, metadata: "{name: a}",
			spec: strings.Replace(patched(`{metadata: {annotations: {kueue.x-k8s.io/podset-group-name: nodes, kueue.x-k8s.io/podset-required-topology: rack, kueue.x-k8s.io/pod-index-offset: "-1"}}}`),
				"}]}}}}]", "}, {name: launcher, template: {spec: {template: {metadata: {annotations: {kueue.x-k8s.io/podset-group-name: nodes, kueue.x-k8s.io/podset-required-topology: rack}}}}}}]}}}}]", 1)},
		"for Trainer 2.1 patches become overrides": {request: request{name: "a", runtime: "torch", patch: patchOfNode}, generation: trainjob.Trainer21, metadata: "{name: a}",
			spec: ofTorch + "\npodTemplateOverrides: [{targetJobs: [{name: node}], metadata: {annotations: {mine: '1'}}, spec: {nodeSelector: {a: b}}}]"},
	}, func(t *testing.T, tc row) {
		tc.request.namespace = "ns"
		job := expect.Must(tc.request.trainJob(false, tc.runtime))(t)
		got := expect.Must(manifest(job, cmp.Or(tc.generation, trainjob.Trainer23), nil, io.Discard))(t)
		metadata := expect.FromYAML[object](t, tc.metadata)
		metadata["namespace"] = "ns"
		want := object{"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": expect.FromYAML[object](t, tc.spec)}
		expect.Same(t, "Unexpected TrainJob", text(t, want), text(t, got.Object))
	})
}

func TestOlderTrainersTakeResourcesAway(t *testing.T) {
	spec := expect.FromYAML[*trainer.TrainingRuntimeSpec](t, `{template: {spec: {replicatedJobs: [
{name: aside, template: {spec: {template: {spec: {containers: [{name: node, resources: {requests: {example.com/nic: "1"}}}]}}}}},
{name: node, template: {metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}, spec: {template: {spec: {containers: [
  {name: node, resources: {requests: {cpu: "4"}, limits: {nvidia.com/gpu: "8", memory: 8Gi}}}, {name: beside, resources: {requests: {ephemeral-storage: 1Gi}}}]}}}}}]}}}`)
	type row struct {
		gpus       int64
		generation trainjob.TrainerVersion
		spec       *trainer.TrainingRuntimeSpec
		want       string
	}
	expect.Rows(t, map[string]row{
		"2.1": {gpus: 1, generation: trainjob.Trainer21, spec: spec, want: "warning: Trainer 2.1 puts --gpus-per-node in the place of all resources of runtime torch, so that pods ask for no cpu, memory: " +
			"add them to spec.trainer.resourcesPerNode of what --dry-run=server -o yaml prints, and create that\n"},
		"2.2": {gpus: 1, generation: trainjob.Trainer22, spec: spec, want: "warning: Trainer 2.2 puts --gpus-per-node in the place of all resources of runtime torch, so that pods ask for no cpu, memory: " +
			"add them to spec.trainer.resourcesPerNode of what --dry-run=server -o yaml prints, and create that\n"},
		"2.3 adds them":                  {gpus: 1, generation: trainjob.Trainer23, spec: spec},
		"no GPUs are asked for":          {generation: trainjob.Trainer22, spec: spec},
		"the runtime may not be seen":    {gpus: 1, generation: trainjob.Trainer22},
		"the runtime asks for no others": {gpus: 1, generation: trainjob.Trainer22, spec: &trainer.TrainingRuntimeSpec{}},
	}, func(t *testing.T, tc row) {
		r := request{name: "a", namespace: "ns", runtime: "torch", image: "i", gpus: tc.gpus, resource: "nvidia.com/gpu"}
		var notes strings.Builder
		expect.Must(manifest(expect.Must(r.trainJob(false, nil))(t), tc.generation, tc.spec, &notes))(t)
		expect.Same(t, "Unexpected notes", tc.want, notes.String())
	})
}

const patchOfNode = `{trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {metadata: {annotations: {mine: "1"}}, spec: {nodeSelector: {a: b}}}}}}]}}}}`

type object = map[string]any

func text(t *testing.T, value any) string {
	t.Helper()
	return string(expect.Must(yaml.Marshal(value))(t))
}

func TestRuntimePatchFromAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "patch.yaml")
	expect.NoError(t, os.WriteFile(path, []byte(patchOfNode), 0o600))
	r := request{patch: path}
	got := expect.Must(r.givenPatch())(t)
	expect.Same(t, "Unexpected patch", expect.FromYAML[object](t, patchOfNode), got)
}

func TestRefusals(t *testing.T) {
	metadata := `{trainingRuntimeSpec: {template: {metadata: {labels: {a: b}}, spec: {replicatedJobs: [{name: node, template: {metadata: {labels: {a: b}}}}]}}}}`
	type row struct {
		request    request
		builtin    bool
		generation trainjob.TrainerVersion
		says       string
		code       int // 1 unless it says another
	}
	expect.Rows(t, map[string]row{
		"a kind of runtime that there is not":     {request: request{runtime: "pod/a"}, says: "the kind is clustertrainingruntime or trainingruntime"},
		"fewer than no nodes":                     {request: request{nodes: -1}, says: "--nodes and --gpus-per-node are 1 or more"},
		"a variable without a value":              {request: request{env: []string{"A"}}, says: "--env A: write NAME=VALUE"},
		"a variable with a space in its name":     {request: request{env: []string{"MY VAR=1"}}, says: `--env MY VAR=1: "MY VAR" is no name of a variable`},
		"a label without a value":                 {request: request{labels: []string{"a"}}, says: "--label a: write KEY=VALUE"},
		"an annotation without a key":             {request: request{annotations: []string{"=a"}}, says: "--annotation =a: write KEY=VALUE"},
		"two queues":                              {request: request{queue: "a", labels: []string{"kueue.x-k8s.io/queue-name=b"}}, says: "--queue and --label"},
		"half a topology":                         {request: request{topology: "rack"}, says: "write required=LEVEL or preferred=LEVEL"},
		"a topology that the patch has":           {request: request{topology: "required=a", patch: strings.Replace(patchOfNode, "mine", "kueue.x-k8s.io/podset-required-topology", 1)}, says: "leave one of them out"},
		"a patch in no file":                      {request: request{patch: "no-such-file"}, says: "--runtime-patch: open no-such-file"},
		"a patch in no file of Windows":           {request: request{patch: `C:\no-such-file`}, says: `--runtime-patch: open C:\no-such-file`},
		"a patch of one line":                     {request: request{patch: "trainingRuntimeSpec: []"}, says: "spec.runtimePatches[0]", code: exit.Findings},
		"a patch with a manager":                  {request: request{patch: "{manager: a.b/c}"}, says: "it has manager"},
		"a patch of nothing":                      {request: request{patch: "{}"}, says: "what follows a manager in spec.runtimePatches"},
		"a command for a runtime with its own":    {request: request{command: []string{"x"}}, builtin: true, says: "runtime torch brings a trainer"},
		"a name that the API server refuses":      {request: request{name: "A"}, says: "metadata.name", code: exit.Findings},
		"what Trainer 2.1 cannot express":         {request: request{patch: metadata}, generation: trainjob.Trainer21, says: "for Trainer 2.1, which the cluster has: spec.runtimePatches[0]", code: exit.Findings},
		"arguments for a runtime that brings its": {request: request{args: []string{"x"}}, builtin: true, says: "runtime torch brings a trainer"},
		"a queue that is no name":                 {request: request{queue: "Q_UEUE"}, says: "metadata.labels[kueue.x-k8s.io/queue-name]", code: exit.Findings},
		"a label that is none":                    {request: request{labels: []string{"a=b c"}}, says: "metadata.labels[a]", code: exit.Findings},
		"GPUs of no name":                         {request: request{gpus: 2}, says: "spec.trainer.resourcesPerNode.limits[]", code: exit.Findings},
		"annotations that are none":               {request: request{topology: "required=a", patch: strings.Replace(patchOfNode, `{mine: "1"}`, "5", 1)}, says: "not as in the API where --topology adds to it"},
	}, func(t *testing.T, tc row) {
		tc.request.runtime = cmp.Or(tc.request.runtime, "torch")
		job, err := tc.request.trainJob(tc.builtin, nil)
		if err == nil {
			_, err = manifest(job, max(tc.generation, trainjob.Trainer21), nil, io.Discard)
		}
		expect.Says(t, err, tc.says)
		expect.Same(t, "Unexpected exit code of error "+expect.Text(err), max(tc.code, exit.Failed), exit.Code(err))
	})
}

func TestFlagsThatSayNothing(t *testing.T) {
	for says, args := range map[string][]string{
		"--nodes=0: no pod would run":                           {"--nodes", "0"},
		"--gpus-per-node=0: a runtime's GPUs cannot":            {"--gpus-per-node", "0"},
		"--queue is empty: name one, or leave the flag out":     {"--queue", ""},
		"--image is empty: name one, or leave the flag out":     {"--image="},
		"--runtime is empty: name one":                          {"--runtime", ""},
		"--nodes and --gpus-per-node are 1 or more":             {"--nodes", "-1"},
		"--forecast and --dry-run=client: the cluster is not":   {"--forecast"},
		"--nodes=0: no pod would run; name 1 or more, or leave": {"--nodes", "0", "--gpus-per-node", "0"},
		// Nothing is created that could not be printed.
		"unable to match a printer": {"--dry-run=none", "-o", "wide"},
		"unterminated array":        {"--dry-run=none", "-o", "jsonpath={.spec[}"},
	} {
		_, err := dryRun(t, args...)
		expect.Says(t, err, says)
	}
}

func dryRun(t *testing.T, args ...string) (string, error) {
	t.Helper()
	flags := cluster.Flags{ConfigFlags: genericclioptions.NewConfigFlags(true)}
	flags.APIServer = ptr.To("http://127.0.0.1:1")
	return kit.Run(t, NewCommand, flags, "", append([]string{"a", "--runtime", "torch", "--dry-run", "client"}, args...)...)
}

func TestDryRunOfAWrongPatch(t *testing.T) {
	out, err := dryRun(t, "-o", "yaml", "--runtime-patch", strings.Replace(patchOfNode, `{mine: "1"}`, "5", 1))
	expect.Same(t, "Unexpected exit code of error "+expect.Text(err), exit.Findings, exit.Code(err))
	expect.Same(t, "Unexpected output", "", out)
}
