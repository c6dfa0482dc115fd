// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"cmp"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestReservedByOthers(t *testing.T) {
	entry := func(manager, pod string) string {
		return `{"runtimePatches":[{"manager":"` + manager + `","trainingRuntimeSpec":{"template":{"spec":{"replicatedJobs":[{"name":"node","template":{"spec":{"template":` + pod + `}}}]}}}}]}`
	}
	const pod = "spec.runtimePatches[example.com/me].trainingRuntimeSpec.template.spec.replicatedJobs[0].template.spec.template."
	cases := map[string]struct {
		served trainjob.TrainerVersion
		spec   string
		want   []string
	}{
		"our gate in another entry": {
			spec: entry("example.com/me", `{"spec":{"schedulingGates":[{"name":"example.com/mine"},{"name":"kueue-trainer.dev/admission"}]}}`),
			want: []string{pod + "spec.schedulingGates[1].name"},
		},
		"a gate of Kueue's, and our label": {
			spec: entry("example.com/me", `{"metadata":{"labels":{"kueue-trainer.dev/gated":"false"}},"spec":{"schedulingGates":[{"name":"kueue.x-k8s.io/topology"}]}}`),
			want: []string{pod + "metadata.labels[kueue-trainer.dev/gated]", pod + "spec.schedulingGates[0].name"},
		},
		"our own entry":                 {spec: entry(Manager, `{"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}`)},
		"gates of others":               {spec: entry("example.com/me", `{"spec":{"schedulingGates":[{"name":"example.com/kueue.x-k8s.io"}]}}`)},
		"the words elsewhere":           {spec: entry("example.com/me", `{"metadata":{"annotations":{"kueue-trainer.dev/gated":"true"}},"spec":{"volumes":[{"name":"kueue-trainer.dev/admission"}]}}`)},
		"entries that cannot be read":   {spec: `{"runtimePatches":[null,7,{"manager":7},{"trainingRuntimeSpec":{"template":null}}]}`},
		"nothing":                       {spec: `{}`},
		"overrides that cannot be read": {served: trainjob.Trainer21, spec: `{"podTemplateOverrides":[null,7,{"spec":{"schedulingGates":7},"metadata":{"labels":[]}}]}`},
		"our own override":              {served: trainjob.Trainer21, spec: `{"podTemplateOverrides":[{"targetJobs":[{"name":"node"}],"metadata":{"annotations":{"kueue-trainer.dev/manager":"kueue.x-k8s.io/manager"}},"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}]}`},
		"our gate in an override, behind": {
			served: trainjob.Trainer21,
			spec:   `{"podTemplateOverrides":[{"targetJobs":[{"name":"node"}]},{"targetJobs":[{"name":"node"}],"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}]}`,
			want:   []string{"spec.podTemplateOverrides[1].spec.schedulingGates[0].name"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, path := range Of(cmp.Or(tc.served, trainjob.Trainer23)).ReservedByOthers(specOf(t, tc.spec)) {
				got = append(got, path.String())
			}
			expect.Same(t, "Unexpected places", tc.want, got)
		})
	}
}
