// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
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
			expect.NoError(t, o.UnmarshalJSON([]byte(tc.raw)))
			expect.Same(t, "Unexpected target jobs", tc.targets, o.TargetJobs)
			expect.Same(t, "Unexpected bytes", tc.raw, string(expect.Must(o.MarshalJSON())(t)))
			expect.That(t, o.Targets("node") == (len(tc.targets) > 0) && !o.Targets("other"), "Targets is wrong about %s", tc.raw)
			expect.That(t, o.Equal(o) && !o.Equal(PodTemplateOverride{}), "Equal is wrong about %s", tc.raw)
		})
	}
	expect.Same(t, "Unexpected empty override", `[null]`, expect.JSON(t, []PodTemplateOverride{{}}))
}
