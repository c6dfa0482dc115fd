// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"strings"
	"testing"

	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// jobSet has a replicated job before the nodes; more is what the spec has beside them.
func jobSet(t *testing.T, more, podSpec string) *jobsetapi.JobSet {
	t.Helper()
	js := expect.FromYAML[*jobsetapi.JobSet](t, `
metadata: {name: llm, namespace: ns}
spec:
  `+strings.ReplaceAll(more, "\n", "\n  ")+`
  replicatedJobs:
  - name: data
    replicas: 1
    template: {spec: {template: {spec: {containers: [{name: data, image: i, volumeMounts: [{name: claim, mountPath: /c}]}], volumes: [{name: claim, emptyDir: {}}]}}}}
  - name: node
    replicas: 2
    dependsOn: [{name: data, status: Complete}]
    template: {spec: {parallelism: 3, completions: 3, template: {spec: {`+podSpec+`}}}}
`)
	// Where there are both, the claim is the one under test.
	if strings.Contains(more, "volumeClaimPolicies") {
		js.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Volumes = nil
	}
	return js
}

func TestOf(t *testing.T) {
	const fine = `containers: [{name: node, image: i}]`
	claim := func(name string) string {
		return `volumeClaimPolicies: [{templates: [{metadata: {name: ` + name + `}, spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}]}]`
	}
	type row struct {
		more, podSpec string
		want          []string
	}
	expect.Rows(t, map[string]row{
		"in order":          {podSpec: fine},
		"policies in order": {podSpec: fine, more: "successPolicy: {operator: All, targetReplicatedJobs: [node]}\nfailurePolicy: {maxRestarts: 3, rules: [{action: FailJobSet, onJobFailureReasons: [PodFailurePolicy]}]}\ncoordinator: {replicatedJob: node, jobIndex: 1, podIndex: 2}\nnetwork: {subdomain: llm}"},
		"a claim":           {podSpec: fine, more: claim("claim")},
		"a claim that only an init container mounts": {more: claim("other") + "\nnetwork: {}", podSpec: fine +
			`, initContainers: [{name: first, image: i, volumeMounts: [{name: other, mountPath: /o}]}]`,
			want: []string{"Job data spec.template.spec.containers[data].volumeMounts[/c].name"}},

		"success of a job that there is not": {podSpec: fine, more: "successPolicy: {operator: All, targetReplicatedJobs: [a]}", want: []string{"JobSet  spec.successPolicy.targetReplicatedJobs[0]"}},
		"a subdomain that is none":           {podSpec: fine, more: "network: {subdomain: A_B}", want: []string{"JobSet  spec.network.subdomain"}},
		"a coordinator that there is not":    {podSpec: fine, more: "coordinator: {replicatedJob: a}", want: []string{"JobSet  spec.coordinator.replicatedJob"}},
		"a coordinator beyond the Jobs":      {podSpec: fine, more: "coordinator: {replicatedJob: node, jobIndex: 2}", want: []string{"JobSet  spec.coordinator.jobIndex"}},
		"a coordinator beyond the pods":      {podSpec: fine, more: "coordinator: {replicatedJob: node, podIndex: 3}", want: []string{"JobSet  spec.coordinator.podIndex"}},
		"a coordinator that is not counted":  {podSpec: fine, more: "coordinator: {replicatedJob: data}", want: []string{"JobSet  spec.coordinator.replicatedJob"}},
		"a strategy behind a gate":           {podSpec: fine, more: "failurePolicy: {restartStrategy: InPlaceRestart}", want: []string{"JobSet  spec.failurePolicy.restartStrategy"}},
		"rules of one name, for unknown things": {podSpec: fine, more: "failurePolicy: {rules: [{name: a, action: RestartJob}, {name: a, action: FailJobSet, targetReplicatedJobs: [x], onJobFailureReasons: [y]}]}", want: []string{
			"JobSet  spec.failurePolicy.rules[0].action", "JobSet  spec.failurePolicy.rules[1].name",
			"JobSet  spec.failurePolicy.rules[1].targetReplicatedJobs[0]", "JobSet  spec.failurePolicy.rules[1].onJobFailureReasons[0]",
		}},
		"a claim that nobody mounts": {podSpec: fine, more: claim("other"), want: []string{"JobSet  spec.volumeClaimPolicies[0].templates[0].metadata.name", "Job data spec.template.spec.containers[data].volumeMounts[/c].name"}},
		"a claim beside a volume of its name": {podSpec: fine + `, volumes: [{name: claim, emptyDir: {}}]`, more: claim("claim"), want: []string{
			"JobSet  spec.volumeClaimPolicies[0].templates[0].metadata.name", "Job node spec.template.spec.volumes[1].name",
		}},
		"no image":                      {podSpec: `containers: [{name: node}]`, want: []string{"Job node spec.template.spec.containers[node].image"}},
		"a mount without a volume":      {podSpec: `containers: [{name: node, image: i, volumeMounts: [{name: a, mountPath: /a}]}]`, want: []string{"Job node spec.template.spec.containers[node].volumeMounts[/a].name"}},
		"what Jobs take and pods don't": {podSpec: `containers: [{name: node, image: " i"}]`, want: []string{"Pod node spec.template.spec.containers[node].image"}},
		"a restart policy of no Job":    {podSpec: fine + `, restartPolicy: Always`, want: []string{"Job node spec.template.spec.restartPolicy"}},
	}, func(t *testing.T, tc row) {
		var got []string
		for _, r := range Of(t.Context(), jobSet(t, tc.more, tc.podSpec)) {
			got = append(got, r.Kind+" "+r.ReplicatedJob+" "+r.Path)
			expect.That(t, r.Message != "", "Nothing is said of %s", r.Path)
		}
		expect.Same(t, "Unexpected refusals", tc.want, got)
	})
}

func TestDependsOnWhatStandsBehind(t *testing.T) {
	js := jobSet(t, "", `containers: [{name: node, image: i}]`)
	jobs := js.Spec.ReplicatedJobs
	jobs[0], jobs[1] = jobs[1], jobs[0]
	jobs[0].Replicas = 1 << 30
	got := Of(t.Context(), js)
	expect.That(t, len(got) == 2 && got[0].Path == "spec.replicatedJobs[0].dependsOn[0].name" && got[1].Path == "spec.replicatedJobs[0].replicas",
		"Unexpected refusals: %+v", got)
}

func TestDependsOnItself(t *testing.T) {
	js := jobSet(t, "", `containers: [{name: node, image: i}]`)
	jobs := js.Spec.ReplicatedJobs
	jobs[1].DependsOn[0].Name = "node"
	want := []Refusal{{
		Kind: "JobSet", Path: "spec.replicatedJobs[1].dependsOn[0].name", Waits: true,
		Message: `Invalid value: "node": the replicated job depends on itself, and JobSet never makes its Jobs: remove it, or name one that stands before it`,
	}}
	expect.Same(t, "Unexpected refusals", want, Of(t.Context(), js))
	// JobSet refuses all dependencies of the first.
	jobs[0], jobs[1] = jobs[1], jobs[0]
	got := Of(t.Context(), js)
	expect.That(t, len(got) == 1 && !got[0].Waits, "Unexpected refusals: %+v", got)
}
