// SPDX-License-Identifier: Apache-2.0

package adversary

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// Whatever the patch, the object is the same afterwards.
func TestChange(t *testing.T) {
	const before = `{"metadata":{"labels":{"a":"1"}},"spec":{"list":[{"a":1}],"map":{"b":"2"}}}`
	expect.Rows(t, map[string]expect.Row[change, string]{
		"a field":       {In: change{path: []string{"spec", "map", "b"}, value: "3"}, Want: `{"metadata":{"labels":{"a":"1"}},"spec":{"list":[{"a":1}],"map":{"b":"3"}}}`},
		"a new one":     {In: change{path: []string{"metadata", "annotations", "x/y"}, value: "1"}, Want: `{"metadata":{"annotations":{"x/y":"1"},"labels":{"a":"1"}},"spec":{"list":[{"a":1}],"map":{"b":"2"}}}`},
		"one less":      {In: change{path: []string{"spec", "map"}, removed: true}, Want: `{"metadata":{"labels":{"a":"1"}},"spec":{"list":[{"a":1}]}}`},
		"a list":        {In: change{path: []string{"spec", "list"}, value: []any{}}, Want: `{"metadata":{"labels":{"a":"1"}},"spec":{"list":[],"map":{"b":"2"}}}`},
		"a tilde in it": {In: change{path: []string{"metadata", "labels", "a~b"}, value: "1"}, Want: `{"metadata":{"labels":{"a":"1","a~b":"1"}},"spec":{"list":[{"a":1}],"map":{"b":"2"}}}`},
	}, func(t *testing.T, tc expect.Row[change, string]) {
		obj := expect.FromJSON[map[string]any](t, before)
		merge, back, operations, err := tc.In.patches(obj)
		expect.NoError(t, err)
		ops := expect.Must(jsonpatch.DecodePatch([]byte(operations)))(t)
		expect.Same(t, "JSON patch", tc.Want, normal(t, expect.Must(ops.Apply([]byte(before)))(t)))
		expect.Same(t, "merge patch", tc.Want, normal(t, expect.Must(jsonpatch.MergePatch([]byte(before), []byte(merge)))(t)))
		expect.Same(t, "and back", before, normal(t, expect.Must(jsonpatch.MergePatch([]byte(tc.Want), []byte(back)))(t)))
		tc.In.applyTo(obj)
		expect.Same(t, "the object", tc.Want, encode(obj))
	})
}

func normal(t *testing.T, data []byte) string {
	t.Helper()
	return encode(expect.FromJSON[any](t, string(data)))
}

// Another walk finds its own objects by what one has written down.
func TestSymbols(t *testing.T) {
	objects := func(uid, pod string) []*unstructured.Unstructured {
		job := expect.FromYAML[unstructured.Unstructured](t, `{kind: Job, metadata: {name: a-node-0, uid: of-job-`+uid+`}}`)
		made := expect.FromYAML[unstructured.Unstructured](t, `{kind: Pod, metadata: {generateName: a-node-0-0-, name: `+pod+`, uid: of-pod-`+uid+`}}`)
		return []*unstructured.Unstructured{&job, &made}
	}
	first := symbols{namespace: "adversary-aaaaa", suffix: "aaaaa", tenant: "tenant-aaaaa"}
	second := symbols{namespace: "adversary-bbbbb", suffix: "bbbbb", tenant: "tenant-bbbbb"}
	text := first.abstract("a-node-0-0-x1y2z of of-job-1 in adversary-aaaaa of queue gpus-aaaaa", objects("1", "a-node-0-0-x1y2z"))
	expect.Same(t, "in symbols", "{NAME pods/a-node-0-0-} of {UID jobs/a-node-0} in {NS} of queue gpus-{SUFFIX}", text)
	expect.Same(t, "in another walk", "a-node-0-0-zzzzz of of-job-2 in adversary-bbbbb of queue gpus-bbbbb", second.concrete(text, objects("2", "a-node-0-0-zzzzz")))
}

// Two of many actions are to blame.
func TestShrink(t *testing.T) {
	var actions []action
	for i := range 40 {
		actions = append(actions, action{After: time.Duration(i)})
	}
	asked := 0
	got := shrink(actions, func(some []action) bool {
		asked++
		return slices.Contains(some, actions[7]) && slices.Contains(some, actions[31])
	}, func() bool { return asked < 200 })
	expect.Same(t, "the shortest", []action{actions[7], actions[31]}, got)
}

// By the labels of a pod template a tenant would hide its pods.
func TestLabelsOfPodsAreDrawnInTemplates(t *testing.T) {
	obj := expect.FromJSON[unstructured.Unstructured](t, `{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"a"},"spec":{"template":{"metadata":{"annotations":{"a":"b"}},"spec":{}}}}`)
	d := &drawer{Rand: rand.New(rand.NewPCG(7, 7)), schemas: &schemas{}, live: []*unstructured.Unstructured{&obj}}
	drawn := map[string]bool{}
	for range 1000 {
		if c, ok := d.change(&obj, "spec"); ok && len(c.path) == 5 && c.path[3] == "labels" {
			drawn[c.path[4]] = true
		}
	}
	expect.That(t, drawn["jobset.sigs.k8s.io/jobset-name"], "Only these labels are drawn: %v", drawn)
}

// Quota is held by what may use it, and by nothing that a tenant names like it.
func TestCouldRun(t *testing.T) {
	const (
		ofJob    = `ownerReferences: [{apiVersion: batch/v1, kind: Job, name: llm-node-0, uid: child, controller: true}]`
		labelled = `labels: {jobset.sigs.k8s.io/jobset-name: llm}`
		placed   = `labels: {jobset.sigs.k8s.io/jobset-name: llm, kueue.x-k8s.io/podset: node}`
		ofJobSet = `ownerReferences: [{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, name: llm, uid: set, controller: true}]`
		ofLLM    = `ownerReferences: [{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, name: llm, uid: llm, controller: true}]`
	)
	// pod is what may run, job and jobSet what made it; without metadata they are gone.
	type made struct{ pod, job, jobSet string }
	pod := func(metadata, more string) string { return `{metadata: {` + metadata + `}` + more + `}` }
	expect.Answers(t, func(m made) bool {
		var jobs []batchv1.Job
		if m.job != "" {
			jobs = append(jobs, expect.FromYAML[batchv1.Job](t, `{metadata: {uid: child, `+m.job+`}}`))
		}
		var jobSets []jobsetapi.JobSet
		if m.jobSet != "" {
			jobSets = append(jobSets, expect.FromYAML[jobsetapi.JobSet](t, `{metadata: {uid: set, `+m.jobSet+`}}`))
		}
		made := expect.FromYAML[corev1.Pod](t, m.pod)
		return couldRun(&made, &metav1.OwnerReference{Name: "llm", UID: "llm"}, jobs, jobSets)
	}, map[string]expect.Row[made, bool]{
		"of its JobSet":                {In: made{pod(ofJob+`, `+placed, ``), ofJobSet, ofLLM}, Want: true},
		"of a Job that is gone":        {In: made{pod(ofJob+`, `+placed, ``), ``, ofLLM}, Want: true},
		"of a JobSet that is gone":     {In: made{pod(ofJob+`, `+placed, ``), ofJobSet, ``}, Want: true},
		"ended":                        {In: made{pod(ofJob+`, `+placed, `, status: {phase: Failed}`), ofJobSet, ofLLM}},
		"behind the gate":              {In: made{pod(ofJob+`, `+placed, `, spec: {schedulingGates: [{name: kueue-trainer.dev/admission}]}`), ofJobSet, ofLLM}},
		"of nobody":                    {In: made{pod(labelled, ``), ofJobSet, ofLLM}},
		"of a Job that never was":      {In: made{pod(ofJob+`, `+labelled, ``), ``, ofLLM}},
		"of a Job of nobody's":         {In: made{pod(ofJob+`, `+labelled, ``), `labels: {}`, ofLLM}},
		"of a JobSet that never was":   {In: made{pod(ofJob+`, `+labelled, ``), ofJobSet, ``}},
		"of a JobSet of nobody's":      {In: made{pod(ofJob+`, `+labelled, ``), ofJobSet, `labels: {}`}},
		"of another TrainJob's JobSet": {In: made{pod(ofJob+`, `+placed, ``), ofJobSet, strings.Replace(ofLLM, "uid: llm", "uid: next", 1)}},
	})
}

// Before the API server knows all of a tenant's bindings, a walk would try nothing that these allow.
func TestComplete(t *testing.T) {
	of := func(names ...string) (all []resource) {
		for _, name := range names {
			name, subresource, _ := strings.Cut(name, "/")
			all = append(all, resource{GroupVersionResource: schema.GroupVersionResource{Resource: name}, subresource: subresource})
		}
		return all
	}
	expect.Answers(t, func(resources []resource) bool { return complete(resources) == nil }, map[string]expect.Row[[]resource, bool]{
		"all bindings":               {In: of("pods", "workloads", "localqueues", "pods/binding", "trainjobs"), Want: true},
		"without Kueue's":            {In: of("pods", "pods/binding", "trainjobs")},
		"without those of the admin": {In: of("workloads", "localqueues", "pods/binding", "trainjobs")},
		"without that of the walk":   {In: of("pods", "workloads", "localqueues", "trainjobs")},
	})
}
