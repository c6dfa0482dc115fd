// SPDX-License-Identifier: Apache-2.0

// Command kueue-trainer is the manager that brings TrainJobs under Kueue's quotas.
package main

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kueue-trainer/kueue-trainer/pkg/heap"
)

// gcPercent lets the heap grow by half before it is collected, where Go's default doubles
// it: the caches are most of it, and there is little garbage. But it may grow by gcFloor bytes in any case. GOGC
// overrides both.
const (
	gcPercent = 50
	gcFloor   = 40 << 20
)

func main() {
	if os.Getenv("GOGC") == "" {
		heap.Pace(gcPercent, gcFloor)
	}
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "kueue-trainer:", err)
		os.Exit(1)
	}
}
