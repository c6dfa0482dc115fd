// SPDX-License-Identifier: Apache-2.0

package attempt

import (
	"errors"
	"io"
	"testing"
)

func TestTo(t *testing.T) {
	if err := To(func() { Succeed(nil, "nothing") }); err != nil {
		t.Errorf("steps that succeed end with %v", err)
	}
	err := To(func() {
		Must(1, nil)
		Succeed(io.EOF, "reading %s", "a log")
		t.Error("goes on")
	})
	if !errors.Is(err, io.EOF) || err.Error() != "reading a log: EOF" {
		t.Errorf("a step that fails ends with %v", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a bug is taken for a failure")
		}
	}()
	_ = To(func() { panic("bug") })
}
