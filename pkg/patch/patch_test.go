// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

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

func entry(t testing.TB, raw string) trainjob.RuntimePatch {
	t.Helper()
	return entries(t, raw)[0]
}

func texts(t testing.TB, patches []trainjob.RuntimePatch) []string {
	t.Helper()
	all := make([]string, 0, len(patches))
	for _, p := range patches {
		data := expect.Must(p.MarshalJSON())(t)
		all = append(all, string(data))
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
					{Key: "spot", Effect: corev1.TaintEffectNoExecute, TolerationSeconds: ptr.To[int64](0)},
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
			got := expect.Must(Entry(tc.placements))(t)
			expect.Same(t, "Unexpected manager", Manager, got.Manager)
			expect.Same(t, "Unexpected entry", []string{tc.want}, texts(t, []trainjob.RuntimePatch{got}))
		})
	}
}

func TestOthersFindWithLast(t *testing.T) {
	cases := map[string]struct {
		patches    []string
		wantFind   string
		wantOthers []string
		wantLast   bool
	}{
		"no entries":                            {wantOthers: []string{}},
		"only ours":                             {patches: []string{ours}, wantFind: ours, wantOthers: []string{}, wantLast: true},
		"only others, in an order of their own": {patches: []string{othersB, othersA}, wantOthers: []string{othersB, othersA}},
		"ours last":                             {patches: []string{othersB, othersA, ours}, wantFind: ours, wantOthers: []string{othersB, othersA}, wantLast: true},
		"ours first":                            {patches: []string{ours, othersB, othersA}, wantFind: ours, wantOthers: []string{othersB, othersA}},
		"ours twice":                            {patches: []string{othersB, ours, othersA, newOurs}, wantFind: ours, wantOthers: []string{othersB, othersA}},
		"ours twice at the end":                 {patches: []string{othersB, ours, newOurs}, wantFind: ours, wantOthers: []string{othersB}},
		"entries without a manager are somebody else's": {patches: []string{nobodys, ours, anything}, wantFind: ours, wantOthers: []string{nobodys, anything}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			patches := entries(t, tc.patches...)
			found := []string{}
			if p := find(patches); p != nil {
				found = texts(t, []trainjob.RuntimePatch{*p})
			}
			wantFound := []string{}
			if tc.wantFind != "" {
				wantFound = []string{tc.wantFind}
			}
			expect.Same(t, "Unexpected entry of ours", wantFound, found)
			expect.Same(t, "Unexpected others", tc.wantOthers, texts(t, Others(patches)))
			with := With(patches, entry(t, newOurs))
			expect.Same(t, "Unexpected list with a new entry of ours", append(tc.wantOthers, newOurs), texts(t, with))
			expect.That(t, Last(with), "Last denies what With made")
			expect.Same(t, "Unexpected Last", tc.wantLast, Last(patches))
			expect.Same(t, "The given list changed", append([]string{}, tc.patches...), texts(t, patches))
		})
	}
}

func TestOthersAndWithGiveListsOfTheirOwn(t *testing.T) {
	for name, tc := range map[string][]string{
		"nothing to leave out":    {othersA, othersB},
		"ours in the middle":      {othersA, ours, othersB},
		"ours last, in its place": {othersA, othersB, ours},
	} {
		t.Run(name, func(t *testing.T) {
			// Room at the end is where an append would write into the caller's array.
			patches := append(make([]trainjob.RuntimePatch, 0, 8), entries(t, tc...)...)
			room := patches[:len(patches)+1]
			for _, result := range [][]trainjob.RuntimePatch{Others(patches), With(patches, entry(t, newOurs))} {
				for i := range result {
					result[i] = trainjob.RuntimePatch{Manager: "changed"}
				}
				_ = append(result, trainjob.RuntimePatch{Manager: "changed"})
			}
			expect.Same(t, "The given list changed", tc, texts(t, patches))
			expect.That(t, room[len(patches)].Manager == "", "The array behind the given list was written to")
		})
	}
}

func TestFindGivesTheEntryInItsPlace(t *testing.T) {
	patches := entries(t, othersA, ours, newOurs)
	expect.That(t, find(patches) == &patches[1], "Find does not return the second element itself")
	expect.That(t, FindManager(patches, "a.io/x") == &patches[0], "FindManager does not return the first element itself")
	expect.Same(t, "FindManager finds a manager that is not there", nil, FindManager(patches, "c.io/x"))
}

func TestSame(t *testing.T) {
	cases := map[string]struct {
		a, b string
		want bool
	}{
		"equal bytes":                    {a: othersA, b: othersA, want: true},
		"another time":                   {a: `{"manager":"m","time":"2026-01-01T00:00:00Z"}`, b: `{"manager":"m","time":"2026-01-02T00:00:00Z"}`, want: true},
		"a time and none":                {a: `{"manager":"m","time":"2026-01-01T00:00:00Z"}`, b: `{"manager":"m"}`, want: true},
		"another order of keys":          {a: `{"manager":"m","x":{"a":1,"b":2}}`, b: `{"x":{"b":2,"a":1},"manager":"m"}`, want: true},
		"white space":                    {a: `{"manager" : "m"}`, b: `{"manager":"m"}`, want: true},
		"another value":                  {a: `{"manager":"m","x":1}`, b: `{"manager":"m","x":2}`},
		"numbers that a float takes for": {a: `{"x":9007199254740993}`, b: `{"x":9007199254740992}`},
		"a time further down counts":     {a: `{"x":{"time":1}}`, b: `{"x":{"time":2}}`},
		"an unknown field more":          {a: `{"manager":"m","future":null}`, b: `{"manager":"m"}`},
		"an explicit zero more":          {a: `{"x":{"readOnly":false}}`, b: `{"x":{}}`},
		"another order of a list":        {a: `{"x":["a","b"]}`, b: `{"x":["b","a"]}`},
		"another manager":                {a: `{"manager":"m"}`, b: `{"manager":"n"}`},
		"an entry and none":              {a: `{}`, b: `null`},
		"equal entries that are no maps": {a: `7`, b: `7`, want: true},
		"entries that are no maps":       {a: `7`, b: `8`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a, b := entry(t, tc.a), entry(t, tc.b)
			expect.Same(t, "Unexpected Same", tc.want, Same(a, b))
			expect.Same(t, "Unexpected Same the other way round", tc.want, Same(b, a))
		})
	}
}
