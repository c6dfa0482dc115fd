// SPDX-License-Identifier: Apache-2.0

// Package specs runs suites of Ginkgo's specs, and says of each failure which line of a spec it is.
package specs

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
)

// Run runs the specs of a package. A condition that a healthy control plane meets in milliseconds may
// take as long as patience on a machine that builds something beside it.
func Run(t *testing.T, suite string, patience time.Duration) {
	gomega.RegisterFailHandler(func(message string, _ ...int) { ginkgo.Fail(message, callersBelowSpec()) })
	gomega.EnforceDefaultTimeoutsWhenUsingContexts()
	gomega.SetDefaultEventuallyTimeout(patience)
	gomega.SetDefaultEventuallyPollingInterval(200 * time.Millisecond)
	gomega.SetDefaultConsistentlyDuration(2 * time.Second)
	gomega.SetDefaultConsistentlyPollingInterval(100 * time.Millisecond)
	ginkgo.RunSpecs(t, suite)
}

// callersBelowSpec counts the callers between here and the spec, or the hook around it: the outermost that is
// in a file of tests. So no helper has to say that it is one.
func callersBelowSpec() (depth int) {
	callers := make([]uintptr, 100)
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers)])
	for i, more := 0, true; more; i++ {
		var frame runtime.Frame
		if frame, more = frames.Next(); strings.HasSuffix(frame.File, "_test.go") {
			depth = i
		}
	}
	return depth
}

// Must returns a value, and fails the spec where there is an error.
func Must[T any](value T, err error) T {
	gomega.Expect(err).NotTo(gomega.HaveOccurred())
	return value
}
