// SPDX-License-Identifier: Apache-2.0

package history

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// story is a made-up history, one manifest per version.
type story struct {
	t        *testing.T
	versions []Version
}

func (s *story) add(deleted bool, manifest string) *story {
	s.t.Helper()
	obj := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(manifest))
	if err != nil {
		s.t.Fatal(err)
	}
	if err := obj.UnmarshalJSON(data); err != nil {
		s.t.Fatal(err)
	}
	s.versions = append(s.versions, Version{RV: uint64(len(s.versions) + 1), Deleted: deleted, Object: obj})
	return s
}

func (s *story) is(manifest string) *story   { s.t.Helper(); return s.add(false, manifest) }
func (s *story) gone(manifest string) *story { s.t.Helper(); return s.add(true, manifest) }

const (
	trainJob = `{kind: TrainJob, metadata: {uid: t, name: llm}, spec: {runtimePatches: [{manager: user, time: a, zero: 0}, {manager: ours}]}}`
	jobSet   = `{kind: JobSet, metadata: {uid: s, name: llm, ownerReferences: [{kind: TrainJob, uid: t, controller: true}]}}`
	flavorA  = `{kind: ResourceFlavor, metadata: {uid: fa, name: a}, spec: {nodeLabels: {gpu: a}, tolerations: [{key: a, operator: Exists}]}}`

	workloadMeta  = `kind: Workload, metadata: {uid: w, name: llm, ownerReferences: [{kind: TrainJob, uid: t, controller: true}]}`
	waiting       = `{` + workloadMeta + `, status: {conditions: [{type: Admitted, status: "False"}]}}`
	onA           = `{` + workloadMeta + `, status: {admission: {podSetAssignments: [{name: node, flavors: {gpu: a}}]}, conditions: [{type: Admitted, status: "True"}]}}`
	withoutFlavor = `{` + workloadMeta + `, status: {admission: {podSetAssignments: [{name: node}]}, conditions: [{type: Admitted, status: "True"}]}}`
	evictedOnce   = `{` + workloadMeta + `, status: {schedulingStats: {evictions: [{reason: Preempted, count: 1}]}}}`
	done          = `{` + workloadMeta + `, status: {conditions: [{type: Finished, status: "True"}]}}`

	labels  = `labels: {jobset.sigs.k8s.io/jobset-uid: s, jobset.sigs.k8s.io/replicatedjob-name: node, jobset.sigs.k8s.io/job-index: "0"}`
	placed  = `nodeName: node-1, nodeSelector: {os: linux, gpu: a}, tolerations: [{key: a, operator: Exists}, {key: base, operator: Exists}, {key: node.kubernetes.io/x}]`
	pod1    = `{kind: Pod, metadata: {uid: p1, name: p1, ` + labels + `}, spec: {` + placed + `}}`
	pod2    = `{kind: Pod, metadata: {uid: p2, name: p2, ` + labels + `}, spec: {` + placed + `}}`
	ended   = `{kind: Pod, metadata: {uid: p1, name: p1, ` + labels + `}, spec: {` + placed + `}, status: {phase: Succeeded}}`
	ended2  = `{kind: Pod, metadata: {uid: p2, name: p2, ` + labels + `}, spec: {` + placed + `}, status: {phase: Succeeded}}`
	plain   = `{kind: Pod, metadata: {uid: p1, name: p1, ` + labels + `}, spec: {nodeName: node-1, nodeSelector: {os: linux}, tolerations: [{key: base, operator: Exists}]}}`
	unbound = `{kind: Pod, metadata: {uid: p1, name: p1, ` + labels + `}, spec: {nodeSelector: {os: linux}}}`
)

func TestCheck(t *testing.T) {
	tests := map[string]struct {
		story func(*story)
		want  []Invariant
		// change of the expectation.
		change func(*Expectation)
	}{
		"a job runs, is evicted, runs again and ends": {
			story: func(s *story) {
				s.is(waiting).is(unbound).is(onA).is(pod1).gone(pod1).is(evictedOnce).is(onA).is(pod2).is(ended2).is(done)
			},
		},
		"a pod is bound while its Workload waits": {
			story: func(s *story) { s.is(waiting).is(pod1) },
			want:  []Invariant{NoQuotaNoPod},
		},
		"a pod is bound without any Workload": {
			story: func(s *story) { s.is(pod1) },
			want:  []Invariant{NoQuotaNoPod},
		},
		"a pod keeps a label of another flavor": {
			story: func(s *story) {
				s.is(onA).is(`{kind: Pod, metadata: {uid: p1, name: p1, ` + labels + `}, spec: {nodeName: node-1, nodeSelector: {os: linux, gpu: a, pool: b}, tolerations: [{key: a, operator: Exists}, {key: base, operator: Exists}]}}`)
			},
			want: []Invariant{Exact},
		},
		"a pod lost a toleration": {
			story: func(s *story) {
				s.is(onA).is(`{kind: Pod, metadata: {uid: p1, name: p1, ` + labels + `}, spec: {nodeName: node-1, nodeSelector: {os: linux, gpu: a}, tolerations: [{key: a, operator: Exists}]}}`)
			},
			want: []Invariant{Exact},
		},
		"a pod that asks for nothing with flavors stays as it is": {
			story: func(s *story) { s.is(withoutFlavor).is(plain) },
		},
		"a pod that asks for nothing with flavors gets node labels": {
			story: func(s *story) { s.is(withoutFlavor).is(pod1) },
			want:  []Invariant{Exact},
		},
		"a bound pod has a gate": {
			story: func(s *story) {
				s.is(onA).is(`{kind: Pod, metadata: {uid: p1, name: p1, ` + labels + `}, spec: {schedulingGates: [{name: g}], ` + placed + `}}`)
			},
			want: []Invariant{Exact},
		},
		"a pod matches the flavor of before": {
			story: func(s *story) {
				s.is(onA).is(`{kind: ResourceFlavor, metadata: {uid: fa, name: a}, spec: {nodeLabels: {gpu: other}}}`).is(pod1)
			},
			want: []Invariant{Exact},
		},
		"a pod matches the flavor of before, whose watch was held back": {
			story: func(s *story) {
				s.is(onA).is(`{kind: ResourceFlavor, metadata: {uid: fa, name: a}, spec: {nodeLabels: {gpu: other}}}`).is(pod1)
			},
			change: func(e *Expectation) { e.AnyFlavorVersion = true },
		},
		"quota goes while a pod runs": {
			story: func(s *story) { s.is(onA).is(pod1).is(evictedOnce) },
			want:  []Invariant{OneIncarnation},
		},
		"a Workload is deleted while a pod runs": {
			story: func(s *story) { s.is(onA).is(pod1).gone(onA) },
			want:  []Invariant{OneIncarnation},
		},
		"a Workload is called finished while a pod runs": {
			story: func(s *story) { s.is(onA).is(pod1).is(done) },
			want:  []Invariant{OneIncarnation},
		},
		"quota goes when the pod has ended": {
			story: func(s *story) { s.is(onA).is(pod1).is(ended).is(evictedOnce) },
		},
		"quota goes with a TrainJob that its user deletes": {
			story: func(s *story) { s.is(onA).is(pod1).gone(trainJob).gone(onA) },
		},
		"two pods at one place": {
			story: func(s *story) { s.is(onA).is(pod1).is(pod2) },
			want:  []Invariant{OneIncarnation, NotOursToStop},
		},
		"a pod is started anew without an eviction": {
			story: func(s *story) { s.is(onA).is(pod1).gone(pod1).is(pod2) },
			want:  []Invariant{NotOursToStop},
		},
		"a pod is started anew for a user's edit": {
			story:  func(s *story) { s.is(onA).is(pod1).gone(pod1).is(pod2) },
			change: func(e *Expectation) { e.Restarts = 1 },
		},
		"a user's entry loses a zero": {
			story: func(s *story) {
				s.is(`{kind: TrainJob, metadata: {uid: t, name: llm}, spec: {runtimePatches: [{manager: user}, {manager: ours}]}}`)
			},
			want: []Invariant{OursOnly},
		},
		"Trainer stamps a time, and our entry changes": {
			story: func(s *story) {
				s.is(`{kind: TrainJob, metadata: {uid: t, name: llm}, spec: {runtimePatches: [{manager: user, time: b, zero: 0}, {manager: ours, placed: true}]}}`)
			},
		},
		"a user's override loses a zero": {
			story: func(s *story) {
				s.is(`{kind: TrainJob, metadata: {uid: o, name: older}, spec: {podTemplateOverrides: [{zero: 0}]}}`)
				s.is(`{kind: TrainJob, metadata: {uid: o, name: older}, spec: {podTemplateOverrides: [{}]}}`)
			},
			want: []Invariant{OursOnly},
		},
		"our override comes": {
			story: func(s *story) {
				s.is(`{kind: TrainJob, metadata: {uid: o, name: older}, spec: {podTemplateOverrides: [{zero: 0}]}}`)
				s.is(`{kind: TrainJob, metadata: {uid: o, name: older}, spec: {podTemplateOverrides: [{zero: 0}, {metadata: {annotations: {kueue-trainer.dev/manager: ours}}}]}}`)
			},
		},
		"the user changes the entry": {
			story: func(s *story) {
				s.is(`{kind: TrainJob, metadata: {uid: t, name: llm}, spec: {runtimePatches: [{manager: user, one: 1}]}}`)
			},
			change: func(e *Expectation) { e.UserWrites = map[uint64]bool{4: true} },
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := (&story{t: t}).is(flavorA).is(trainJob).is(jobSet)
			tc.story(s)
			want := Expectation{
				NodeSelector: map[string]string{"os": "linux"},
				Tolerations:  []corev1.Toleration{{Key: "base", Operator: corev1.TolerationOpExists}},
				OwnEntry:     "ours",
			}
			if tc.change != nil {
				tc.change(&want)
			}
			var got []Invariant
			for _, violation := range Check(s.versions, want) {
				got = append(got, violation.Invariant)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("unexpected violations (-want +got):\n%s", diff)
			}
		})
	}
}
