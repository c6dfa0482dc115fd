// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"runtime"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func lineOfSpec() int {
	_, _, line, _ := runtime.Caller(callersBelowSpec())
	return line
}

func inHelper() int { return lineOfSpec() }

func TestCallersBelowSpecLeadToItsLine(t *testing.T) {
	_, _, here, _ := runtime.Caller(0)
	got := []int{lineOfSpec(), inHelper(), func() int { line := inHelper(); return line }()}
	expect.Same(t, "Lines", []int{here + 1, here + 1, here + 1}, got)
}
