// SPDX-License-Identifier: Apache-2.0

package version

import (
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestInfo(t *testing.T) {
	got := Get()
	expect.That(t, got.Version != "" && got.Go != "", "Get() = %+v, want a version, if only devel, and Go's", got)
	cases := map[string]struct {
		info Info
		want string
	}{
		"a release":              {info: Info{Version: "v1.2.3", Revision: "abc", Go: "go1.26.0"}, want: "v1.2.3 (abc, go1.26.0)"},
		"without a known commit": {info: Info{Version: "devel", Go: "go1.26.0"}, want: "devel (go1.26.0)"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) { expect.Same(t, "Unexpected String", tc.want, tc.info.String()) })
	}
}
