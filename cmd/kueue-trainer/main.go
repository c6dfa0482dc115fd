// SPDX-License-Identifier: Apache-2.0

// Command kueue-trainer is the manager that brings TrainJobs under Kueue's quotas.
package main

import (
	"fmt"
	"os"

	ctrl "sigs.k8s.io/controller-runtime"
)

func main() {
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "kueue-trainer:", err)
		os.Exit(1)
	}
}
