// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestRestoreFields(t *testing.T) {
	const (
		stored   = `{"spec":{"trainer":{"resourcesPerNode":{"limits":{"nvidia.com/gpu":8}},"future":0},"initializer":{"model":{}}}}`
		respelt  = `{"spec":{"trainer":{"resourcesPerNode":{"limits":{"nvidia.com/gpu":"8"}},"future":0},"initializer":{"model":{}}}}`
		lost     = `{"spec":{"trainer":{"resourcesPerNode":{"limits":{"nvidia.com/gpu":"8"}}},"initializer":{"model":{}}}}`
		less     = `{"spec":{"trainer":{"resourcesPerNode":{"limits":{"nvidia.com/gpu":4}},"future":0},"initializer":{"model":{}}}}`
		without  = `{"spec":{"initializer":{"model":{}}}}`
		restored = `[{"op":"replace","path":"/spec/trainer","value":{"resourcesPerNode":{"limits":{"nvidia.com/gpu":8}},"future":0}}]`
	)
	cases := map[string]struct {
		given string
		own   bool
		want  string
	}{
		"nothing changed":                                 {given: stored, want: "null"},
		"only the spelling of an amount changed":          {given: respelt, want: restored},
		"the same in a write of ours":                     {given: respelt, own: true, want: restored},
		"a user asks for less":                            {given: less, want: "null"},
		"a write of ours never means what it says there":  {given: lost, own: true, want: restored},
		"the field is left out, for the CRD to refuse it": {given: without, want: "null"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ops := expect.Must(restoreFields([]byte(tc.given), []byte(stored), tc.own))(t)
			expect.Same(t, "unexpected operations", tc.want, expect.JSON(t, ops))
		})
	}
}

func TestRestoreFieldsOfWhatIsNoObject(t *testing.T) {
	_, err := restoreFields([]byte(`{"spec":[]}`), []byte(`{"spec":{}}`), false)
	expect.That(t, err != nil, "a spec that is a list must be an error, and no panic")
}
