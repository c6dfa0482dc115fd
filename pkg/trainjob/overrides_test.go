// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPodTemplateOverrideKeepsItsBytes(t *testing.T) {
	cases := map[string]struct {
		raw     string
		targets []string
	}{
		"an override":           {raw: `{"spec": {"future":false,"volumes":[]},"targetJobs":[{"name":"node"},{"name":"launcher"}]}`, targets: []string{"node", "launcher"}},
		"no targets":            {raw: `{"targetJobs":null}`},
		"targets of text":       {raw: `{"targetJobs":"node"}`},
		"fields of other cases": {raw: `{"TargetJobs":[{"name":"node"}]}`},
		"a number":              {raw: `7`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var o PodTemplateOverride
			if err := o.UnmarshalJSON([]byte(tc.raw)); err != nil {
				t.Fatalf("UnmarshalJSON: %v", err)
			}
			if diff := cmp.Diff(tc.targets, o.TargetJobs); diff != "" {
				t.Errorf("Unexpected target jobs (-want,+got):\n%s", diff)
			}
			raw, err := o.MarshalJSON()
			if err != nil {
				t.Fatalf("MarshalJSON: %v", err)
			}
			if diff := cmp.Diff(tc.raw, string(raw)); diff != "" {
				t.Errorf("Unexpected bytes (-want,+got):\n%s", diff)
			}
			if o.Targets("node") != (len(tc.targets) > 0) || o.Targets("other") {
				t.Errorf("Targets is wrong about %s", tc.raw)
			}
			if !o.Equal(o) || o.Equal(PodTemplateOverride{}) {
				t.Errorf("Equal is wrong about %s", tc.raw)
			}
		})
	}
	if data, err := json.Marshal([]PodTemplateOverride{{}}); err != nil || string(data) != `[null]` {
		t.Errorf("An empty override is %s (%v), want null", data, err)
	}
}
