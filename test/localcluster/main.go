// SPDX-License-Identifier: Apache-2.0

// Command localcluster builds, starts and stops a real Kubernetes control plane
// with Kueue, JobSet, Trainer and kueue-trainer on this machine: plain processes
// on loopback, fake GPU nodes, everything it writes below one directory.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		stop()
		os.Exit(1)
	}
}
