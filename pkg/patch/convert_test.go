// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"cmp"
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// What renders does not look at owners: an override behind ours wins, as it does in Trainer.
func TestAllOverridesAreOnePatch(t *testing.T) {
	spec := specOf(t, `{"podTemplateOverrides":[
		{"targetJobs":[{"name":"node"}],"spec":{"nodeSelector":{"pool":"first","zone":"first"}}},
		`+sides["podTemplateOverrides"].placed+`,
		{"targetJobs":[{"name":"node"}],"spec":{"nodeSelector":{"pool":"last"}}}]}`)
	entry := expect.Must(one(t)(Of(trainjob.Trainer21).All(spec)).Decode())(t)
	pod := replicatedJobs(&entry)[0].Template.Spec.Template
	expect.Same(t, "Unexpected node selector", map[string]string{"pool": "last", "zone": "first"}, pod.Spec.NodeSelector)
	expect.Same(t, "Trainer gives the pods our mark, and what is rendered does not have it", Manager, pod.Metadata.Annotations[ManagerAnnotation])
}

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
		"our gate in another entry": {spec: entry("example.com/me", `{"spec":{"schedulingGates":[{"name":"example.com/mine"},{"name":"kueue-trainer.dev/admission"}]}}`),
			want: []string{pod + "spec.schedulingGates[1].name"}},
		"a gate of Kueue's, and our label": {spec: entry("example.com/me", `{"metadata":{"labels":{"kueue-trainer.dev/gated":"false"}},"spec":{"schedulingGates":[{"name":"kueue.x-k8s.io/topology"}]}}`),
			want: []string{pod + "metadata.labels[kueue-trainer.dev/gated]", pod + "spec.schedulingGates[0].name"}},
		"our own entry":                 {spec: entry(Manager, `{"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}`)},
		"gates of others":               {spec: entry("example.com/me", `{"spec":{"schedulingGates":[{"name":"example.com/kueue.x-k8s.io"}]}}`)},
		"the words elsewhere":           {spec: entry("example.com/me", `{"metadata":{"annotations":{"kueue-trainer.dev/gated":"true"}},"spec":{"volumes":[{"name":"kueue-trainer.dev/admission"}]}}`)},
		"entries that cannot be read":   {spec: `{"runtimePatches":[null,7,{"manager":7},{"trainingRuntimeSpec":{"template":null}}]}`},
		"nothing":                       {spec: `{}`},
		"overrides that cannot be read": {served: trainjob.Trainer21, spec: `{"podTemplateOverrides":[null,7,{"spec":{"schedulingGates":7},"metadata":{"labels":[]}}]}`},
		"our own override":              {served: trainjob.Trainer21, spec: `{"podTemplateOverrides":[{"targetJobs":[{"name":"node"}],"metadata":{"annotations":{"kueue-trainer.dev/manager":"kueue.x-k8s.io/manager"}},"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}]}`},
		"our gate in an override, behind": {served: trainjob.Trainer21,
			spec: `{"podTemplateOverrides":[{"targetJobs":[{"name":"node"}]},{"targetJobs":[{"name":"node"}],"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}]}`,
			want: []string{"spec.podTemplateOverrides[1].spec.schedulingGates[0].name"}},
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

func TestSurplus(t *testing.T) {
	const mark = `"annotations":{"kueue-trainer.dev/manager":"kueue.x-k8s.io/manager"}`
	cases := map[string]struct {
		spec string
		want []string
	}{
		"a placement as the manager writes it": {spec: sides["podTemplateOverrides"].spec(sides["podTemplateOverrides"].placed)},
		"what a user adds to it": {
			spec: `{"podTemplateOverrides":[{"targetJobs":[{"name":"node"}]},{"targetJobs":[{"name":"node"}],"metadata":{"labels":{"a":"b"},"name":"n",` + mark + `},"spec":{"serviceAccountName":"mine","affinity":{"podAffinity":{"x":1}},"nodeSelector":{"a":"b"}}}]}`,
			want: []string{
				"spec.podTemplateOverrides[1].metadata.name",
				"spec.podTemplateOverrides[1].spec.affinity.podAffinity.x",
				"spec.podTemplateOverrides[1].spec.serviceAccountName",
			},
		},
		"what says nothing": {spec: `{"podTemplateOverrides":[{"targetJobs":[],"metadata":{` + mark + `},"spec":{"volumes":[],"affinity":{},"hostname":null}}]}`},
		"what cannot be read as a placement": {spec: `{"podTemplateOverrides":[{"metadata":{` + mark + `},"spec":{"tolerations":7}}]}`,
			want: []string{"spec.podTemplateOverrides[0]"}},
		"an override of somebody else": {spec: `{"podTemplateOverrides":[{"spec":{"serviceAccountName":"mine"}}]}`},
		"entries have owners":          {spec: `{"runtimePatches":[{"manager":"kueue.x-k8s.io/manager","future":1}]}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := specOf(t, tc.spec)
			warnings := append(Of(trainjob.Trainer21).Surplus(spec), Of(trainjob.Trainer23).Surplus(spec)...)
			var got []string
			for _, warning := range warnings {
				path, _, _ := strings.Cut(warning, " ")
				got = append(got, path)
			}
			expect.Same(t, "Unexpected fields", tc.want, got)
		})
	}
}
