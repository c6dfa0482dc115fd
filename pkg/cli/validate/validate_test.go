// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/releases"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const runtime = `apiVersion: trainer.kubeflow.org/v1alpha1
kind: ClusterTrainingRuntime
metadata: {name: torch}
spec:
  mlPolicy: {numNodes: 1, torch: {}}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec:
            template:
              spec:
                containers:
                - {name: node, image: torch}
`

// job begins a TrainJob, and spec is what follows line 9.
func job(spec string) string {
	return `# A TrainJob.
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: job
  namespace: ns
  labels: {kueue.x-k8s.io/queue-name: q}
spec:
  runtimeRef: {name: torch}
` + spec
}

const ofNode = "  runtimePatches:\n  - manager: example.com/me\n    trainingRuntimeSpec: {template: {spec: {replicatedJobs: [\n"

// How a report of a TrainJob and its runtime ends.
const (
	inOrder   = "1 TrainJob and 1 runtime for Trainer 2.3: 0 errors, 0 warnings\n"
	oneError  = "\n1 TrainJob and 1 runtime for Trainer 2.3: 1 error, 0 warnings\n"
	twoErrors = "\n1 TrainJob and 1 runtime for Trainer 2.3: 2 errors, 0 warnings\n"
)

func TestCommand(t *testing.T) {
	type row struct {
		stdin string
		args  []string
		want  string
		code  int // that which goes with the sum in the report, where nothing else is said
	}
	expect.Rows(t, map[string]row{
		"in order":         {stdin: job("") + "---\n" + runtime, want: inOrder},
		"other kinds only": {stdin: "kind: Other\n", want: "0 TrainJobs for Trainer 2.3: 0 errors, 0 warnings\n"},
		"a runtime only":   {stdin: runtime, want: "1 runtime for Trainer 2.3: 0 errors, 0 warnings\n"},
		"what is wrong with a runtime": {stdin: strings.Replace(strings.Replace(runtime, "- {name: node, image: torch}", "- {name: main, image: torch, imagePull: Never, env: [{name: A}, {name: A}]}", 1), "name: torch}", "name: Torch}", 1),
			want: `-:3: error: metadata.name: Invalid value: "Torch": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
-:15: error: spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers: Invalid value: must contain the required container for the ancestor: trainer
-:16: error: spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].env[1]: Duplicate value: {"name":"A"}
-:16: error: spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].imagePull: Forbidden: Trainer 2.3 has no such field: remove it, or correct its name` + "\n1 runtime for Trainer 2.3: 4 errors, 0 warnings\n"},
		"a runtime that Trainer's webhook is not asked about": {stdin: strings.NewReplacer("{name: node, image: torch}", "{name: main, image: torch}", "{name: torch}", "{name: torch, labels: {trainer.kubeflow.org/webhook-validation: disabled}}").Replace(runtime),
			want: "1 runtime for Trainer 2.3: 0 errors, 0 warnings\n"},
		"and one that it was asked about before 2.3": {args: []string{"--trainer", "2.2"},
			stdin: strings.NewReplacer("{name: node, image: torch}", "{name: main, image: torch}", "{name: torch}", "{name: torch, labels: {trainer.kubeflow.org/webhook-validation: disabled}}").Replace(runtime),
			want:  `-:15: error: spec.template.spec.replicatedJobs[0].template.spec.template.spec.containers: Invalid value: must contain the required container for the ancestor: trainer` + "\n1 runtime for Trainer 2.2: 1 error, 0 warnings\n"},
		"a job of a runtime that waits for itself": {stdin: job("") + "---\n" + strings.Replace(runtime, "      - name: node\n", "      - {name: a, template: {spec: {template: {spec: {containers: [{name: a, image: i}]}}}}}\n      - name: node\n        dependsOn: [{name: node, status: Ready}]\n", 1),
			want: `-:9: error: spec.runtimeRef: Invalid value: "torch": the JobSet would wait for ever: spec.replicatedJobs[1].dependsOn[0].name: Invalid value: "node": the replicated job depends on itself, and JobSet never makes its Jobs: remove it, or name one that stands before it; change ClusterTrainingRuntime torch, or use another runtime` + oneError},
		"runtimes below the files are told once": {args: []string{"-f", "RUNTIME", "--runtimes", "RUNTIME"}, stdin: job(""), want: inOrder},
		"a runtime that Trainer ships": {stdin: strings.Replace(job(""), "{name: torch}", "{name: torch-distributed}", 1),
			want: `-:9: note: spec.runtimeRef.name: no file has runtime torch-distributed: the one that Trainer 2.3 ships is taken` + "\n1 TrainJob for Trainer 2.3: 0 errors, 0 warnings\n"},
		"a runtime of a file in place of the one that Trainer ships": {stdin: strings.Replace(job("  initializer: {dataset: {storageUri: hf://a/b}}\n"), "{name: torch}", "{name: torchtune-qwen2.5-1.5b}", 1) +
			"---\n" + strings.Replace(runtime, "name: torch}", "name: torchtune-qwen2.5-1.5b}", 1),
			want: `-:9: error: spec.runtimeRef: Invalid value: must have dataset-initializer job when trainJob is configured with input datasetConfig: use a runtime that has it, or remove what asks for it` + oneError},
		"more nodes than a Job may have pods": {stdin: job("  trainer: {numNodes: 100001}\n") + "---\n" + runtime,
			want: `-:10: error: spec.trainer.numNodes: Invalid value: 100001: it has 100001 pods, and a TrainJob may have 100000: set spec.trainer.numNodes, or use another runtime` + oneError},
		"what no pod comes of": {stdin: runtime + "---\n" + strings.Replace(job(`  trainer:
    image: ""
    env:
    - {name: A, valueFrom: {fieldRef: {fieldPath: metadata.foo}}}
  runtimePatches:
  - manager: example.com/me
    trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: node, template: {spec: {template: {spec: {
      nodeSelector: {a: b c},
      containers: [{name: node,
        volumeMounts: [{name: data, mountPath: /data}]}]}}}}}]}}}
`), "  labels: {kueue.x-k8s.io/queue-name: q}\n", "  labels: {kueue.x-k8s.io/max-exec-time-seconds: abc}\n", 1),
			want: `-:24: error: metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: Invalid value: "abc": strconv.Atoi: parsing "abc": invalid syntax
-:28: error: spec.trainer.image: Invalid value: the Job of replicated job node would be refused for good: spec.template.spec.containers[node].image: Required value
-:30: error: spec.trainer.env[0].valueFrom.fieldRef.fieldPath: Invalid value: the Job of replicated job node would be refused for good: spec.template.spec.containers[node].env[A].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.foo": error converting fieldPath: field label not supported: metadata.foo
-:34: error: spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec.nodeSelector: Invalid value: the Job of replicated job node would be refused for good: spec.template.spec.nodeSelector: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')
-:36: error: spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec.containers[0].volumeMounts[0].name: Invalid value: the Job of replicated job node would be refused for good: spec.template.spec.containers[node].volumeMounts[/data].name: Not found: "data"` + "\n1 TrainJob and 1 runtime for Trainer 2.3: 5 errors, 0 warnings\n"},
		"a label of a patch that is none, beside labels of the runtime": {stdin: job(ofNode+`    {name: node, template: {spec: {template: {
      metadata: {labels: {a: b c}}}}}}]}}}
`) + "---\n" + strings.Replace(runtime, "            template:\n              spec:", "            template:\n              metadata: {labels: {team: a}}\n              spec:", 1),
			want: `-:14: error: spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.metadata.labels[a]: Invalid value: the Job of replicated job node would be refused for good: spec.template.metadata.labels[a]: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')` + oneError},
		"a label of the runtime that is none, beside labels of a patch": {stdin: job(ofNode+`    {name: node, template: {spec: {template: {
      metadata: {labels: {a: b}}}}}}]}}}
`) + "---\n" + strings.Replace(runtime, "            template:\n              spec:", "            template:\n              metadata: {labels: {team: b c}}\n              spec:", 1),
			want: `-:9: error: spec.runtimeRef: Invalid value: "torch": the Job of replicated job node would be refused for good: spec.template.metadata.labels[team]: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?'); change ClusterTrainingRuntime torch, or use another runtime` + oneError},
		"a name that leaves JobSet no room, without a queue": {stdin: runtime + "---\n" + strings.Replace(strings.Replace(job(""), "  labels: {kueue.x-k8s.io/queue-name: q}\n", "", 1), "name: job", "name: a"+strings.Repeat("b", 55), 1),
			want: `-:22: error: metadata.name: Invalid value: "abbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb": JobSet makes pods with names as long as NAME-node-0-0-abcde, which may have 63 characters: choose a name of at most 48 characters` + oneError},
		"no room for the manager's entry": {stdin: job("  runtimePatches: ["+kit.Numbered(16, "{manager: example.com/m%d}")+"]\n") + "---\n" + runtime,
			want: "-:10: error: spec.runtimePatches: Too many: 16: must have at most 15 items in a queue, where one of 16 is the manager's" + oneError},
		"the same without a queue": {stdin: strings.Replace(job("  runtimePatches: ["+kit.Numbered(16, "{manager: example.com/m%d}")+"]\n"), "  labels: {kueue.x-k8s.io/queue-name: q}\n", "", 1) + "---\n" + runtime,
			want: inOrder},
		"what JobSet refuses of a runtime": {stdin: job("") + "---\n" + strings.Replace(runtime, "    spec:\n      replicatedJobs:", "    spec:\n      successPolicy: {operator: All, targetReplicatedJobs: [other]}\n      network: {subdomain: Not_One}\n      replicatedJobs:", 1),
			want: `-:9: error: spec.runtimeRef: Invalid value: "torch": the JobSet would be refused for good: spec.network.subdomain: Invalid value: "Not_One": a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?'); change ClusterTrainingRuntime torch, or use another runtime
-:9: error: spec.runtimeRef: Invalid value: "torch": the JobSet would be refused for good: spec.successPolicy.targetReplicatedJobs[0]: Unsupported value: "other": supported values: "node"; change ClusterTrainingRuntime torch, or use another runtime` + twoErrors},
		"what only the schema knows": {stdin: runtime + "---\n" + job("  trainer: {env: [{name: A, value: a}, {name: A, value: b}]}\n"),
			want: `-:27: error: spec.trainer.env[1].name: Duplicate value: "A"` + oneError},
		"what a plugin of Trainer's adds itself": {stdin: job("  trainer: {numNodes: 2}\n") + "---\n" + strings.Replace(runtime, "torch: {}", "flux: {numProcPerNode: 1}", 1),
			want: inOrder},
		"a TrainJob on which a plugin of Trainer's panics": {stdin: job("") + "---\n" + strings.Replace(runtime, "torch: {}", "flux: {numProcPerNode: 1}", 1),
			want: `-:9: error: spec.runtimeRef: Invalid value: "torch": plugin flux: runtime error: invalid memory address or nil pointer dereference: Trainer makes nothing of this TrainJob, because its plugin panics; set spec.trainer.numNodes, or use another runtime` + oneError},
		"a runtime without what its schema defaults": {stdin: job("") + "---\n" + strings.NewReplacer("torch: {}", "mpi: {runLauncherAsNode: true}", "- name: node\n        template:\n          metadata",
			"- {name: node, template: {spec: {template: {spec: {containers: [{name: node, image: mpi}]}}}}}\n      - name: launcher\n        template:\n          metadata").Replace(runtime),
			want: inOrder},
		"labels that are none": {stdin: strings.Replace(job(""), "{kueue.x-k8s.io/queue-name: q}", "{kueue.x-k8s.io/max-exec-time-seconds: 60, spot: true, team: 1}", 1) + "---\n" + runtime,
			want: `-:7: error: metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: Invalid value: it must be a string and is a number: write it in quotes
-:7: error: metadata.labels[spot]: Invalid value: it must be a string and is a bool: write it in quotes
-:7: error: metadata.labels[team]: Invalid value: it must be a string and is a number: write it in quotes` + "\n1 TrainJob and 1 runtime for Trainer 2.3: 3 errors, 0 warnings\n"},
		"a time limit that Kueue takes for none": {stdin: strings.Replace(job(""), "{kueue.x-k8s.io/queue-name: q}", `{kueue.x-k8s.io/max-exec-time-seconds: "2147483648"}`, 1) + "---\n" + runtime,
			want: `-:7: error: metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: Invalid value: "2147483648": Kueue sets no limit above 2147483647 seconds: write less, or leave the label out` + oneError},
		"the longest time limit": {stdin: strings.Replace(job(""), "{kueue.x-k8s.io/queue-name: q}", `{kueue.x-k8s.io/max-exec-time-seconds: "2147483647"}`, 1) + "---\n" + runtime,
			want: inOrder},
		"labels of a runtime that are none": {stdin: strings.Replace(runtime, "{name: torch}", "{name: torch, labels: {team: 1}}", 1),
			want: "-:3: error: metadata.labels[team]: Invalid value: it must be a string and is a number: write it in quotes\n1 runtime for Trainer 2.3: 1 error, 0 warnings\n"},
		"a request of a device whose limit is the runtime's": {stdin: job("  trainer: {resourcesPerNode: {requests: {nvidia.com/gpu: 8}}}\n") + "---\n" + strings.Replace(runtime, "image: torch}", "image: torch, resources: {limits: {nvidia.com/gpu: 8}}}", 1),
			want: inOrder},
		"a request of a device without any limit": {stdin: job("  trainer: {resourcesPerNode: {requests: {nvidia.com/gpu: 8}}}\n") + "---\n" + runtime,
			want: `-:10: error: spec.trainer.resourcesPerNode.requests[nvidia.com/gpu]: Invalid value: "8": it needs a limit of the same amount: Kubernetes takes no pod without; set the limit, the request may be left out` + oneError},
		"a request of a device before runtimes had limits": {args: []string{"--trainer", "2.2"},
			stdin: job("  trainer: {resourcesPerNode: {requests: {nvidia.com/gpu: 8}}}\n") + "---\n" + strings.Replace(runtime, "image: torch}", "image: torch, resources: {limits: {nvidia.com/gpu: 8}}}", 1),
			want:  `-:10: error: spec.trainer.resourcesPerNode.requests[nvidia.com/gpu]: Invalid value: "8": it needs a limit of the same amount: Kubernetes takes no pod without; set the limit, the request may be left out; Trainer accepts it and makes a JobSet that cannot run` + "\n1 TrainJob and 1 runtime for Trainer 2.2: 1 error, 0 warnings\n"},
		"a variable of MPI's, which Trainer 2.2 does not look at": {args: []string{"--trainer", "2.2"},
			stdin: job("  trainer: {env: [{name: OMPI_MCA_plm_rsh_args, value: a}]}\n") + "---\n" + strings.Replace(runtime, "torch: {}", "mpi: {}", 1),
			want:  `-:10: warning: spec.trainer.env: Invalid value: must not have reserved envs, invalid envs configured: [OMPI_MCA_plm_rsh_args]: remove them, Trainer sets them; Trainer 2.3 refuses it` + "\n1 TrainJob and 1 runtime for Trainer 2.2: 0 errors, 1 warning\n"},
		"nothing at all": {want: "0 TrainJobs for Trainer 2.3: 0 errors, 0 warnings\n"},
		"a kind that Trainer does not have": {stdin: strings.Replace(job(""), "TrainJob", "Trainjob", 2),
			want: `-:3: warning: kind: Unsupported value: "Trainjob": supported values: "TrainJob", "ClusterTrainingRuntime", "TrainingRuntime"` + "\n0 TrainJobs for Trainer 2.3: 0 errors, 1 warning\n"},
		"one in a list with a TrainJob": {stdin: "kind: List\napiVersion: v1\nitems:\n- {apiVersion: trainer.kubeflow.org/v1alpha1, kind: Runtime}\n" +
			"- {apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, metadata: {name: a}, spec: {runtimeRef: {name: torch}}}\n---\n" + runtime,
			want: `-:4: warning: items[0].kind: Unsupported value: "Runtime": supported values: "TrainJob", "ClusterTrainingRuntime", "TrainingRuntime"` + "\n1 TrainJob and 1 runtime for Trainer 2.3: 0 errors, 1 warning\n"},
		"a kind that is no runtime": {stdin: strings.Replace(job(""), "{name: torch}", "{kind: Foo, name: torch}", 1),
			want: `-:9: error: spec.runtimeRef.kind: Unsupported value: "Foo": supported values: "ClusterTrainingRuntime", "TrainingRuntime"` + "\n1 TrainJob for Trainer 2.3: 1 error, 0 warnings\n"},
		"a runtime of another API group": {stdin: strings.Replace(job(""), "{name: torch}", "{apiGroup: x.y, name: torch}", 1) + "---\n" + runtime,
			want: `-:9: error: spec.runtimeRef.apiGroup: Unsupported value: "x.y": supported values: "trainer.kubeflow.org"` + oneError},
		"everything that is wrong at once, by its lines": {stdin: runtime + "---\n" + job(`  replicas: 3
  trainer:
    numProcPerNode: auto
    numNodes: "2"
`+ofNode+`    {name: trainer},
    {name: node, template: {spec: {template: {spec: {containers: [
      {name: node, image: x}]}}}}}]}}}
  - manager: me
`),
			want: `-:27: error: spec.replicas: Forbidden: Trainer 2.3 has no such field: remove it, or correct its name
-:29: error: spec.trainer.numProcPerNode: Invalid value: it must be a whole number and is a string
-:30: error: spec.trainer.numNodes: Invalid value: it must be a whole number and is a string
-:34: error: spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].name: Invalid value: "trainer": the runtime has no replicated job of this name; it has: node; Trainer accepts it and makes a JobSet that cannot run
-:36: error: spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[1].template.spec.template.spec.containers[0].image: Forbidden: Trainer does not patch it: use spec.trainer.image
-:37: error: spec.runtimePatches[1].manager: Invalid value: "me": must be a domain-prefixed path (such as "acme.io/foo")` + "\n1 TrainJob and 1 runtime for Trainer 2.3: 6 errors, 0 warnings\n"},
		"a wrong amount hides nothing else": {stdin: runtime + "---\n" + job(`  trainer:
    resourcesPerNode:
      limits:
        nvidia.com/gpu: x
    env: [{name: A=B}]
  runtimePatches:
  - manager: me
`),
			want: `-:30: error: spec.trainer.resourcesPerNode.limits[nvidia.com/gpu]: Invalid value: it must be an amount, such as 8 or 16Gi
-:31: error: spec.trainer.env[0].name: Invalid value: "A=B": a valid environment variable name must consist only of printable ASCII characters other than '='; Trainer accepts it and makes a JobSet that cannot run
-:33: error: spec.runtimePatches[0].manager: Invalid value: "me": must be a domain-prefixed path (such as "acme.io/foo")` + "\n1 TrainJob and 1 runtime for Trainer 2.3: 3 errors, 0 warnings\n"},
		"what Trainer's library refuses": {stdin: job("  initializer: {dataset: {storageUri: hf://a/b}}\n  trainer:\n    env: [{name: PET_NNODES, value: '3'}]\n") + "---\n" + runtime,
			want: `-:9: error: spec.runtimeRef: Invalid value: must have dataset-initializer job when trainJob is configured with input datasetConfig: use a runtime that has it, or remove what asks for it
-:12: error: spec.trainer.env: Invalid value: must not have reserved envs, invalid envs configured: [PET_NNODES]: remove them, Trainer sets them` + twoErrors},
		"what Kueue cannot take": {stdin: job(ofNode+"    {name: extra}]}}}\n") + "---\n" + strings.Replace(job(ofNode+`    {name: node, template: {spec: {template: {metadata: {annotations: {
      kueue.x-k8s.io/podset-required-topology: rack one}}}}}}]}}}
`), "name: q", "name: not_a_name", 1) + "---\n" + runtime,
			want: `-:13: error: spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].name: Invalid value: "extra": the runtime has no replicated job of this name; it has: node; Trainer accepts it and makes a JobSet that cannot run
-:16: error: replicatedJobs[node].annotations[kueue.x-k8s.io/podset-required-topology]: Invalid value: "rack one": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]'); change the pod annotations of this replicated job in spec.runtimePatches or in the runtime
-:21: error: metadata.labels[kueue.x-k8s.io/queue-name]: Invalid value: "not_a_name": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')` + "\n2 TrainJobs and 1 runtime for Trainer 2.3: 3 errors, 0 warnings\n"},
		"the rules of another release": {args: []string{"--trainer", "2.1"},
			stdin: job("  trainer: {numProcPerNode: auto}\n  podTemplateOverrides:\n  - targetJobs: [{name: extra}]\n    spec: {priorityClassName: x}\n") + "---\n" + runtime,
			want: `-:12: error: spec.podTemplateOverrides[0].targetJobs[0].name: Invalid value: "extra": the runtime has no replicated job of this name; it has: node
-:13: error: spec.podTemplateOverrides[0].spec.priorityClassName: Forbidden: Trainer does not patch it: remove it` + "\n1 TrainJob and 1 runtime for Trainer 2.1: 2 errors, 0 warnings\n"},
		"what an older release may let pass is a warning there": {args: []string{"--trainer", "2.1"},
			stdin: job("  trainer:\n    env: [{name: PET_NNODES, value: '3'}]\n") + "---\n" + runtime,
			want:  `-:11: warning: spec.trainer.env: Invalid value: must not have reserved envs, invalid envs configured: [PET_NNODES]: remove them, Trainer sets them; Trainer 2.3 refuses it` + "\n1 TrainJob and 1 runtime for Trainer 2.1: 0 errors, 1 warning\n"},
		"the same where numProcPerNode is set": {args: []string{"--trainer", "2.1"},
			stdin: job("  trainer:\n    numProcPerNode: auto\n    env: [{name: PET_NNODES, value: '3'}]\n") + "---\n" + runtime,
			want:  `-:12: error: spec.trainer.env: Invalid value: must not have reserved envs, invalid envs configured: [PET_NNODES]: remove them, Trainer sets them` + "\n1 TrainJob and 1 runtime for Trainer 2.1: 1 error, 0 warnings\n"},
		"a text in numProcPerNode with MPI": {args: []string{"--trainer", "2.1"},
			stdin: job("  trainer: {numProcPerNode: auto}\n") + "---\n" + strings.Replace(runtime, "torch: {}", "mpi: {}", 1),
			want:  `-:10: error: spec.trainer.numProcPerNode: Invalid value: "auto": Trainer 2.1 takes a number, without quotes, and auto, cpu or gpu for torch: set one, or leave the field out` + "\n1 TrainJob and 1 runtime for Trainer 2.1: 1 error, 0 warnings\n"},
		"a number in quotes in numProcPerNode": {args: []string{"--trainer", "2.1"},
			stdin: job("  trainer: {numProcPerNode: '2'}\n") + "---\n" + runtime,
			want:  `-:10: error: spec.trainer.numProcPerNode: Invalid value: "2": Trainer 2.1 takes a number, without quotes, and auto, cpu or gpu for torch: set one, or leave the field out` + "\n1 TrainJob and 1 runtime for Trainer 2.1: 1 error, 0 warnings\n"},
		"arguments that no release before 2.3 looks at": {args: []string{"--trainer", "2.2"},
			stdin: strings.Replace(job("  trainer: {command: [tune, run], args: [output_dir=/x]}\n"), "{name: torch}", "{name: torchtune-llama3.2-1b}", 1),
			want: `-:9: note: spec.runtimeRef.name: no file has runtime torchtune-llama3.2-1b: the one that Trainer 2.2 ships is taken
-:10: warning: spec.trainer.args[0]: Invalid value: must not set immutable config "output_dir" in trainer args; it is managed by the runtime; Trainer 2.3 refuses it` + "\n1 TrainJob for Trainer 2.2: 0 errors, 1 warning\n"},
		"nodes of torchtune, at which Trainer 2.1 does not look": {args: []string{"--trainer", "2.1"},
			stdin: strings.Replace(job("  trainer: {command: [tune, run], numNodes: 2}\n"), "{name: torch}", "{name: torchtune-llama3.2-1b}", 1),
			want: `-:9: note: spec.runtimeRef.name: no file has runtime torchtune-llama3.2-1b: the one that Trainer 2.1 ships is taken
-:10: warning: spec.trainer.numNodes: Invalid value: must be 1 for llama3_2/1B model; Trainer 2.3 refuses it` + "\n1 TrainJob for Trainer 2.1: 0 errors, 1 warning\n"},
		"less than no nodes": {stdin: runtime + "---\n" + job("  trainer: {numNodes: -1}\n"),
			want: `-:27: error: spec.trainer.numNodes: Invalid value: -1: it must be at least 1; leave it out for as many nodes as the runtime has; Trainer accepts it and makes a JobSet that cannot run` + oneError},
		"older fields": {stdin: job("  podTemplateOverrides: []\n") + "---\n" + runtime,
			want: `-:10: error: spec.podTemplateOverrides: Forbidden: it is of Trainer 2.1: kubectl trainjob migrate makes runtimePatches of it` + oneError},
		"a runtime that no file has": {stdin: job(ofNode + "    {name: extra}]}}}\n"),
			want: `-:9: warning: spec.runtimeRef.name: Invalid value: "torch": no file has this runtime, and Trainer 2.3 ships none of this name, so what depends on it is not checked: name a file that has it with --runtimes, or use --from-cluster` + "\n1 TrainJob for Trainer 2.3: 0 errors, 1 warning\n"},
		"a runtime in another file": {args: []string{"--runtimes", "RUNTIME"}, stdin: job(""), want: inOrder},
		"a key twice": {stdin: job("  suspend: true\n  suspend: true\n"),
			want: `-:11: error: key "suspend" already set in map` + "\n1 TrainJob for Trainer 2.3: 1 error, 0 warnings\n"},
		"the items of a list, for machines": {args: []string{"-o", "json", "--trainer", "2.2"},
			stdin: "apiVersion: v1\nkind: List\nitems:\n- apiVersion: trainer.kubeflow.org/v1alpha1\n  kind: TrainJob\n  metadata: {name: a, namespace: ns}\n  spec:\n    runtimeRef: {}\n",
			want: `{
  "trainer": "2.2",
  "trainJobs": 1,
  "runtimes": 0,
  "findings": [
    {
      "file": "-",
      "line": 8,
      "trainJob": "ns/a",
      "severity": "error",
      "field": "spec.runtimeRef.name",
      "reason": "FieldValueRequired",
      "message": "Required value: name a runtime"
    }
  ]
}
`,
			code: exit.Findings},
		"what cannot be read hides nothing else": {stdin: "a: b: c\n---\n" + job("  numNode: 1\n") + "---\n" + runtime,
			want: `-:1: error: mapping values are not allowed in this context
-:12: error: spec.numNode: Forbidden: Trainer 2.3 has no such field: remove it, or correct its name` + "\n2 TrainJobs and 1 runtime for Trainer 2.3: 2 errors, 0 warnings\n"},
		"an unknown release": {args: []string{"--trainer", "2.0"}, code: exit.Failed},
		"an unknown output":  {args: []string{"-o", "wide"}, code: exit.Failed},
	}, func(t *testing.T, tc row) {
		path := filepath.Join(t.TempDir(), "runtime.yaml")
		expect.NoError(t, os.WriteFile(path, []byte(runtime), 0o600))
		args := expect.Each(tc.args, func(arg string) string { return strings.Replace(arg, "RUNTIME", path, 1) })
		out, err := run(t, tc.stdin, append([]string{"-f", "-"}, args...)...)
		expect.Same(t, "Unexpected exit code of error "+expect.Text(err), cmp.Or(tc.code, codeOf(tc.want)), exit.Code(err))
		expect.Same(t, "Unexpected output", strings.Split(tc.want, "\n"), strings.Split(out, "\n"))
	})
}

// TestFromAClusterThatTellsNothing has what no right is needed for told all the same.
func TestFromAClusterThatTellsNothing(t *testing.T) {
	flags := cluster.Flags{ConfigFlags: genericclioptions.NewConfigFlags(true)}
	flags.APIServer = new(kit.Unreadable(t, map[string]any{}))
	type row struct {
		args  []string
		stdin string
		want  string
		says  string
		code  int
	}
	const unseen = `-:9: warning: spec.runtimeRef.name: Forbidden: you may not get ClusterTrainingRuntime torch of the cluster, so what depends on it is not checked: name a file that has it with --runtimes` + "\n"
	expect.Rows(t, map[string]row{
		"nor its release": {says: "you may not get CRD trainjobs.trainer.kubeflow.org, which tells the cluster's release: " +
			"name it with --trainer, or ask an admin for ClusterRole kueue-trainer-queues-viewer", code: exit.Unseen},
		"of a runtime": {args: []string{"--trainer", "2.3"}, stdin: job(""), code: exit.Warnings,
			want: unseen + "1 TrainJob for Trainer 2.3: 0 errors, 1 warning\n", says: "there are warnings"},
		"of a runtime, and of what is wrong beside it": {args: []string{"--trainer", "2.3"}, stdin: job("") + "---\n" + job("  numNode: 1\n"), code: exit.Findings,
			want: unseen + strings.Replace(unseen, ":9:", ":19:", 1) + "-:20: error: spec.numNode: Forbidden: Trainer 2.3 has no such field: remove it, or correct its name\n" +
				"2 TrainJobs for Trainer 2.3: 1 error, 2 warnings\n", says: "not every TrainJob is valid"},
	}, func(t *testing.T, tc row) {
		out, err := kit.Run(t, NewCommand, flags, tc.stdin, append([]string{"-f", "-", "--from-cluster"}, tc.args...)...)
		expect.Says(t, err, tc.says)
		expect.Same(t, "Unexpected exit code of error "+expect.Text(err), tc.code, exit.Code(err))
		expect.Same(t, "Unexpected output", strings.Split(tc.want, "\n"), strings.Split(out, "\n"))
	})
}

// codeOf is the exit code that goes with the sum at the end of a report.
func codeOf(report string) int {
	switch {
	case strings.Contains(report, "0 TrainJobs for"):
		return exit.Failed
	case strings.HasSuffix(report, " 0 errors, 0 warnings\n"):
		return 0
	case strings.Contains(report, " 0 errors, "):
		return exit.Warnings
	}
	return exit.Findings
}

func run(t *testing.T, stdin string, args ...string) (string, error) {
	t.Helper()
	return kit.Run(t, NewCommand, cluster.Flags{ConfigFlags: genericclioptions.NewConfigFlags(true)}, stdin, args...)
}

func TestEveryShippedRuntimeIsTaken(t *testing.T) {
	for _, release := range []trainjob.TrainerVersion{trainjob.Trainer21, trainjob.Trainer22, trainjob.Trainer23} {
		shipped := expect.Must(releases.Runtimes(release))(t)
		var jobs strings.Builder
		names := regexp.MustCompile(`(?m)^  name: (.+)$`).FindAllStringSubmatch(string(shipped), -1)
		for _, name := range names {
			jobs.WriteString(strings.Replace(job(""), "{name: torch}", "{name: "+name[1]+"}", 1) + "---\n")
		}
		out, err := run(t, jobs.String(), "-f", "-", "--trainer", release.String())
		expect.That(t, err == nil && strings.Count(out, ": note: ") == len(names) && len(names) >= 6, "Trainer %s: %v\n%s", release, err, out)
	}
}

var found = &report{Trainer: "2.3", TrainJobs: 2, Findings: []finding{
	{File: "a b/job.yaml", Line: 3, Severity: refused, Field: "spec.trainer", Reason: string(field.ErrorTypeRequired), Message: "set it"},
	{File: "a b/job.yaml", Line: 4, Severity: told, Reason: string(field.ErrorTypeInvalid), Message: "50%\nof it"},
	{File: "-", Line: 1, Severity: doubtful, Reason: unread, Message: "no YAML"},
	{File: "c,d:e.yaml", Line: 2, Severity: doubtful, Reason: unread, Message: "a: b, c"},
}}

func TestSARIF(t *testing.T) {
	var out strings.Builder
	expect.NoError(t, found.print(&out, sarifFormat))
	log := expect.Must(sarif.FromString(out.String()))(t)
	err := log.Validate()
	expect.That(t, err == nil, "The log is not as its schema has it: %v\n%s", err, &out)
	type result struct {
		Rule, Level, Text, URI string
		Line                   int
	}
	var got []result
	for _, r := range log.Runs[0].Results {
		place := r.Locations[0].PhysicalLocation
		rule := log.Runs[0].Tool.Driver.Rules[r.RuleIndex]
		expect.That(t, *rule.ID == *r.RuleID && *rule.ShortDescription.Text != "", "Rule %d of %s is %v", r.RuleIndex, *r.RuleID, rule)
		got = append(got, result{*r.RuleID, r.Level, *r.Message.Text, *place.ArtifactLocation.URI, *place.Region.StartLine})
	}
	want := []result{
		{"FieldValueRequired", "error", "spec.trainer: set it", "a%20b/job.yaml", 3},
		{"FieldValueInvalid", "note", "50%\nof it", "a%20b/job.yaml", 4},
		{"Unreadable", "warning", "no YAML", "stdin", 1},
		{"Unreadable", "warning", "a: b, c", "./c,d:e.yaml", 2},
	}
	expect.Same(t, "Unexpected results", want, got)
}

func TestEmptySARIF(t *testing.T) {
	var out strings.Builder
	expect.NoError(t, (&report{}).print(&out, sarifFormat))
	log := expect.Must(sarif.FromString(out.String()))(t)
	err := log.Validate()
	expect.That(t, err == nil && strings.Contains(out.String(), `"results": []`), "The log is not as code scanning wants it: %v\n%s", err, &out)
}

func TestGitHub(t *testing.T) {
	var out strings.Builder
	expect.NoError(t, found.print(&out, githubFormat))
	const want = `::error file=a b/job.yaml,line=3,title=kubectl trainjob validate::spec.trainer: set it
::notice file=a b/job.yaml,line=4,title=kubectl trainjob validate::50%25%0Aof it
::warning file=-,line=1,title=kubectl trainjob validate::no YAML
::warning file=c%2Cd%3Ae.yaml,line=2,title=kubectl trainjob validate::a: b, c
2 TrainJobs for Trainer 2.3: 1 error, 2 warnings
`
	expect.Same(t, "Unexpected commands", want, out.String())
}
