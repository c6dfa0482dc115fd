// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

type (
	jobs = []trainer.JobStatus
	pods = []kueue.ReclaimablePod
)

func inOrder() *jobsetapi.JobSet {
	js := jobSet(makeJob("first"), makeJob("second"))
	js.Spec.StartupPolicy = &jobsetapi.StartupPolicy{StartupPolicyOrder: jobsetapi.InOrder}
	return js
}

func TestReady(t *testing.T) {
	download := jobSet(
		makeJob("dataset"),
		makeJob("model"),
		makeJob("node").replicas(2).dependsOn("dataset", jobsetapi.DependencyComplete).dependsOn("model", jobsetapi.DependencyComplete),
	)
	mpi := jobSet(makeJob("node").replicas(2), makeJob("launcher").dependsOn("node", jobsetapi.DependencyReady))
	type row struct {
		js       *jobsetapi.JobSet
		statuses jobs
		want     bool
	}
	expect.Rows(t, map[string]row{
		"no status yet":                     {js: jobSet(makeJob("node"))},
		"not ready":                         {js: jobSet(makeJob("node")), statuses: jobs{status("node", 0, 0, 0)}},
		"a status without numbers":          {js: jobSet(makeJob("node")), statuses: jobs{{Name: "node"}}},
		"ready":                             {js: jobSet(makeJob("node")), statuses: jobs{status("node", 1, 0, 0)}, want: true},
		"succeeded":                         {js: jobSet(makeJob("node")), statuses: jobs{status("node", 0, 1, 0)}, want: true},
		"failed":                            {js: jobSet(makeJob("node")), statuses: jobs{status("node", 0, 0, 1)}},
		"some of the replicas":              {js: jobSet(makeJob("node").replicas(3)), statuses: jobs{status("node", 2, 0, 0)}},
		"replicas ready or succeeded":       {js: jobSet(makeJob("node").replicas(3)), statuses: jobs{status("node", 2, 1, 0)}, want: true},
		"no replicas are there to be ready": {js: jobSet(makeJob("node").replicas(0)), want: true},
		"one job ready, another not":        {js: jobSet(makeJob("a"), makeJob("b")), statuses: jobs{status("b", 0, 0, 0), status("a", 1, 0, 0)}},
		"downloads run, the nodes cannot have started": {js: download,
			statuses: jobs{status("dataset", 1, 0, 0), status("model", 1, 0, 0), status("node", 0, 0, 0)}, want: true},
		"one download is done, the other runs":      {js: download, statuses: jobs{status("dataset", 0, 1, 0), status("model", 1, 0, 0)}, want: true},
		"one download is done, the other not ready": {js: download, statuses: jobs{status("dataset", 0, 1, 0), status("model", 0, 0, 0)}},
		"downloads are done, the nodes are due":     {js: download, statuses: jobs{status("dataset", 0, 1, 0), status("model", 0, 1, 0)}},
		"downloads are done, some nodes ready":      {js: download, statuses: jobs{status("dataset", 0, 1, 0), status("model", 0, 1, 0), status("node", 1, 0, 0)}},
		"downloads are done, all nodes ready": {js: download, statuses: jobs{status("dataset", 0, 1, 0), status("model", 0, 1, 0), status("node", 2, 0, 0)},
			want: true},
		"in order, the second is due":                                  {js: inOrder(), statuses: jobs{status("first", 1, 0, 0)}},
		"in order, both are ready":                                     {js: inOrder(), statuses: jobs{status("first", 1, 0, 0), status("second", 1, 0, 0)}, want: true},
		"MPI nodes not all ready":                                      {js: mpi, statuses: jobs{status("node", 1, 0, 0)}},
		"MPI nodes ready, the launcher is due":                         {js: mpi, statuses: jobs{status("node", 2, 0, 0), status("launcher", 0, 0, 0)}},
		"MPI nodes and launcher ready":                                 {js: mpi, statuses: jobs{status("node", 2, 0, 0), status("launcher", 1, 0, 0)}, want: true},
		"MPI node succeeded counts for the launcher's dependency":      {js: mpi, statuses: jobs{status("node", 1, 1, 0), status("launcher", 0, 0, 0)}},
		"MPI node failed starts the launcher, but is not ready itself": {js: mpi, statuses: jobs{status("node", 1, 0, 1), status("launcher", 1, 0, 0)}},
	}, func(t *testing.T, tc row) { expect.Same(t, "Unexpected Ready", tc.want, Ready(tc.js, tc.statuses)) })
}

func TestAnySucceeded(t *testing.T) {
	expect.Answers(t, AnySucceeded, map[string]expect.Row[jobs, bool]{
		"no status":                {},
		"a status without numbers": {In: jobs{{Name: "node"}}},
		"running and failed":       {In: jobs{status("a", 1, 0, 0), status("b", 0, 0, 1)}},
		"one of several succeeded": {In: jobs{status("a", 1, 0, 0), status("b", 0, 1, 0)}, Want: true},
	})
}

func TestReclaimable(t *testing.T) {
	js := jobSet(makeJob("Dataset"), makeJob("node").replicas(3).pods(new(int32(4)), new(int32(2))))
	type row struct {
		statuses    jobs
		given, want pods
		maxRestarts int32
		ttl         *int32
		rule        jobsetapi.FailurePolicyAction
	}
	expect.Rows(t, map[string]row{
		"what was given is never taken back": {statuses: jobs{status("Dataset", 1, 0, 0), status("node", 0, 1, 0)}, given: pods{{Name: "dataset", Count: 1}},
			want: pods{{Name: "dataset", Count: 1}, {Name: "node", Count: 2}}},
		"a JobSet that may restart gives nothing back":           {statuses: jobs{status("Dataset", 0, 1, 0)}, maxRestarts: 1},
		"what it gave back before stays given":                   {given: pods{{Name: "dataset", Count: 1}}, maxRestarts: 1, want: pods{{Name: "dataset", Count: 1}}},
		"nor one of whose Jobs a rule restarts one":              {statuses: jobs{status("Dataset", 0, 1, 0)}, rule: jobsetapi.RestartJobAndIgnoreMaxRestarts},
		"nor one that a rule restarts whatever maxRestarts says": {statuses: jobs{status("Dataset", 0, 1, 0)}, rule: jobsetapi.RestartJobSetAndIgnoreMaxRestarts},
		"one that a rule ends gives back":                        {statuses: jobs{status("Dataset", 0, 1, 0)}, rule: jobsetapi.FailJobSet, want: pods{{Name: "dataset", Count: 1}}},
		"no status":                                              {},
		"nothing succeeded":                                      {statuses: jobs{status("Dataset", 1, 0, 0), status("node", 0, 0, 3)}},
		"a download is done":                                     {statuses: jobs{status("Dataset", 0, 1, 0)}, want: pods{{Name: "dataset", Count: 1}}},
		"pods of a child Job come back at once":                  {statuses: jobs{status("node", 1, 2, 0)}, want: pods{{Name: "node", Count: 4}}},
		"in the order of the PodSets": {statuses: jobs{status("node", 0, 3, 0), status("Dataset", 0, 1, 0)},
			want: pods{{Name: "dataset", Count: 1}, {Name: "node", Count: 6}}},
		"never more than the PodSet has":                            {statuses: jobs{status("node", 0, 9, 0)}, want: pods{{Name: "node", Count: 6}}},
		"JobSet creates a child Job again that its TTL has deleted": {statuses: jobs{status("node", 0, 1, 0)}, ttl: new(int32(60))},
		"of a job that is not there":                                {statuses: jobs{status("other", 0, 1, 0)}},
	}, func(t *testing.T, tc row) {
		js := js.DeepCopy()
		js.Spec.ReplicatedJobs[1].Template.Spec.TTLSecondsAfterFinished = tc.ttl
		js.Spec.FailurePolicy = &jobsetapi.FailurePolicy{MaxRestarts: tc.maxRestarts}
		if tc.rule != "" {
			js.Spec.FailurePolicy.Rules = []jobsetapi.FailurePolicyRule{{Action: tc.rule}}
		}
		expect.Same(t, "Unexpected reclaimable pods", tc.want, Reclaimable(js, tc.statuses, tc.given))
	})
}

func TestDue(t *testing.T) {
	// after has a node wait for two Jobs of data.
	after := func(status jobsetapi.DependsOnStatus) *jobsetapi.JobSet {
		return jobSet(makeJob("data").replicas(2), makeJob("node").dependsOn("data", status))
	}
	type row struct {
		js       *jobsetapi.JobSet
		statuses jobs
		want     []string
	}
	expect.Rows(t, map[string]row{
		"all at once":                           {js: jobSet(makeJob("first"), makeJob("second")), want: []string{"first", "second"}},
		"in order, before the first":            {js: inOrder(), want: []string{"first"}},
		"in order, the first is ready":          {js: inOrder(), statuses: jobs{status("first", 1, 0, 0)}, want: []string{"first", "second"}},
		"in order, the first is done":           {js: inOrder(), statuses: jobs{status("first", 0, 1, 0)}, want: []string{"first", "second"}},
		"in order, the first has failed":        {js: inOrder(), statuses: jobs{status("first", 0, 0, 1)}, want: []string{"first", "second"}},
		"one that waits for a download":         {js: jobSet(makeJob("data"), makeJob("node").dependsOn("data", jobsetapi.DependencyComplete)), want: []string{"data"}},
		"one whose download is done":            {js: jobSet(makeJob("data"), makeJob("node").dependsOn("data", jobsetapi.DependencyComplete)), statuses: jobs{status("data", 0, 1, 0)}, want: []string{"data", "node"}},
		"one whose downloads are done in part":  {js: after(jobsetapi.DependencyComplete), statuses: jobs{status("data", 1, 1, 0)}, want: []string{"data"}},
		"one whose downloads are ready alone":   {js: after(jobsetapi.DependencyComplete), statuses: jobs{status("data", 2, 0, 0)}, want: []string{"data"}},
		"one whose downloads have failed":       {js: after(jobsetapi.DependencyComplete), statuses: jobs{status("data", 0, 0, 2)}, want: []string{"data"}},
		"one that waits for Jobs to be ready":   {js: after(jobsetapi.DependencyReady), statuses: jobs{status("data", 1, 0, 0)}, want: []string{"data"}},
		"one for which they are ready, or over": {js: after(jobsetapi.DependencyReady), statuses: jobs{status("data", 0, 1, 1)}, want: []string{"data", "node"}},
	}, func(t *testing.T, tc row) {
		expect.Same(t, "Unexpected replicated jobs", tc.want, expect.Each(Due(tc.js, tc.statuses), func(rj jobsetapi.ReplicatedJob) string { return rj.Name }))
	})
}
