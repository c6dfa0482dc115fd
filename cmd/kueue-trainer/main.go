// SPDX-License-Identifier: Apache-2.0

// Command kueue-trainer is the manager that brings TrainJobs under Kueue's quotas: its flags and
// what it runs (command.go), how controller-runtime's manager is set up for it (manager.go), and how
// its webhooks stop (drain.go).
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kueue-trainer/kueue-trainer/pkg/version"
)

// gcPercent lets the heap grow by half before it is collected, where Go's default doubles
// it: the caches are most of it, and there is little garbage. GOGC overrides it.
const gcPercent = 50

func init() {
	build := version.Get()
	metrics.Registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name:        "kueue_trainer_build_info",
		Help:        "Which build of kueue-trainer this is; always 1.",
		ConstLabels: prometheus.Labels{"version": build.Version, "revision": build.Revision, "goversion": build.Go},
	}, func() float64 { return 1 }))
}

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "kueue-trainer:", err)
		os.Exit(1)
	}
}
