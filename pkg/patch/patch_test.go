// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func entries(t testing.TB, raw ...string) []trainjob.RuntimePatch {
	t.Helper()
	var all []trainjob.RuntimePatch
	for _, data := range raw {
		all = append(all, expect.FromJSON[trainjob.RuntimePatch](t, data))
	}
	return all
}

func texts(t testing.TB, patches []trainjob.RuntimePatch) []string {
	t.Helper()
	all := make([]string, 0, len(patches))
	for _, p := range patches {
		all = append(all, string(expect.Must(p.MarshalJSON())(t)))
	}
	return all
}

const (
	ours     = `{"manager":"kueue.x-k8s.io/manager","n":1}`
	newOurs  = `{"manager":"kueue.x-k8s.io/manager","n":2}`
	othersA  = `{"z":"","manager":"a.io/x","readOnly":false}`
	othersB  = `{"manager":"b.io/x"}`
	nobodys  = `{"time":null}`
	anything = `7`
)

func TestEntry(t *testing.T) {
	cases := map[string]struct {
		placements []Placement
		want       string
	}{
		"gated": {
			placements: []Placement{Gated("node"), Gated("launcher")},
			want: `{"manager":"kueue.x-k8s.io/manager","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[` +
				`{"name":"node","template":{"spec":{"template":{"metadata":{"labels":{"kueue-trainer.dev/gated":"true"}},"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}}}},` +
				`{"name":"launcher","template":{"spec":{"template":{"metadata":{"labels":{"kueue-trainer.dev/gated":"true"}},"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}}}}` +
				`]}}}}`,
		},
		"everything an admission can add": {
			placements: []Placement{{
				Name:         "node",
				Labels:       map[string]string{"kueue.x-k8s.io/podset": "node"},
				Annotations:  map[string]string{"kueue.x-k8s.io/workload": "wl"},
				NodeSelector: map[string]string{"pool": "h100", "gpu": "h100"},
				Tolerations: []corev1.Toleration{
					{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
					{Key: "spot", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: new(int64(0))},
				},
				SchedulingGates: []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/topology"}},
			}},
			want: `{"manager":"kueue.x-k8s.io/manager","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[` +
				`{"name":"node","template":{"spec":{"template":{` +
				`"metadata":{"labels":{"kueue.x-k8s.io/podset":"node"},"annotations":{"kueue.x-k8s.io/workload":"wl"}},` +
				`"spec":{"nodeSelector":{"gpu":"h100","pool":"h100"},` +
				`"tolerations":[{"key":"nvidia.com/gpu","operator":"Exists","effect":"NoSchedule"},{"key":"spot","effect":"NoExecute","tolerationSeconds":0}],` +
				`"schedulingGates":[{"name":"kueue.x-k8s.io/topology"}]}}}}}` +
				`]}}}}`,
		},
		"an admission that adds nothing": {
			placements: []Placement{{Name: "node", Labels: map[string]string{}, NodeSelector: map[string]string{}}},
			want: `{"manager":"kueue.x-k8s.io/manager","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[` +
				`{"name":"node","template":{"spec":{"template":{"spec":{}}}}}` +
				`]}}}}`,
		},
		"no replicated jobs": {want: `{"manager":"kueue.x-k8s.io/manager","trainingRuntimeSpec":{"template":{"spec":{}}}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var spec trainjob.Spec
			expect.Must(Of(trainjob.Trainer23).Set(&spec, tc.placements))(t)
			expect.Same(t, "Unexpected entry", []string{tc.want}, texts(t, spec.RuntimePatches))
		})
	}
}

func TestOursGoesLastAndOthersStay(t *testing.T) {
	cases := map[string]struct {
		patches    []string
		wantOthers []string
		wantLast   bool
	}{
		"no entries":                            {wantOthers: []string{}},
		"only ours":                             {patches: []string{ours}, wantOthers: []string{}, wantLast: true},
		"only others, in an order of their own": {patches: []string{othersB, othersA}, wantOthers: []string{othersB, othersA}},
		"ours last":                             {patches: []string{othersB, othersA, ours}, wantOthers: []string{othersB, othersA}, wantLast: true},
		"ours first":                            {patches: []string{ours, othersB, othersA}, wantOthers: []string{othersB, othersA}},
		"ours twice":                            {patches: []string{othersB, ours, othersA, newOurs}, wantOthers: []string{othersB, othersA}},
		"entries without a manager are somebody else's": {patches: []string{nobodys, ours, anything}, wantOthers: []string{nobodys, anything}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := Of(trainjob.Trainer23)
			// Room at the end is where an append would write into the caller's array.
			patches := append(make([]trainjob.RuntimePatch, 0, 8), entries(t, tc.patches...)...)
			room := patches[:len(patches)+1]
			spec := &trainjob.Spec{RuntimePatches: patches}
			expect.Same(t, "Unexpected Last", tc.wantLast, f.Last(spec))
			expect.Same(t, "Unexpected others", tc.wantOthers, texts(t, expect.Must(f.Others(spec))(t)))
			f.Copy(spec, &trainjob.Spec{RuntimePatches: entries(t, newOurs)})
			expect.Same(t, "Unexpected list with a new entry of ours", append(tc.wantOthers, newOurs), texts(t, spec.RuntimePatches))
			expect.That(t, f.Last(spec), "Last denies what Copy made")
			expect.Same(t, "The given list changed", append([]string{}, tc.patches...), texts(t, patches))
			expect.That(t, room[len(patches)].Manager == "", "The array behind the given list was written to")
		})
	}
}
