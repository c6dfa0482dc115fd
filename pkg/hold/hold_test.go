// SPDX-License-Identifier: Apache-2.0

package hold

import (
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestFrom(t *testing.T) {
	for name, want := range map[string]string{Queue("gpus"): "gpus", "a.b.held": "a.b", "gpus": "", ".held": "", "": ""} {
		queue, is := From(name)
		expect.That(t, is == (want != "") && (!is || queue == want), "From(%q) = %q, %t, want %q", name, queue, is, want)
	}
}
