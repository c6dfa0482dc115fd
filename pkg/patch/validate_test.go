// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func jobsPatched(manager string, jobs ...string) string {
	list := make([]string, 0, len(jobs))
	for _, job := range jobs {
		list = append(list, `{"name":"`+job+`"}`)
	}
	return `{"manager":"` + manager + `","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[` + strings.Join(list, ",") + `]}}}}`
}

func TestUnknownJobs(t *testing.T) {
	cases := map[string]struct {
		patches []string
		want    []string
		message []string
	}{
		"no patches":                      {},
		"only jobs that exist":            {patches: []string{jobsPatched("a.io/x", "node", "launcher"), jobsPatched("b.io/x", "node")}},
		"entries without replicated jobs": {patches: []string{`{"manager":"a.io/x"}`, `{"trainingRuntimeSpec":{}}`, `{"trainingRuntimeSpec":{"template":{}}}`, `{"trainingRuntimeSpec":{"template":{"spec":{}}}}`, `null`}},
		"a job that does not exist": {patches: []string{jobsPatched("b.io/x", "node"), jobsPatched("a.io/x", "node", "worker")},
			want:    []string{"spec.runtimePatches[a.io/x].trainingRuntimeSpec.template.spec.replicatedJobs[1].name: FieldValueInvalid"},
			message: []string{`"worker"`, "node, launcher"}},
		"all of them are told, and none of ours": {
			patches: []string{jobsPatched(Manager, "w1"), jobsPatched("a.io/x", "w2", "w3")},
			want: []string{
				"spec.runtimePatches[a.io/x].trainingRuntimeSpec.template.spec.replicatedJobs[0].name: FieldValueInvalid",
				"spec.runtimePatches[a.io/x].trainingRuntimeSpec.template.spec.replicatedJobs[1].name: FieldValueInvalid",
			},
			message: []string{`"w2"`, `"w3"`},
		},
		"an entry that cannot be read, and the next": {
			patches: []string{`{"manager":"a.io/x","trainingRuntimeSpec":7}`, jobsPatched("b.io/x", "worker")},
			want: []string{
				"spec.runtimePatches[a.io/x]: FieldValueInvalid",
				"spec.runtimePatches[b.io/x].trainingRuntimeSpec.template.spec.replicatedJobs[0].name: FieldValueInvalid",
			},
			message: []string{"a.io/x", `"worker"`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			errs := Of(trainjob.Trainer23).UnknownJobs(&trainjob.Spec{RuntimePatches: entries(t, tc.patches...)}, []string{"node", "launcher"})
			expect.Same(t, "Unexpected errors", tc.want, expect.FieldsAndTypes(errs))
			if len(tc.message) > 0 {
				expect.ErrorWith(t, errs.ToAggregate(), tc.message...)
			}
		})
	}
}

func TestChanged(t *testing.T) {
	forbidden := []string{"spec.runtimePatches[kueue.x-k8s.io/manager]: FieldValueForbidden"}
	cases := map[string]struct {
		before, after []string
		allowed       []string
		want          []string
	}{
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
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := func(patches []string) *trainjob.Spec { return &trainjob.Spec{RuntimePatches: entries(t, patches...)} }
			errs := Changed(Of(trainjob.Trainer23), spec(tc.before), spec(tc.after), spec(tc.allowed))
			expect.Same(t, "Unexpected errors", tc.want, expect.FieldsAndTypes(errs))
			expect.That(t, len(errs) == 0 || strings.Contains(errs[0].Detail, "another manager name"), "Errors %q do not say what to do", errs)
		})
	}
}
