// SPDX-License-Identifier: Apache-2.0

// Command kueue-trainer is the manager that brings TrainJobs under Kueue's quotas.
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	ctrl "sigs.k8s.io/controller-runtime"
)

// gcPercent lets the heap grow by half before it is collected, where Go's default doubles
// it: the caches are most of it, and there is little garbage. GOGC overrides it.
const gcPercent = 50

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "kueue-trainer:", err)
		os.Exit(1)
	}
}
