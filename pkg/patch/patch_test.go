// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func entries(t testing.TB, raw ...string) []trainjob.RuntimePatch {
	t.Helper()
	return expect.Each(raw, func(data string) trainjob.RuntimePatch { return expect.FromJSON[trainjob.RuntimePatch](t, data) })
}

func texts(t testing.TB, patches []trainjob.RuntimePatch) []string {
	t.Helper()
	return expect.Each(patches, func(p trainjob.RuntimePatch) string { return string(expect.Must(p.MarshalJSON())(t)) })
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
	const gated = `{"metadata":{"labels":{"kueue-trainer.dev/gated":"true"}},"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}`
	of := func(job, template string) string {
		return `{"name":"` + job + `","template":{"spec":{"template":` + template + `}}}`
	}
	expect.Rows(t, map[string]expect.Row[[]Placement, string]{
		"gated": {In: []Placement{Gated("node"), Gated("launcher")}, Want: `"replicatedJobs":[` + of("node", gated) + `,` + of("launcher", gated) + `]`},
		"everything an admission can add": {In: []Placement{{
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
			Want: `"replicatedJobs":[` + of("node", `{"metadata":{"labels":{"kueue.x-k8s.io/podset":"node"},"annotations":{"kueue.x-k8s.io/workload":"wl"}},`+
				`"spec":{"nodeSelector":{"gpu":"h100","pool":"h100"},`+
				`"tolerations":[{"key":"nvidia.com/gpu","operator":"Exists","effect":"NoSchedule"},{"key":"spot","effect":"NoExecute","tolerationSeconds":0}],`+
				`"schedulingGates":[{"name":"kueue.x-k8s.io/topology"}]}}`) + `]`},
		"an admission that adds nothing": {In: []Placement{{Name: "node", Labels: map[string]string{}, NodeSelector: map[string]string{}}},
			Want: `"replicatedJobs":[` + of("node", `{"spec":{}}`) + `]`},
		"no replicated jobs": {},
	}, func(t *testing.T, tc expect.Row[[]Placement, string]) {
		var spec trainjob.Spec
		Of(trainjob.Trainer23).Set(&spec, tc.In)
		want := []string{`{"manager":"kueue.x-k8s.io/manager","trainingRuntimeSpec":{"template":{"spec":{` + tc.Want + `}}}}`}
		expect.Same(t, "Unexpected entry", want, texts(t, spec.RuntimePatches))
	})
}

func TestOursGoesLastAndOthersStay(t *testing.T) {
	type row struct {
		patches, wantOthers []string
		wantLast            bool
	}
	expect.Rows(t, map[string]row{
		"no entries":                            {},
		"only ours":                             {patches: []string{ours}, wantLast: true},
		"only others, in an order of their own": {patches: []string{othersB, othersA}, wantOthers: []string{othersB, othersA}},
		"ours last":                             {patches: []string{othersB, othersA, ours}, wantOthers: []string{othersB, othersA}, wantLast: true},
		"ours first":                            {patches: []string{ours, othersB, othersA}, wantOthers: []string{othersB, othersA}},
		"ours twice":                            {patches: []string{othersB, ours, othersA, newOurs}, wantOthers: []string{othersB, othersA}},
		"entries without a manager are somebody else's": {patches: []string{nobodys, ours, anything}, wantOthers: []string{nobodys, anything}},
	}, func(t *testing.T, tc row) {
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
		expect.Same(t, "The given list changed", tc.patches, texts(t, patches))
		expect.That(t, room[len(patches)].Manager == "", "The array behind the given list was written to")
	})
}

func jobsPatched(manager string, jobs ...string) string {
	list := expect.Each(jobs, func(job string) string { return `{"name":"` + job + `"}` })
	return `{"manager":"` + manager + `","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[` + strings.Join(list, ",") + `]}}}}`
}

func TestPatched(t *testing.T) {
	patched := func(entry string) bool {
		return Patched(Of(trainjob.Trainer23), &trainjob.Spec{RuntimePatches: entries(t, entry)})
	}
	expect.Answers(t, patched, map[string]expect.Row[string, bool]{
		"our entry with a job":                    {In: jobsPatched(Manager, "node"), Want: true},
		"our entry without, as in-tree leaves it": {In: ours},
		"our entry, which cannot be read":         {In: `{"manager":"` + Manager + `","trainingRuntimeSpec":7}`, Want: true},
		"somebody's":                              {In: jobsPatched("a.io/x", "node")},
	})
}

func TestStampTouchesNobodyElse(t *testing.T) {
	patches := entries(t, othersA, jobsPatched(Manager, "node"), nobodys)
	expect.NoError(t, Stamp(patches, metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))))
	stamped := strings.Replace(jobsPatched(Manager, "node"), `","`, `","time":"2026-01-02T03:04:05Z","`, 1)
	got := texts(t, patches)
	expect.Same(t, "Others' entries differ", []string{othersA, nobodys}, []string{got[0], got[2]})
	expect.That(t, trainjob.SemanticallyEqual([]byte(stamped), []byte(got[1])), "Our entry is %s, want %s", got[1], stamped)
}

// One answer stays small, whatever names a tenant gives the replicated jobs of his runtime, and however many jobs he patches.
func TestUnknownJobsAreToldToABound(t *testing.T) {
	var jobs []string
	for i := range 1000 {
		jobs = append(jobs, fmt.Sprintf(`{"name":"job-%d"}`, i))
	}
	spec := &trainjob.Spec{RuntimePatches: entries(t, `{"manager":"a","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[`+strings.Join(jobs, ",")+`]}}}}`)}
	errs := Of(trainjob.Trainer23).UnknownJobs(spec, []string{strings.Repeat("x", 50000), "node"})
	expect.That(t, len(errs) == 10 && len(errs.ToAggregate().Error()) < 20000, "%d errors of %d bytes", len(errs), len(errs.ToAggregate().Error()))
}

func TestUnknownJobs(t *testing.T) {
	type row struct{ patches, want, message []string }
	expect.Rows(t, map[string]row{
		"no patches":                      {},
		"only jobs that exist":            {patches: []string{jobsPatched("a.io/x", "node", "launcher"), jobsPatched("b.io/x", "node")}},
		"entries without replicated jobs": {patches: []string{`{"manager":"a.io/x"}`, `{"trainingRuntimeSpec":{}}`, `{"trainingRuntimeSpec":{"template":{}}}`, `{"trainingRuntimeSpec":{"template":{"spec":{}}}}`, `null`}},
		"a job that does not exist": {patches: []string{jobsPatched("b.io/x", "node"), jobsPatched("a.io/x", "node", "worker")},
			want:    []string{"spec.runtimePatches[a.io/x].trainingRuntimeSpec.template.spec.replicatedJobs[1].name: FieldValueInvalid"},
			message: []string{`"worker"`, "node, launcher"}},
		"all of them are told, and none of ours": {patches: []string{jobsPatched(Manager, "w1"), jobsPatched("a.io/x", "w2", "w3")},
			want: []string{
				"spec.runtimePatches[a.io/x].trainingRuntimeSpec.template.spec.replicatedJobs[0].name: FieldValueInvalid",
				"spec.runtimePatches[a.io/x].trainingRuntimeSpec.template.spec.replicatedJobs[1].name: FieldValueInvalid",
			}, message: []string{`"w2"`, `"w3"`}},
		"an entry that cannot be read, and the next": {patches: []string{`{"manager":"a.io/x","trainingRuntimeSpec":7}`, jobsPatched("b.io/x", "worker")},
			want: []string{
				"spec.runtimePatches[a.io/x]: FieldValueInvalid",
				"spec.runtimePatches[b.io/x].trainingRuntimeSpec.template.spec.replicatedJobs[0].name: FieldValueInvalid",
			}, message: []string{"a.io/x", `"worker"`}},
	}, func(t *testing.T, tc row) {
		errs := Of(trainjob.Trainer23).UnknownJobs(&trainjob.Spec{RuntimePatches: entries(t, tc.patches...)}, []string{"node", "launcher"})
		expect.Same(t, "Unexpected errors", tc.want, expect.FieldsAndTypes(errs))
		if len(tc.message) > 0 {
			expect.ErrorWith(t, errs.ToAggregate(), tc.message...)
		}
	})
}

func TestChanged(t *testing.T) {
	forbidden := []string{"spec.runtimePatches[kueue.x-k8s.io/manager]: FieldValueForbidden"}
	type row struct{ before, after, allowed, want []string }
	expect.Rows(t, map[string]row{
		"it is brought in by our webhook":                   {before: []string{othersA}, after: []string{othersA, ours}, allowed: []string{ours}},
		"it is brought in with something else":              {before: []string{othersA}, after: []string{othersA, newOurs}, allowed: []string{ours}, want: forbidden},
		"what is allowed does not count where it was there": {before: []string{ours}, after: []string{newOurs}, allowed: []string{newOurs}, want: forbidden},
		"there is none":                  {before: []string{othersA}, after: []string{othersB}},
		"it stays":                       {before: []string{othersA, ours}, after: []string{othersA, ours}},
		"only others change":             {before: []string{othersA, ours}, after: []string{ours, othersB}},
		"only its time changes":          {before: []string{`{"manager":"kueue.x-k8s.io/manager","time":1}`}, after: []string{`{"time":2,"manager":"kueue.x-k8s.io/manager"}`}},
		"it is removed, which we repair": {before: []string{othersA, ours}, after: []string{othersA}},
		"it is changed":                  {before: []string{ours}, after: []string{newOurs}, want: forbidden},
		"it is brought in":               {before: []string{othersA}, after: []string{othersA, ours}, want: forbidden},
	}, func(t *testing.T, tc row) {
		spec := func(patches []string) *trainjob.Spec { return &trainjob.Spec{RuntimePatches: entries(t, patches...)} }
		errs := Changed(Of(trainjob.Trainer23), spec(tc.before), spec(tc.after), spec(tc.allowed))
		expect.Same(t, "Unexpected errors", tc.want, expect.FieldsAndTypes(errs))
		expect.That(t, len(errs) == 0 || strings.Contains(errs[0].Detail, "another manager name"), "Errors %q do not say what to do", errs)
	})
}
