// SPDX-License-Identifier: Apache-2.0

package held

import "testing"

func TestFrom(t *testing.T) {
	for name, want := range map[string]string{Queue("gpus"): "gpus", "a.b.held": "a.b", "gpus": "", ".held": "", "": ""} {
		queue, is := From(name)
		if is != (want != "") || is && queue != want {
			t.Errorf("From(%q) = %q, %t, want %q", name, queue, is, want)
		}
	}
}
