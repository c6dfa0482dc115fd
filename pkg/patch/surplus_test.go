// SPDX-License-Identifier: Apache-2.0

package patch

import (
	"strings"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

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
		"what cannot be read as a placement": {
			spec: `{"podTemplateOverrides":[{"metadata":{` + mark + `},"spec":{"tolerations":7}}]}`,
			want: []string{"spec.podTemplateOverrides[0]"},
		},
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
