// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// story is a made-up history, one manifest per version.
type story []record.Version

// is begins a history, which all have a flavor, a TrainJob and its JobSet in common.
func is(manifests ...string) story { return story{}.and(flavorA, job, jobSet).and(manifests...) }

func (s story) and(manifests ...string) story {
	for _, manifest := range manifests {
		s = s.add(false, manifest)
	}
	return s
}

func (s story) gone(manifest string) story { return s.add(true, manifest) }

func (s story) add(deleted bool, manifest string) story {
	obj := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(manifest))
	if err == nil {
		err = obj.UnmarshalJSON(data)
	}
	if err != nil {
		panic(manifest + ": " + err.Error())
	}
	return append(s, record.Version{RV: uint64(len(s) + 1), Deleted: deleted, Object: obj})
}

// trainJob is the TrainJob of the stories, overridden one of Trainer 2.1.
func trainJob(spec string) string {
	return `{kind: TrainJob, metadata: {uid: t, name: llm}, spec: {` + spec + `}}`
}

func overridden(entries string) string {
	return `{kind: TrainJob, metadata: {uid: o, name: older}, spec: {podTemplateOverrides: [` + entries + `]}}`
}

func flavor(name, spec string) string {
	return fmt.Sprintf(`{kind: ResourceFlavor, metadata: {uid: f-%[1]s, name: %[1]s}, spec: {%s}}`, name, spec)
}

// workloadOf is the Workload of the TrainJob, with the conditions that are true.
func workloadOf(spec, status string, conditions ...string) string {
	for i, condition := range conditions {
		conditions[i] = `{type: ` + condition + `, status: "True"}`
	}
	return fmt.Sprintf(`{kind: Workload, metadata: {uid: w, name: llm, ownerReferences: [{kind: TrainJob, uid: t, controller: true}]},
		spec: {queueName: queue%s}, status: {%s conditions: [%s]}}`, spec, status, strings.Join(conditions, ", "))
}

// pod is one of the TrainJob's only place, marked is one with Kueue's annotation and labels.
func pod(uid, annotations, labels, spec string) string {
	return fmt.Sprintf(`{kind: Pod, metadata: {uid: %[1]s, name: %[1]s, annotations: {%s}, labels: {%s, %s}}, %s}`, uid, annotations, labels, ofJob, spec)
}

func marked(uid, spec string) string { return pod(uid, named, labeled, spec) }

const (
	userEntry = `{manager: user, time: a, zero: 0}`
	ourEntry  = `{manager: ours}`
	ourOne    = `{metadata: {annotations: {kueue-trainer.dev/manager: ours}}}`
	jobSet    = `{kind: JobSet, metadata: {uid: s, name: llm, ownerReferences: [{kind: TrainJob, uid: t, controller: true}]}}`

	admittedToA = `admission: {clusterQueue: cq, podSetAssignments: [{name: node, flavors: {gpu: a}}]},`

	ofJob   = `jobset.sigs.k8s.io/jobset-uid: s, jobset.sigs.k8s.io/replicatedjob-name: node, jobset.sigs.k8s.io/job-index: "0"`
	named   = `kueue.x-k8s.io/workload: llm`
	queued  = `kueue.x-k8s.io/podset: node, kueue.x-k8s.io/local-queue-name: queue`
	labeled = queued + `, kueue.x-k8s.io/cluster-queue-name: cq`

	base    = `{key: base, operator: Exists}`
	fromA   = `{key: a, operator: Exists}`
	fromB   = `{key: b, operator: Exists}`
	placed  = `nodeName: node-1, nodeSelector: {os: linux, gpu: a}, tolerations: [` + fromA + `, ` + base + `, {key: node.kubernetes.io/x}]`
	onPlace = `spec: {` + placed + `}`
	onBoth  = `spec: {nodeName: node-1, nodeSelector: {os: linux, gpu: a, zone: b}, tolerations: [` + fromA + `, ` + fromB + `, ` + base + `]}`
	over    = onPlace + `, status: {phase: Succeeded}`
)

var (
	job     = trainJob(`runtimePatches: [` + userEntry + `, ` + ourEntry + `]`)
	flavorA = flavor("a", `nodeLabels: {gpu: a}, tolerations: [`+fromA+`]`)
	otherA  = flavor("a", `nodeLabels: {gpu: other}`)
	flavorB = flavor("b", `nodeLabels: {zone: b}, tolerations: [`+fromB+`]`)

	waiting       = strings.ReplaceAll(workloadOf("", "", "Admitted"), "True", "False")
	onA           = workloadOf("", admittedToA, "Admitted")
	onAAndB       = workloadOf("", `admission: {clusterQueue: cq, podSetAssignments: [{name: node, flavors: {gpu: a, cpu: b, memory: b}}]},`, "Admitted")
	stopping      = workloadOf("", admittedToA, "Admitted", "Evicted")
	deactivated   = workloadOf(", active: false", admittedToA, "Admitted")
	finished      = workloadOf("", admittedToA, "Admitted", "Finished")
	withoutFlavor = workloadOf("", `admission: {clusterQueue: cq, podSetAssignments: [{name: node}]},`, "Admitted")
	evictedOnce   = workloadOf("", `schedulingStats: {evictions: [{reason: Preempted, count: 1}]},`)
	done          = workloadOf("", "", "Finished")

	pod1, pod2 = marked("p1", onPlace), marked("p2", onPlace)
	ended2     = marked("p2", over)
	gated      = marked("p1", `spec: {schedulingGates: [{name: g}]}`)
	unbound    = marked("p1", `spec: {nodeSelector: {os: linux}}`)
	plain      = marked("p1", `spec: {nodeName: node-1, nodeSelector: {os: linux}, tolerations: [`+base+`]}`)
)

// userWrote says that the version after those that every story begins with is a user's.
func userWrote(e *Expectation)        { e.UserWrites = map[uint64]bool{4: true} }
func anyFlavorVersion(e *Expectation) { e.AnyFlavorVersion = true }
func oneRestart(e *Expectation)       { e.Restarts = 1 }

func TestCheck(t *testing.T) {
	patches := func(entries string) string { return trainJob(`runtimePatches: [` + entries + `]`) }
	const reversed = `runtimePatches: [` + ourEntry + `, ` + userEntry + `]`
	type row struct {
		story  story
		want   []Invariant
		change func(*Expectation)
	}
	expect.Rows(t, map[string]row{
		"a job runs, is evicted, runs again and ends": {story: is(waiting, unbound, onA, pod1).gone(pod1).and(evictedOnce, onA, pod2, ended2, done)},
		"a pod is bound while its Workload waits":     {story: is(waiting, pod1), want: []Invariant{NoQuotaNoPod}},
		"a pod is bound without any Workload":         {story: is(pod1), want: []Invariant{NoQuotaNoPod}},
		"a pod is bound after its Workload finished":  {story: is(onA, finished, pod1), want: []Invariant{NoQuotaNoPod}},
		"a pod keeps a label of another flavor": {
			story: is(onA, marked("p1", `spec: {nodeName: node-1, nodeSelector: {os: linux, gpu: a, pool: b}, tolerations: [`+fromA+`, `+base+`]}`)),
			want:  []Invariant{Exact},
		},
		"a pod is placed by two flavors":                  {story: is(flavorB, onAAndB, marked("p1", onBoth))},
		"a pod lacks what the second of its flavors says": {story: is(flavorB, onAAndB, pod1), want: []Invariant{Exact}},
		"a pod matches one of its two flavors as it was before, whose watch was held back": {
			story: is(flavorB, onAAndB, otherA, marked("p1", onBoth)), change: anyFlavorVersion,
		},
		"a pod lacks Kueue's labels": {story: is(onA, pod("p1", named, `none: ""`, onPlace)), want: []Invariant{Exact}},
		"a pod has the label of another ClusterQueue": {
			story: is(onA, pod("p1", named, queued+`, kueue.x-k8s.io/cluster-queue-name: other`, onPlace)), want: []Invariant{Exact},
		},
		"a bound pod is still marked as gated": {
			story: is(onA, pod("p1", named, labeled+`, kueue-trainer.dev/gated: "true"`, onPlace)), want: []Invariant{Exact},
		},
		"a pod names no Workload":                                  {story: is(onA, pod("p1", "", labeled, onPlace)), want: []Invariant{Exact}},
		"a pod is made and bound while its Workload is evicted":    {story: is(onA, stopping, pod1), want: []Invariant{NoQuotaNoPod}},
		"a pod is made and bound while its Workload is inactive":   {story: is(onA, deactivated, pod1), want: []Invariant{NoQuotaNoPod}},
		"a gated pod loses its gate while its Workload is evicted": {story: is(onA, gated, stopping, pod1), want: []Invariant{NoQuotaNoPod}},
		"the scheduler binds what was there before the eviction":   {story: is(onA, unbound, stopping, pod1)},
		"a job is activated again and starts":                      {story: is(onA, deactivated, waiting, onA, pod1)},
		"a pod lost a toleration": {
			story: is(onA, marked("p1", `spec: {nodeName: node-1, nodeSelector: {os: linux, gpu: a}, tolerations: [`+fromA+`]}`)), want: []Invariant{Exact},
		},
		"a pod that asks for nothing with flavors stays as it is":   {story: is(withoutFlavor, plain)},
		"a pod that asks for nothing with flavors gets node labels": {story: is(withoutFlavor, pod1), want: []Invariant{Exact}},
		"a bound pod has a gate": {
			story: is(onA, marked("p1", `spec: {schedulingGates: [{name: g}], `+placed+`}`)), want: []Invariant{Exact},
		},
		"a pod matches the flavor of before":                            {story: is(onA, otherA, pod1), want: []Invariant{Exact}},
		"a pod matches the flavor of before, whose watch was held back": {story: is(onA, otherA, pod1), change: anyFlavorVersion},
		"two pods at one place":                                         {story: is(onA, pod1, pod2), want: []Invariant{NotOursToStop}},
		"a pod is started again without an eviction":                    {story: is(onA, pod1).gone(pod1).and(pod2), want: []Invariant{NotOursToStop}},
		"a pod is started again for a user's edit":                      {story: is(onA, pod1).gone(pod1).and(pod2), change: oneRestart},
		"a user's entry loses a zero":                                   {story: is(patches(`{manager: user}, ` + ourEntry)), want: []Invariant{OursOnly}},
		"Trainer stamps a time, and our entry changes":                  {story: is(patches(`{manager: user, time: b, zero: 0}, {manager: ours, placed: true}`))},
		"a user's override loses a zero":                                {story: is(overridden(`{zero: 0}`), overridden(`{}`)), want: []Invariant{OursOnly}},
		"our override comes":                                            {story: is(overridden(`{zero: 0}`), overridden(`{zero: 0}, `+ourOne))},
		"each replicated job has an override of ours":                   {story: is(overridden(`{zero: 0}, ` + ourOne + `, ` + ourOne))},
		"our entry is no longer the last":                               {story: is(trainJob(reversed)), want: []Invariant{Exact}},
		"the user changes the entry":                                    {story: is(patches(`{manager: user, one: 1}`)), change: userWrote},
		"a user writes past the webhook, and we put it right": {
			story: is(
				trainJob(`suspend: true, `+reversed), trainJob(`suspend: true, `+strings.Replace(reversed, "time: a", "time: b", 1)),
				trainJob(`suspend: false, runtimePatches: [{manager: user, time: b, zero: 0}, `+ourEntry+`]`),
			),
			change: userWrote,
		},
		"a user writes past the webhook, and we start the job with it": {
			story: is(trainJob(`suspend: true, `+reversed), trainJob(`suspend: false, `+reversed)), want: []Invariant{Exact}, change: userWrote,
		},
	}, func(t *testing.T, tc row) {
		want := Expectation{
			NodeSelector: map[string]string{"os": "linux"},
			Tolerations:  []corev1.Toleration{{Key: "base", Operator: corev1.TolerationOpExists}},
			OwnEntry:     "ours",
		}
		if tc.change != nil {
			tc.change(&want)
		}
		got := expect.Each(Check(tc.story, want), func(v Violation) Invariant { return v.Invariant })
		expect.Same(t, "unexpected violations", tc.want, got)
	})
}
