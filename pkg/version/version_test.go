// SPDX-License-Identifier: Apache-2.0

package version

import (
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestInfo(t *testing.T) {
	got := Get()
	expect.That(t, got.Version != "" && got.Go != "", "Get() = %+v, want a version, if only devel, and Go's", got)
	expect.Answers(t, func(in Info) string { return in.String() }, map[string]expect.Row[Info, string]{
		"a release":              {In: Info{Version: "v1.2.3", Revision: "abc", Go: "go1.26.0"}, Want: "v1.2.3 (abc, go1.26.0)"},
		"without a known commit": {In: Info{Version: "devel", Go: "go1.26.0"}, Want: "devel (go1.26.0)"},
	})
}
