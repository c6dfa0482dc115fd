// SPDX-License-Identifier: Apache-2.0

package handback

import (
	"encoding/json"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

func TestUngateJobSet(t *testing.T) {
	pod := func(template string) string {
		return `{"metadata":{"resourceVersion":"7"},"spec":{"replicatedJobs":[{"name":"node","future":1,"template":{"spec":{"template":` + template + `}}}]}}`
	}
	cases := map[string]struct{ template, want string }{
		"the gate goes, its label says so, everything else stays": {
			template: `{"metadata":{"labels":{"a":"b","kueue-trainer.dev/gated":"true"}},"spec":{"new":0,"schedulingGates":[{"name":"mine"},{"name":"kueue-trainer.dev/admission"}]}}`,
			want:     `{"metadata":{"labels":{"a":"b","kueue-trainer.dev/gated":"false"}},"spec":{"new":0,"schedulingGates":[{"name":"mine"}]}}`,
		},
		"the only gate leaves an empty list": {
			template: `{"metadata":{"labels":{"kueue-trainer.dev/gated":"true"}},"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}`,
			want:     `{"metadata":{"labels":{"kueue-trainer.dev/gated":"false"}},"spec":{"schedulingGates":[]}}`,
		},
		"pods without metadata get some": {
			template: `{"spec":{"schedulingGates":[{"name":"kueue-trainer.dev/admission"}]}}`,
			want:     `{"metadata":{"labels":{"kueue-trainer.dev/gated":"false"}},"spec":{"schedulingGates":[]}}`,
		},
		"who has no gate is left alone": {template: `{"spec":{}}`, want: `{"spec":{}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			js := &jobsetapi.JobSet{}
			if err := json.Unmarshal([]byte(pod(tc.template)), js); err != nil {
				t.Fatal(err)
			}
			ungate, err := ungateJobSet(js)
			if err != nil {
				t.Fatal(err)
			}
			data, err := ungate.Data(js)
			if err != nil {
				t.Fatal(err)
			}
			operations, err := jsonpatch.DecodePatch(data)
			if err != nil {
				t.Fatal(err)
			}
			got, err := operations.Apply([]byte(pod(tc.template)))
			if err != nil {
				t.Fatalf("Patch %s does not apply: %v", data, err)
			}
			if diff := cmp.Diff(decoded(t, []byte(pod(tc.want))), decoded(t, got)); diff != "" {
				t.Errorf("Unexpected JobSet (-want,+got):\n%s", diff)
			}
		})
	}
}

func decoded(t *testing.T, data []byte) any {
	t.Helper()
	var value any
	if err := json.Unmarshal(data, &value); err != nil {
		t.Fatal(err)
	}
	return value
}
