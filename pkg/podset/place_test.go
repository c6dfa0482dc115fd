// SPDX-License-Identifier: Apache-2.0

package podset

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func podSet(name kueue.PodSetReference, change func(*corev1.PodTemplateSpec)) kueue.PodSet {
	return kueue.PodSet{Name: name, Count: 1, Template: *kit.With(&corev1.PodTemplateSpec{}, change)}
}

func TestPlace(t *testing.T) {
	spot, no := corev1.Toleration{Key: "spot", Value: "yes"}, corev1.Toleration{Key: "spot", Value: "no"}
	equal, evicting := spot, spot
	equal.Operator, evicting.Effect = corev1.TolerationOpEqual, corev1.TaintEffectNoExecute
	node := func() kueuelib.PodSetInfo {
		return kueuelib.PodSetInfo{
			Name: "node", Count: 1, Labels: map[string]string{"kueue.x-k8s.io/podset": "node", "same": "s"}, Annotations: map[string]string{"kueue.x-k8s.io/workload": "wl"},
			NodeSelector: map[string]string{"pool": "h100", "gpu": "h100"}, Tolerations: []corev1.Toleration{exists("spot")}, SchedulingGates: gates("kueue.x-k8s.io/topology"),
		}
	}
	as := func(i kueuelib.PodSetInfo) patch.Placement {
		return patch.Placement{
			Name: "node", Labels: i.Labels, Annotations: i.Annotations, NodeSelector: i.NodeSelector, Tolerations: i.Tolerations, SchedulingGates: i.SchedulingGates,
		}
	}
	type row struct {
		podSets []kueue.PodSet
		infos   []kueuelib.PodSetInfo
		want    []patch.Placement
	}
	expect.Rows(t, map[string]row{
		"no PodSets": {want: []patch.Placement{}},
		"an admission that adds nothing keeps the base tolerations": {podSets: []kueue.PodSet{podSet("node", func(p *corev1.PodTemplateSpec) { p.Spec.Tolerations = []corev1.Toleration{exists("nvidia.com/gpu")} })},
			infos: []kueuelib.PodSetInfo{{Name: "node"}}, want: []patch.Placement{{Name: "node", Tolerations: []corev1.Toleration{exists("nvidia.com/gpu")}}}},
		"everything that an admission adds, each PodSet its own": {podSets: []kueue.PodSet{
			podSet("launcher", nil),
			podSet("node", func(p *corev1.PodTemplateSpec) {
				p.Labels = map[string]string{"mine": "1", "same": "s"}
				p.Annotations = map[string]string{"mine": "1"}
				p.Spec.NodeSelector = map[string]string{"zone": "z1", "pool": "h100"}
				p.Spec.SchedulingGates = gates("example.com/mine")
			}),
		}, infos: []kueuelib.PodSetInfo{{Name: "launcher", Count: 1, NodeSelector: map[string]string{"pool": "cpu"}}, node()},
			want: []patch.Placement{{Name: "launcher", NodeSelector: map[string]string{"pool": "cpu"}}, as(node())}},
		"base tolerations first, then those of the admission that are not there": {
			podSets: []kueue.PodSet{podSet("node", func(p *corev1.PodTemplateSpec) {
				p.Spec.Tolerations = []corev1.Toleration{spot, exists("nvidia.com/gpu"), equal}
			})},
			infos: []kueuelib.PodSetInfo{{Name: "node", Tolerations: []corev1.Toleration{equal, no, evicting, exists("nvidia.com/gpu"), exists("pool")}}},
			want:  []patch.Placement{{Name: "node", Tolerations: []corev1.Toleration{spot, exists("nvidia.com/gpu"), no, evicting, exists("pool")}}}},
	}, func(t *testing.T, tc row) {
		expect.Same(t, "Unexpected placements", tc.want, expect.Must(Place(tc.podSets, tc.infos))(t))
	})
}

func TestPlaceErrorsArePermanentAndSayWhere(t *testing.T) {
	mine := func(p *corev1.PodTemplateSpec) {
		p.Labels = map[string]string{"team": "a"}
		p.Annotations = map[string]string{"note": "a"}
		p.Spec.NodeSelector = map[string]string{"pool": "a100", "zone": "z1"}
	}
	first := podSet("launcher", nil)
	type infos = []kueuelib.PodSetInfo
	type row struct {
		// podSets are nodes with all of mine where they are left out.
		podSets   []kueue.PodSet
		infos     infos
		wantInErr []string
	}
	expect.Rows(t, map[string]row{
		"another node selector": {podSets: []kueue.PodSet{first, podSet("node", mine)},
			infos:     infos{{Name: "launcher"}, {Name: "node", NodeSelector: map[string]string{"pool": "h100"}}},
			wantInErr: []string{"nodeSelector", `"node"`, "pool", `"a100"`, `"h100"`, "runtimePatches"}},
		"several keys of it": {infos: infos{{Name: "node", NodeSelector: map[string]string{"pool": "h100", "zone": "z2"}}},
			wantInErr: []string{"pool", "zone", `"z1"`, `"z2"`}},
		"another label": {infos: infos{{Name: "node", Labels: map[string]string{"team": "b"}}}, wantInErr: []string{"labels", `"node"`, "team", `"a"`, `"b"`}},
		"another annotation": {infos: infos{{Name: "node", Annotations: map[string]string{"note": ""}}},
			wantInErr: []string{"annotations", `"node"`, "note", `"a"`, `""`}},
		"fewer infos than PodSets": {podSets: []kueue.PodSet{first, podSet("node", nil)}, infos: infos{{Name: "launcher"}}, wantInErr: []string{"2", "1"}},
		"more infos than PodSets":  {podSets: []kueue.PodSet{}, infos: infos{{Name: "launcher"}}, wantInErr: []string{"0", "1"}},
		"infos of other PodSets": {podSets: []kueue.PodSet{first, podSet("node", nil)}, infos: infos{{Name: "launcher"}, {Name: "worker"}},
			wantInErr: []string{`"node"`, `"worker"`}},
	}, func(t *testing.T, tc row) {
		if tc.podSets == nil {
			tc.podSets = []kueue.PodSet{podSet("node", mine)}
		}
		placements, err := Place(tc.podSets, tc.infos)
		expect.ErrorWith(t, err, tc.wantInErr...)
		expect.That(t, kueuelib.IsPermanent(err), "Error %q is not permanent", err)
		expect.That(t, placements == nil, "Placements %v beside an error", placements)
		// Another message for the same would be an event of its own.
		for range 20 {
			_, again := Place(tc.podSets, tc.infos)
			expect.Same(t, "Unexpected second error", err.Error(), again.Error())
		}
	})
}

// Two tolerations that differ only in tolerationSeconds count as one, as in Kueue.
func TestPlaceKeepsTheFirstTolerationSeconds(t *testing.T) {
	evicted := func(seconds int64) corev1.Toleration {
		return corev1.Toleration{Key: "flaky", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(seconds)}
	}
	podSets := []kueue.PodSet{podSet("node", func(p *corev1.PodTemplateSpec) { p.Spec.Tolerations = []corev1.Toleration{evicted(60)} })}
	got := expect.Must(Place(podSets, []kueuelib.PodSetInfo{{Name: "node", Tolerations: []corev1.Toleration{evicted(5)}}}))(t)
	expect.Same(t, "Unexpected tolerations", []corev1.Toleration{evicted(60)}, got[0].Tolerations)
}
