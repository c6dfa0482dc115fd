// SPDX-License-Identifier: Apache-2.0

package history

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// story is a made-up history, one manifest per version.
type story struct {
	t        *testing.T
	versions []record.Version
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
	s.versions = append(s.versions, record.Version{RV: uint64(len(s.versions) + 1), Deleted: deleted, Object: obj})
	return s
}

func (s *story) is(manifest string) *story   { s.t.Helper(); return s.add(false, manifest) }
func (s *story) gone(manifest string) *story { s.t.Helper(); return s.add(true, manifest) }

const (
	trainJob = `{kind: TrainJob, metadata: {uid: t, name: llm}, spec: {runtimePatches: [{manager: user, time: a, zero: 0}, {manager: ours}]}}`
	jobSet   = `{kind: JobSet, metadata: {uid: s, name: llm, ownerReferences: [{kind: TrainJob, uid: t, controller: true}]}}`
	flavorA  = `{kind: ResourceFlavor, metadata: {uid: fa, name: a}, spec: {nodeLabels: {gpu: a}, tolerations: [{key: a, operator: Exists}]}}`

	flavorB = `{kind: ResourceFlavor, metadata: {uid: fb, name: b}, spec: {nodeLabels: {zone: b}, tolerations: [{key: b, operator: Exists}]}}`

	workloadMeta = `kind: Workload, metadata: {uid: w, name: llm, ownerReferences: [{kind: TrainJob, uid: t, controller: true}]}, spec: {queueName: queue}`
	admissionOnA = `admission: {clusterQueue: cq, podSetAssignments: [{name: node, flavors: {gpu: a}}]}`
	waiting      = `{` + workloadMeta + `, status: {conditions: [{type: Admitted, status: "False"}]}}`
	onA          = `{` + workloadMeta + `, status: {` + admissionOnA + `, conditions: [{type: Admitted, status: "True"}]}}`
	onAAndB      = `{` + workloadMeta + `, status: {admission: {clusterQueue: cq, podSetAssignments: [{name: node, flavors: {gpu: a, cpu: b, memory: b}}]}, conditions: [{type: Admitted, status: "True"}]}}`
	stopping     = `{` + workloadMeta + `, status: {` + admissionOnA + `, conditions: [{type: Admitted, status: "True"}, {type: Evicted, status: "True"}]}}`
	deactivated  = `{kind: Workload, metadata: {uid: w, name: llm, ownerReferences: [{kind: TrainJob, uid: t, controller: true}]}, spec: {queueName: queue, active: false},
		status: {` + admissionOnA + `, conditions: [{type: Admitted, status: "True"}]}}`
	finished      = `{` + workloadMeta + `, status: {` + admissionOnA + `, conditions: [{type: Admitted, status: "True"}, {type: Finished, status: "True"}]}}`
	withoutFlavor = `{` + workloadMeta + `, status: {admission: {clusterQueue: cq, podSetAssignments: [{name: node}]}, conditions: [{type: Admitted, status: "True"}]}}`
	evictedOnce   = `{` + workloadMeta + `, status: {schedulingStats: {evictions: [{reason: Preempted, count: 1}]}}}`
	done          = `{` + workloadMeta + `, status: {conditions: [{type: Finished, status: "True"}]}}`

	labels  = `annotations: {kueue.x-k8s.io/workload: llm}, labels: {kueue.x-k8s.io/podset: node, kueue.x-k8s.io/local-queue-name: queue, kueue.x-k8s.io/cluster-queue-name: cq, ` + ofJob + `}`
	ofJob   = `jobset.sigs.k8s.io/jobset-uid: s, jobset.sigs.k8s.io/replicatedjob-name: node, jobset.sigs.k8s.io/job-index: "0"`
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
		"a pod is placed by two flavors": {
			story: func(s *story) {
				s.is(flavorB).is(onAAndB).is(`{kind: Pod, metadata: {uid: p1, name: p1, ` + labels + `}, spec: {nodeName: node-1, nodeSelector: {os: linux, gpu: a, zone: b}, tolerations: [{key: a, operator: Exists}, {key: b, operator: Exists}, {key: base, operator: Exists}]}}`)
			},
		},
		"a pod lacks what the second of its flavors says": {
			story: func(s *story) { s.is(flavorB).is(onAAndB).is(pod1) },
			want:  []Invariant{Exact},
		},
		"a pod matches one of its two flavors as it was before, whose watch was held back": {
			story: func(s *story) {
				s.is(flavorB).is(onAAndB).is(`{kind: ResourceFlavor, metadata: {uid: fa, name: a}, spec: {nodeLabels: {gpu: other}}}`)
				s.is(`{kind: Pod, metadata: {uid: p1, name: p1, ` + labels + `}, spec: {nodeName: node-1, nodeSelector: {os: linux, gpu: a, zone: b}, tolerations: [{key: a, operator: Exists}, {key: b, operator: Exists}, {key: base, operator: Exists}]}}`)
			},
			change: func(e *Expectation) { e.AnyFlavorVersion = true },
		},
		"a pod lacks Kueue's labels": {
			story: func(s *story) {
				s.is(onA).is(`{kind: Pod, metadata: {uid: p1, name: p1, annotations: {kueue.x-k8s.io/workload: llm}, labels: {` + ofJob + `}}, spec: {` + placed + `}}`)
			},
			want: []Invariant{Exact},
		},
		"a pod has the label of another ClusterQueue": {
			story: func(s *story) {
				s.is(onA).is(`{kind: Pod, metadata: {uid: p1, name: p1, annotations: {kueue.x-k8s.io/workload: llm}, labels: {kueue.x-k8s.io/podset: node, kueue.x-k8s.io/local-queue-name: queue, kueue.x-k8s.io/cluster-queue-name: other, ` + ofJob + `}}, spec: {` + placed + `}}`)
			},
			want: []Invariant{Exact},
		},
		"a bound pod is still marked as gated": {
			story: func(s *story) {
				s.is(onA).is(`{kind: Pod, metadata: {uid: p1, name: p1, annotations: {kueue.x-k8s.io/workload: llm}, labels: {kueue-trainer.dev/gated: "true", kueue.x-k8s.io/podset: node, kueue.x-k8s.io/local-queue-name: queue, kueue.x-k8s.io/cluster-queue-name: cq, ` + ofJob + `}}, spec: {` + placed + `}}`)
			},
			want: []Invariant{Exact},
		},
		"a pod names no Workload": {
			story: func(s *story) {
				s.is(onA).is(`{kind: Pod, metadata: {uid: p1, name: p1, labels: {kueue.x-k8s.io/podset: node, kueue.x-k8s.io/local-queue-name: queue, kueue.x-k8s.io/cluster-queue-name: cq, ` + ofJob + `}}, spec: {` + placed + `}}`)
			},
			want: []Invariant{Exact},
		},
		"a pod is bound after its Workload finished": {
			story: func(s *story) { s.is(onA).is(finished).is(pod1) },
			want:  []Invariant{NoQuotaNoPod},
		},
		"a pod is made and bound while its Workload is evicted": {
			story: func(s *story) { s.is(onA).is(stopping).is(pod1) },
			want:  []Invariant{NoQuotaNoPod},
		},
		"a pod is made and bound while its Workload is inactive": {
			story: func(s *story) { s.is(onA).is(deactivated).is(pod1) },
			want:  []Invariant{NoQuotaNoPod},
		},
		"a gated pod loses its gate while its Workload is evicted": {
			story: func(s *story) {
				s.is(onA).is(`{kind: Pod, metadata: {uid: p1, name: p1, ` + labels + `}, spec: {schedulingGates: [{name: g}]}}`).is(stopping).is(pod1)
			},
			want: []Invariant{NoQuotaNoPod},
		},
		"the scheduler binds what was there before the eviction": {
			story: func(s *story) { s.is(onA).is(unbound).is(stopping).is(pod1) },
		},
		"a job is activated again and starts": {
			story: func(s *story) { s.is(onA).is(deactivated).is(waiting).is(onA).is(pod1) },
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
		"quota goes with a TrainJob that its user deletes, while its pod runs": {
			story: func(s *story) { s.is(onA).is(pod1).gone(trainJob).gone(onA) },
			want:  []Invariant{OneIncarnation},
		},
		"quota goes after the last pod of a TrainJob that its user deletes": {
			story: func(s *story) { s.is(onA).is(pod1).gone(trainJob).gone(pod1).gone(onA) },
		},
		"two pods at one place": {
			story: func(s *story) { s.is(onA).is(pod1).is(pod2) },
			want:  []Invariant{OneIncarnation, NotOursToStop},
		},
		"a pod is started again without an eviction": {
			story: func(s *story) { s.is(onA).is(pod1).gone(pod1).is(pod2) },
			want:  []Invariant{NotOursToStop},
		},
		"a pod is started again for a user's edit": {
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
		"our entry is no longer the last": {
			story: func(s *story) {
				s.is(`{kind: TrainJob, metadata: {uid: t, name: llm}, spec: {runtimePatches: [{manager: ours}, {manager: user, time: a, zero: 0}]}}`)
			},
			want: []Invariant{Exact},
		},
		"a user writes past the webhook, and we put it right": {
			story: func(s *story) {
				s.is(`{kind: TrainJob, metadata: {uid: t, name: llm}, spec: {suspend: true, runtimePatches: [{manager: ours}, {manager: user, time: a, zero: 0}]}}`)
				s.is(`{kind: TrainJob, metadata: {uid: t, name: llm}, spec: {suspend: true, runtimePatches: [{manager: ours}, {manager: user, time: b, zero: 0}]}}`)
				s.is(`{kind: TrainJob, metadata: {uid: t, name: llm}, spec: {suspend: false, runtimePatches: [{manager: user, time: b, zero: 0}, {manager: ours}]}}`)
			},
			change: func(e *Expectation) { e.UserWrites = map[uint64]bool{4: true} },
		},
		"a user writes past the webhook, and we start the job with it": {
			story: func(s *story) {
				s.is(`{kind: TrainJob, metadata: {uid: t, name: llm}, spec: {suspend: true, runtimePatches: [{manager: ours}, {manager: user, time: a, zero: 0}]}}`)
				s.is(`{kind: TrainJob, metadata: {uid: t, name: llm}, spec: {suspend: false, runtimePatches: [{manager: ours}, {manager: user, time: a, zero: 0}]}}`)
			},
			want:   []Invariant{Exact},
			change: func(e *Expectation) { e.UserWrites = map[uint64]bool{4: true} },
		},
		"each replicated job has an override of ours": {
			story: func(s *story) {
				s.is(`{kind: TrainJob, metadata: {uid: o, name: older}, spec: {podTemplateOverrides: [{zero: 0}, {metadata: {annotations: {kueue-trainer.dev/manager: ours}}}, {metadata: {annotations: {kueue-trainer.dev/manager: ours}}}]}}`)
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
