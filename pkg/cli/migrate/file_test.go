// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

const owner = "example.com/team"

func TestMigrateFile(t *testing.T) {
	// A version is left open in what has another one before.
	const (
		configMap = "apiVersion: v1\nkind: ConfigMap   # as it is\nmetadata: { name: x }\n"
		guides    = "apiVersion: \"trainer.kubeflow.org/%s\" # as in the guide\nkind: TrainJob\nmetadata: {name: a}\nspec:\n    runtimeRef: {name: torch}\n"
		head4     = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {generateName: b-}\nspec:\n"
		ofJobA    = "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: Secret}\n- apiVersion: trainer.kubeflow.org/v1alpha1\n  kind: TrainJob\n  metadata: {name: a}\n  spec:\n"
		itemB     = "- apiVersion: trainer.kubeflow.org/%s\n  kind: TrainJob\n  metadata: {name: b}\n  spec: {runtimeRef: {name: torch}}\n"
		unserved  = "apiVersion: no release of Trainer serves trainer.kubeflow.org/v2alpha1; it is written as trainer.kubeflow.org/v1alpha1"
	)
	type row struct {
		before, after string
		messages      []string
	}
	expect.Rows(t, map[string]row{
		"comments and order of everything else stay, comments, order and quotes within move along, blank lines go": {before: `# Our model.
kind: TrainJob   # written
apiVersion: trainer.kubeflow.org/v1alpha1
metadata: {name: llama, namespace: team-a}

spec:
  runtimeRef:
    name: torch   # the usual one

  # Where it may run.
  podTemplateOverrides:   # two of them
  # For the trainer.
  - targetJobs:
    - name: node # all of it
    spec:
      # Big ones.
      nodeSelector:
        pool: 'h100' # by agreement
        "disk": ssd
        # No others.

      # They are tainted.
      tolerations:
      - {key: nvidia.com/gpu, operator: Exists}
  - targetJobs: # two
    - name: node
    # Another.
    - name: dataset-initializer
    # Who pays.
    metadata:
      labels: {team: a} # us
    spec:
      serviceAccountName: "reader"

  # Later.

  # Goes last.
  suspend: true
# The end.
`,
			after: `# Our model.
kind: TrainJob # written
apiVersion: trainer.kubeflow.org/v1alpha1
metadata: {name: llama, namespace: team-a}
spec:
  runtimeRef:
    name: torch # the usual one
  # Where it may run.
  runtimePatches: # two of them
  - manager: example.com/team
    trainingRuntimeSpec:
      template:
        spec:
          replicatedJobs:
          # For the trainer.
          # all of it
          # two
          - name: node
            template:
              spec:
                template:
                  # Who pays.
                  metadata:
                    labels: {team: a} # us
                  spec:
                    serviceAccountName: "reader"
                    # Big ones.
                    nodeSelector:
                      pool: 'h100' # by agreement
                      "disk": ssd
                      # No others.
                    # They are tainted.
                    tolerations:
                    - {key: nvidia.com/gpu, operator: Exists}
          # Another.
          - name: dataset-initializer
            template:
              spec:
                template:
                  metadata:
                    labels: {team: a}
                  spec:
                    serviceAccountName: "reader"
  # Later.

  # Goes last.
  suspend: true
# The end.
`,
			messages: []string{"f.yaml:2: trainjob team-a/llama: podTemplateOverrides → runtimePatches of example.com/team"}},
		"of several documents only TrainJobs change, whatever their version": {before: configMap + "--- # second\n" + fmt.Sprintf(guides, "v2alpha1") + "---\n" + head4 + `    # For the JobSet.
    labels: # few
        team: a # ours
    runtimeRef: {name: torch}
    podTemplateOverrides:
        - targetJobs:
            - name: node
          metadata:
            annotations: {b: "2"}`,
			after: configMap + "---\n# second\n" + fmt.Sprintf(guides, "v1alpha1") + "---\n" + head4 + `    runtimePatches:
      - manager: example.com/team
        trainingRuntimeSpec:
            template:
                metadata:
                    # For the JobSet.
                    labels: # few
                        team: a # ours
                spec:
                    replicatedJobs:
                      - name: node
                        template:
                            spec:
                                template:
                                    metadata:
                                        annotations: {b: "2"}
    runtimeRef: {name: torch}
`,
			messages: []string{
				"f.yaml:5: trainjob a: apiVersion trainer.kubeflow.org/v2alpha1 → trainer.kubeflow.org/v1alpha1",
				"f.yaml:11: trainjob b-: labels, podTemplateOverrides → runtimePatches of example.com/team",
				"f.yaml:5: warning: " + unserved,
			}},
		"templateOverrides for pods and for Jobs": {before: head + `  templateOverrides:
  # From the platform.
  - manager: platform.example.com/scheduler
    pod:
    # The node.
    - time: 2026-02-17T10:00:00Z # this morning
      targetJobs:
      - name: node
      spec:
        # Pinned.
        nodeSelector:
          pool: h100
    job:
    - targetJobs: [{name: node}]
      metadata:
        labels:
          x: "y" # of the Job
`,
			after: reprinted + `  runtimePatches:
  # From the platform.
  - manager: platform.example.com/scheduler
    time: "2026-02-17T10:00:00Z"
    trainingRuntimeSpec:
      template:
        spec:
          replicatedJobs:
          # The node.
          # this morning
          - name: node
            template:
              metadata:
                labels:
                  x: "y" # of the Job
              spec:
                template:
                  spec:
                    # Pinned.
                    nodeSelector:
                      pool: h100
`,
			messages: []string{"f.yaml:1: trainjob job: templateOverrides → runtimePatches of platform.example.com/scheduler"}},
		"JSON stays JSON, with sorted fields": {before: `{
    "apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
    "metadata": {"name": "job"},
    "spec": {"trainer": {"command": ["<&>", "\ud83d\ude80"]}, "podTemplateOverrides": [], "runtimeRef": {"name": "torch"}}
}`,
			after: `{
    "apiVersion": "trainer.kubeflow.org/v1alpha1",
    "kind": "TrainJob",
    "metadata": {
        "name": "job"
    },
    "spec": {
        "runtimeRef": {
            "name": "torch"
        },
        "trainer": {
            "command": [
                "<&>",
                "🚀"
            ]
        }
    }
}`,
			messages: []string{"f.yaml:1: trainjob job: podTemplateOverrides → nothing"}},
		"JSON in one line stays in one line": {before: `{"apiVersion":"trainer.kubeflow.org/v2alpha1","kind":"TrainJob","metadata":{"name":"job"},"spec":{"annotations":{"a":"1"},"runtimeRef":{"name":"torch"}}}`,
			after: `{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{"name":"job"},"spec":{"runtimePatches":[` +
				`{"manager":"example.com/team","trainingRuntimeSpec":{"template":{"metadata":{"annotations":{"a":"1"}}}}}],"runtimeRef":{"name":"torch"}}}`,
			messages: []string{
				"f.yaml:1: trainjob job: annotations → runtimePatches of example.com/team; apiVersion trainer.kubeflow.org/v2alpha1 → trainer.kubeflow.org/v1alpha1",
				"f.yaml:1: warning: " + unserved,
			}},
		"the items of a list": {before: ofJobA + "    podTemplateOverrides:\n    - targetJobs: [{name: node}]\n    runtimeRef: {name: torch}\n" + fmt.Sprintf(itemB, "v2alpha1"),
			after: ofJobA + "    runtimePatches:\n    - manager: example.com/team\n      trainingRuntimeSpec:\n        template:\n          spec:\n" +
				"            replicatedJobs:\n            - name: node\n    runtimeRef: {name: torch}\n" + fmt.Sprintf(itemB, "v1alpha1"),
			messages: []string{
				"f.yaml:5: trainjob a: podTemplateOverrides → runtimePatches of example.com/team",
				"f.yaml:12: trainjob b: apiVersion trainer.kubeflow.org/v2alpha1 → trainer.kubeflow.org/v1alpha1", "f.yaml:12: warning: " + unserved,
			}},
		"Windows' line ends stay": {before: strings.ReplaceAll(head+"  # a\n  podTemplateOverrides:\n  - targetJobs:\n    - name: node # b\n", "\n", "\r\n"),
			after: strings.ReplaceAll(reprinted+"  # a\n"+ofTeam+`          # b
          - name: node
`, "\n", "\r\n"), messages: []string{"f.yaml:1: trainjob job: podTemplateOverrides → runtimePatches of example.com/team"}},
		"what aliases and merges stand for is written out": {before: `apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: job
  labels: &labels
    team: a
spec:
  runtimeRef: {name: torch}
  <<:
    podTemplateOverrides:
    - targetJobs: [{name: &node node}]
      # As above.
      metadata: {labels: *labels}
      spec: &pool
        nodeSelector: {pool: h100}
    - targetJobs: [{name: extra}]
      spec:
        <<: *pool
        serviceAccountName: me
  trainer: {image: *node}
`,
			after: `apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata:
  name: job
  labels:
    team: a
spec:
  runtimeRef: {name: torch}
  trainer: {image: node}
` + ofTeam + `          - name: node
            template:
              spec:
                template:
                  # As above.
                  metadata: {labels: {team: a}}
                  spec:
                    nodeSelector: {pool: h100}
          - name: extra
            template:
              spec:
                template:
                  spec:
                    serviceAccountName: me
                    nodeSelector: {pool: h100}
`,
			messages: []string{"f.yaml:1: trainjob job: podTemplateOverrides → runtimePatches of example.com/team"}},
		"a TrainJob that is in a list twice": {before: "apiVersion: v1\nkind: List\nitems:\n- &j\n  apiVersion: trainer.kubeflow.org/v1alpha1\n  kind: TrainJob\n  metadata: {name: job}\n" +
			"  spec:\n    runtimeRef: {name: torch}\n    podTemplateOverrides: []\n- *j\n",
			after: "apiVersion: v1\nkind: List\nitems:\n" + strings.Repeat("- apiVersion: trainer.kubeflow.org/v1alpha1\n  kind: TrainJob\n  metadata: {name: job}\n"+
				"  spec:\n    runtimeRef: {name: torch}\n", 2),
			messages: []string{"f.yaml:4: trainjob job: podTemplateOverrides → nothing", "f.yaml:11: trainjob job: podTemplateOverrides → nothing"}},
		"a spec in braces, and a text with a line break of Unicode": {before: "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: job, annotations: {a: \"b\u2028c\"}}\n" +
			"spec: {runtimeRef: {name: torch}, podTemplateOverrides: [{targetJobs: [{name: node}]}]}\n",
			after:    strings.Replace(reprinted, "name: job", `name: job, annotations: {a: "b\Lc"}`, 1) + ofTeam + "          - name: node\n",
			messages: []string{"f.yaml:1: trainjob job: podTemplateOverrides → runtimePatches of example.com/team"}},
		"what kueue-trainer added is left out": {before: head + `  podTemplateOverrides:
  - targetJobs: [{name: node}]
    metadata: {annotations: {kueue-trainer.dev/manager: kueue.x-k8s.io/manager}}
    spec: {schedulingGates: [{name: kueue-trainer.dev/admission}]}
`,
			after: reprinted,
			messages: []string{
				"f.yaml:1: trainjob job: podTemplateOverrides → nothing",
				"f.yaml:8: warning: spec.podTemplateOverrides[0]: it is left out, as kueue-trainer wrote it for a queue and for one cluster; the webhook adds what the TrainJob needs where it is created",
			}},
		"a comment behind a list in brackets": {before: head + "  podTemplateOverrides: [{targetJobs: [{name: node}]}] # mine\n",
			after:    strings.Replace(reprinted+ofTeam, "Patches:", "Patches: # mine", 1) + "          - name: node\n",
			messages: []string{"f.yaml:1: trainjob job: podTemplateOverrides → runtimePatches of example.com/team"}},
		"a warning about what was made has the line of what it was made of": {before: head + "  podTemplateOverrides:\n  - targetJobs: [{name: node}]\n    spec: {hostNetwork: true}\n",
			after: reprinted + ofTeam + `          - name: node
            template:
              spec:
                template:
                  spec: {hostNetwork: true}
`,
			messages: []string{"f.yaml:1: trainjob job: podTemplateOverrides → runtimePatches of example.com/team", "f.yaml:7: warning: spec.runtimePatches[0].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template.spec.hostNetwork: " +
				`Forbidden: Trainer does not patch it: remove it`}},
		"a patch of Kustomize needs no more than it has": {before: patched + "  podTemplateOverrides: []\n  suspend: true\n",
			after: patched + "  suspend: true\n",
			messages: []string{
				"f.yaml:1: trainjob job: podTemplateOverrides → nothing",
				"f.yaml:4: warning: spec.runtimeRef: Required value: set it, unless this is a patch of another manifest",
			}},
		"a JSON patch, a text, and a CRD": {before: jsonPatch + "---\n" + strings.Replace(jsonPatch, "podTemplate", "template", 1) + "---\n" + crd,
			after: jsonPatch + "---\n" + strings.Replace(jsonPatch, "podTemplate", "template", 1) + "---\n" + crd,
			messages: []string{
				"f.yaml:2: warning: podTemplateOverrides stands in what is no TrainJob, such as a patch or a text in it: write runtimePatches there yourself",
				"f.yaml:6: warning: templateOverrides stands in what is no TrainJob, such as a patch or a text in it: write runtimePatches there yourself",
			}},
		"comments without a place, and those that the YAML library loses sight of, are named": {before: head + "  podTemplateOverrides: [] # none yet\n  trainer:\n    env:\n    - name: A\n    # Mine.\n\n    - {name: B}\n",
			after: reprinted + "  trainer:\n    env:\n    - name: A\n    - {name: B}\n",
			messages: []string{
				"f.yaml:1: trainjob job: podTemplateOverrides → nothing",
				"f.yaml:5: warning: this comment has no place any more: # none yet",
				"f.yaml:5: warning: this comment has no place any more: # Mine.",
			}},
		"a TrainJob from before Trainer 2.0": {before: strings.Replace(head, "trainer.kubeflow.org/v1alpha1", "kubeflow.org/v2alpha1", 1),
			after: reprinted,
			messages: []string{
				"f.yaml:1: trainjob job: apiVersion kubeflow.org/v2alpha1 → trainer.kubeflow.org/v1alpha1",
				"f.yaml:1: warning: apiVersion: no release of Trainer serves kubeflow.org/v2alpha1; it is written as trainer.kubeflow.org/v1alpha1",
			}},
		"a TrainJob of today stays as it is": {before: head + "  runtimePatches: [{manager: a.example.com/b}] # mine\n",
			after: head + "  runtimePatches: [{manager: a.example.com/b}] # mine\n"},
	}, func(t *testing.T, tc row) {
		r, messages := migrated(t, tc.before)
		expect.Same(t, "Unexpected text", strings.Split(tc.after, "\n"), strings.Split(string(r.data), "\n"))
		expect.Same(t, "Unexpected report", tc.messages, messages)
		expect.Same(t, "Unexpected failed TrainJobs", 0, r.failed)
	})
}

// ofTeam begins runtimePatches of the owner, and ends before the first replicated job.
const ofTeam = `  runtimePatches:
  - manager: example.com/team
    trainingRuntimeSpec:
      template:
        spec:
          replicatedJobs:
`

const (
	patched   = "apiVersion: trainer.kubeflow.org/v1alpha1\nkind: TrainJob\nmetadata: {name: job}\nspec:\n"
	jsonPatch = "- op: add\n  path: /spec/podTemplateOverrides/-\n  value: {}\n"
	crd       = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec: {podTemplateOverrides: {}}\n"
)

const head = `apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: job}

spec:
  runtimeRef: {name: torch}
`

// reprinted is head as it is printed.
var reprinted = strings.Replace(head, "\n\n", "\n", 1)

func migrated(t *testing.T, text string) (result, []string) {
	t.Helper()
	file := manifest.Parse("f.yaml", []byte(text))
	r := migrateFile(file, owner)
	return r, slices.Concat(r.changes, r.remarks)
}

func TestFilesWithErrorsStayAsTheyAre(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, []string]{
		"everything at once, with its lines; nothing of the file changes": {In: head + "  podTemplateOverrides:\n  - targetJobs: [{name: node}]\n---\n" + head + `  trainer:
    numProcPerNode: auto
  podTemplateOverrides:
  - metadata:
      labels: {a: 1}
      finalizers: [x]
`,
			Want: []string{
				`f.yaml:17: error: spec.trainer.numProcPerNode: Invalid value: "auto": Trainer takes a number only since 2.2: set one, or remove the field, which means auto`,
				`f.yaml:19: error: spec.podTemplateOverrides[0].targetJobs: Required value: it is for no job and so has no effect: name one, or remove the override`,
				`f.yaml:20: error: spec.podTemplateOverrides[0].metadata.labels[a]: Invalid value: it must be a string`,
				`f.yaml:21: error: spec.podTemplateOverrides[0].metadata.finalizers: Forbidden: a patch has only labels, annotations here: remove it`,
			}},
		"a key twice": {In: foreign + "---\n" + head + "  suspend: true\n  suspend: false\n", Want: []string{`f.yaml:10: error: key "suspend" already set in map`}},
		"a folded text with an indented line, which the YAML library prints as another one": {In: head + "  podTemplateOverrides: []\n  trainer:\n    args:\n    - >\n      one\n\n        # two\n      three\n",
			Want: []string{"f.yaml:5: error: " + errDisagree.Error()}},
		"overrides of Trainer 2.0": {In: head + "  podSpecOverrides:\n  - targetJobs: [{name: node}]\n    serviceAccountName: me\n",
			Want: []string{"f.yaml:7: error: spec.podSpecOverrides: Forbidden: it is of Trainer 2.0 and not converted: write it as podTemplateOverrides, " +
				"whose items have targetJobs and, under spec, all else of an item; or remove it"}},
		"overrides of Trainer 2.0 without an item, and the version of the guide": {In: strings.Replace(head, "v1alpha1", "v2alpha1", 1) + "  podSpecOverrides: []\n",
			Want: []string{"f.yaml:7: error: spec.podSpecOverrides: Forbidden: it is of Trainer 2.0 and not converted: write it as podTemplateOverrides, " +
				"whose items have targetJobs and, under spec, all else of an item; or remove it"}},
		"fields and the group from before Trainer 2.0": {In: strings.Replace(head, "trainer.kubeflow.org/v1alpha1", "kubeflow.org/v2alpha1", 1) + "  datasetConfig: {}\n  modelConfig: {}\n---\n" +
			"apiVersion: kubeflow.org/v2alpha1\nkind: TrainJob\nmetadata: {name: job}\nspec: {runtimeRef: {name: torch, apiGroup: kubeflow.org}}\n",
			Want: []string{
				"f.yaml:7: error: spec.datasetConfig: Forbidden: it is from before Trainer 2.0: write it as initializer.dataset, or remove it",
				"f.yaml:8: error: spec.modelConfig: Forbidden: it is from before Trainer 2.0: write it as initializer.model, or remove it",
				`f.yaml:13: error: spec.runtimeRef.apiGroup: Unsupported value: "kubeflow.org": supported values: "trainer.kubeflow.org"`,
			}},
		"what is missing in a list": {In: head + "  trainer:\n    env: [{value: a}]\n",
			Want: []string{"f.yaml:8: error: spec.trainer.env[0].name: Required value: set it"}},
		"what Trainer 2.3 would refuse, though nothing is to be converted": {In: head + "  numNode: 2\n  initializer:\n    model: {storageUri: hf/x}\n",
			Want: []string{
				"f.yaml:7: error: spec.numNode: Forbidden: Trainer 2.3 has no such field: remove it, or correct its name",
				`f.yaml:9: error: spec.initializer.model.storageUri: Invalid value: "hf/x": storageUri may be empty, or it must be a valid URI (scheme://...)`,
			}},
	}, func(t *testing.T, tc expect.Row[string, []string]) {
		r, messages := migrated(t, tc.In)
		expect.Same(t, "Unexpected change of the text", tc.In, string(r.data))
		expect.Same(t, "Unexpected report", tc.Want, messages)
		expect.That(t, r.failed+r.unreadable != 0 && len(r.changes) == 0, "%d TrainJobs failed, changed are %v", r.failed, r.changes)
	})
}
