// SPDX-License-Identifier: Apache-2.0

package generations

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/generations/random"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// ruledRuntime has a replicated job of each name that Trainer knows; that of node has one more container,
// an init container and a pull secret.
const ruledRuntime = `
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
              imagePullSecrets: [{name: registry}]
              initContainers: [{name: fetch, image: i}]
              containers: [{name: node, image: i}, {name: side, image: i}]
    - {name: dataset-initializer, template: {spec: {template: {spec: {containers: [{name: dataset-initializer, image: i}]}}}}}
    - {name: model-initializer, template: {spec: {template: {spec: {containers: [{name: model-initializer, image: i}]}}}}}
`

// list returns spec.podTemplateOverrides or spec.runtimePatches of a release, as YAML.
type list func(trainjob.TrainerVersion) string

// entries are of one field, which the case has to say.
func entries(list string) list { return func(trainjob.TrainerVersion) string { return list } }

// entry is a runtime patch of the replicated job node.
func entry(manager, podSpec string) string { return patchOf(manager, "node", podSpec) }

func patchOf(manager, job, podSpec string) string {
	return fmt.Sprintf(`[{manager: %s, trainingRuntimeSpec: {template: {spec: {replicatedJobs: [{name: %s, template: {spec: {template: {spec: %s}}}}]}}}}]`, manager, job, podSpec)
}

// inPods patches the pods of a replicated job, in any release.
func inPods(job, podSpec string) list {
	return func(served trainjob.TrainerVersion) string {
		if served == trainjob.Trainer21 {
			return `[{targetJobs: [{name: ` + job + `}], spec: ` + podSpec + `}]`
		}
		return patchOf("example.com/user", job, podSpec)
	}
}

// ruling is what both the rules and Trainer have to say.
type ruling struct {
	// refused by both, or taken by both.
	refused bool
	// field is how the field of an error ends, or that of a warning where it is taken, as runtime patches
	// have it. Empty: the rules have nothing to say.
	field string
	// words are in Trainer's refusal.
	words string
}

func taken() ruling                         { return ruling{} }
func takenWithWarning(field string) ruling  { return ruling{field: field} }
func refusedFor(field, words string) ruling { return ruling{refused: true, field: field, words: words} }

func TestRulesGiveTheVerdictOfTrainer(t *testing.T) {
	const anything = `{nodeSelector: {pool: a}}`
	// longest is a manager of 253 characters.
	longest := `example.com/` + strings.Repeat("x", 253-len("example.com/"))
	var seventeen []string
	for i := range 17 {
		seventeen = append(seventeen, fmt.Sprintf("{manager: a.io/x%d}", i))
	}
	cases := map[string]struct {
		// since and until are the releases that it is about; empty: from the first, or to the last.
		since, until trainjob.TrainerVersion
		asks         list
		want         ruling
	}{
		// Target jobs and containers.
		"on a replicated job of the runtime": {asks: inPods("node", anything), want: taken()},
		"on a replicated job that the runtime has not": {until: trainjob.Trainer22, asks: inPods("worker", anything),
			want: refusedFor("name", "doesn't exist in the runtime job template")},
		"on a replicated job that the runtime has not, which 2.3 takes": {since: trainjob.Trainer23, asks: inPods("worker", anything),
			want: takenWithWarning("replicatedJobs[0].name")},
		"on a replicated job without a name":            {asks: inPods(`""`, anything), want: refusedFor("name", "name")},
		"on a container of the runtime":                 {asks: inPods("node", `{containers: [{name: side, env: [{name: A, value: b}]}]}`), want: taken()},
		"on a container that the runtime has not":       {asks: inPods("node", `{containers: [{name: other}]}`), want: takenWithWarning("containers[0].name")},
		"on an init container that the runtime has not": {asks: inPods("node", `{initContainers: [{name: other}]}`), want: takenWithWarning("initContainers[0].name")},
		"on two patches of one container": {asks: inPods("node", `{containers: [{name: side}, {name: side}]}`),
			want: refusedFor("containers[1].name", "Duplicate value")},

		// Variables.
		"on variables of node": {asks: inPods("node", `{containers: [{name: node, env: [{name: A}]}]}`), want: refusedFor("containers[0].env", "must not have envs")},
		"on variables of dataset-initializer": {asks: inPods("dataset-initializer", `{containers: [{name: dataset-initializer, env: [{name: A}]}]}`),
			want: refusedFor("containers[0].env", "must not have envs")},
		"on variables of model-initializer": {asks: inPods("model-initializer", `{containers: [{name: model-initializer, env: [{name: A}]}]}`),
			want: refusedFor("containers[0].env", "must not have envs")},
		"on variables of an init container": {asks: inPods("node", `{initContainers: [{name: fetch, env: [{name: A}]}]}`), want: taken()},
		"on volumes and mounts of node": {asks: inPods("node", `{volumes: [{name: v, emptyDir: {}}], containers: [{name: node, volumeMounts: [{name: v, mountPath: /v}]}]}`),
			want: taken()},

		// What belongs to the TrainJob itself.
		"on the trainer's command":                     {asks: inPods("node", `{containers: [{name: node, command: [x]}]}`), want: refusedFor("containers[0].command", "command")},
		"on the trainer's args":                        {asks: inPods("node", `{containers: [{name: node, args: [x]}]}`), want: refusedFor("containers[0].args", "args")},
		"on the trainer's image":                       {asks: inPods("node", `{containers: [{name: node, image: x}]}`), want: refusedFor("containers[0].image", "image")},
		"on the trainer's resources":                   {asks: inPods("node", `{containers: [{name: node, resources: {}}]}`), want: refusedFor("containers[0].resources", "resources")},
		"on another field that Trainer does not patch": {asks: inPods("node", `{hostNetwork: true}`), want: refusedFor("hostNetwork", "hostNetwork")},
		"on a field of a later release": {until: trainjob.Trainer22, asks: inPods("node", `{terminationGracePeriodSeconds: 5}`),
			want: refusedFor("terminationGracePeriodSeconds", "terminationGracePeriodSeconds")},
		"on a secret without a name, beside one of the runtime": {asks: inPods("node", `{imagePullSecrets: [{}]}`),
			want: refusedFor("imagePullSecrets[0].name", "panic")},
		"on a secret without a name, alone": {asks: inPods("model-initializer", `{imagePullSecrets: [{}]}`), want: takenWithWarning("imagePullSecrets[0].name")},

		// Managers.
		"on a manager":                   {since: trainjob.Trainer22, asks: entries(entry("example.com/user", anything)), want: taken()},
		"on no manager":                  {since: trainjob.Trainer22, asks: entries(entry(`""`, anything)), want: refusedFor("manager", "manager")},
		"on a manager of 253 characters": {since: trainjob.Trainer22, asks: entries(entry(longest, anything)), want: taken()},
		"on a manager of 254 characters": {since: trainjob.Trainer22, asks: entries(entry(longest+"x", anything)),
			want: refusedFor("manager", "manager: Too long")},
		"on a manager without a domain": {since: trainjob.Trainer22, asks: entries(entry("user", anything)),
			want: refusedFor("manager", "domain-prefixed path")},
		"on two entries of one manager": {since: trainjob.Trainer22, asks: entries(`[{manager: a.io/x}, {manager: a.io/x}]`),
			want: refusedFor("[1].manager", "Duplicate value")},
		"on more entries than a TrainJob may have": {since: trainjob.Trainer22, asks: entries("[" + strings.Join(seventeen, ", ") + "]"),
			want: refusedFor("spec.runtimePatches", "Too many")},

		// Time stamps.
		"on a time": {since: trainjob.Trainer22, asks: entries(`[{manager: a.io/x, time: "2026-01-01T00:00:00Z"}]`), want: taken()},
		"on a time that is none": {since: trainjob.Trainer22, asks: entries(`[{manager: a.io/x, time: yesterday}]`),
			want: refusedFor("spec.runtimePatches[0].time", "time")},

		// Overrides.
		"on an override without target jobs": {until: trainjob.Trainer21, asks: entries(`[{spec: {nodeSelector: {a: b}}}]`),
			want: refusedFor("targetJobs", "targetJobs")},
		"on an override for no target job": {until: trainjob.Trainer21, asks: entries(`[{targetJobs: []}]`), want: taken()},
		"on an override with an unknown job beside a known one": {until: trainjob.Trainer21, asks: entries(`[{targetJobs: [{name: node}, {name: worker}]}]`),
			want: refusedFor("targetJobs[1].name", "doesn't exist in the runtime job template")},
		"on two overrides of one job": {until: trainjob.Trainer21, asks: entries(`[{targetJobs: [{name: node}]}, {targetJobs: [{name: node}]}]`),
			want: taken()},
		"on labels of pods in an override": {until: trainjob.Trainer21, asks: entries(`[{targetJobs: [{name: node}], metadata: {labels: {a: b}}}]`),
			want: taken()},
		"on a name of pods in an override": {until: trainjob.Trainer21, asks: entries(`[{targetJobs: [{name: node}], metadata: {name: x}}]`),
			want: takenWithWarning("metadata.name")},
		"on a manager of an override": {until: trainjob.Trainer21, asks: entries(`[{targetJobs: [{name: node}], manager: a.io/x}]`),
			want: refusedFor("manager", "manager")},
		"on a security context in an override": {until: trainjob.Trainer21, asks: inPods("node", `{securityContext: {}}`),
			want: refusedFor("securityContext", "securityContext")},
	}
	for served := range modules {
		schema := newCRD(t, served)
		for name, tc := range cases {
			if served < tc.since || served > cmp.Or(tc.until, trainjob.Trainer23) {
				continue
			}
			t.Run(fmt.Sprintf("%s %s", served, name), func(t *testing.T) {
				verdict, refusal := tc.asks.judged(t, schema, served)
				findings := slices.Concat(verdict.Warnings, verdict.Unmade)
				if tc.want.refused {
					findings = verdict.Errors
				}
				expect.That(t, (refusal != "") == tc.want.refused && strings.Contains(refusal, tc.want.words), "Trainer says %q, want %q", refusal, tc.want.words)
				expect.That(t, (len(verdict.Errors) > 0) == tc.want.refused, "the rules refuse it for %v", verdict.Errors)
				ending := strings.Replace(tc.want.field, "spec.runtimePatches", "spec."+fieldOf(served), 1)
				told := slices.ContainsFunc(findings, func(err *field.Error) bool { return ending != "" && strings.HasSuffix(err.Field, ending) })
				expect.That(t, told == (ending != "") && (told || len(findings) == 0), "the rules find %v, want %q", findings, ending)
			})
		}
	}
}

// judged returns the verdict of the rules on a new TrainJob with these patches, and what the CRD and the webhook of
// a release refuse it for, which is empty where they take it.
func (patches list) judged(t *testing.T, schema crd, served trainjob.TrainerVersion) (rules.Verdict, string) {
	t.Helper()
	runtime := expect.FromYAML[*trainer.TrainingRuntimeSpec](t, ruledRuntime)
	spec := random.Object{fieldOf(served): expect.FromYAML[any](t, patches(served))}
	q := question{Runtime: runtime, Job: random.New(0).Bare(spec), Validate: true}
	verdict := rules.Create(served, runtime, ruled(t, spec))
	webhook := ask(t, served, []question{q})[0]
	return verdict, strings.Join(append(schema.refusals(t, q.Job), webhook.refusals()...), "; ")
}
