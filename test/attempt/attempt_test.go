// SPDX-License-Identifier: Apache-2.0

package attempt

import (
	"errors"
	"io"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestTo(t *testing.T) {
	expect.NoError(t, To(func() { Succeed(nil, "nothing") }))
	err := To(func() {
		Must(1, nil)
		Succeed(io.EOF, "reading %s", "a log")
		t.Error("goes on")
	})
	expect.That(t, errors.Is(err, io.EOF) && err.Error() == "reading a log: EOF", "a step that fails ends with %v", err)
	defer func() {
		expect.That(t, recover() != nil, "a bug is taken for a failure")
	}()
	t.Errorf("a bug ends as %v", To(func() { panic("bug") }))
}
