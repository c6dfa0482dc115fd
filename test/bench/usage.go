// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/prometheus/procfs"
)

// usage is what one process used.
type usage struct {
	// cpuSeconds in user and kernel mode, of all threads.
	cpuSeconds float64
	// anonMiB is what it has in memory now without pages of files: its program, which the system can drop and read
	// again, does not count.
	anonMiB float64
}

// usageOf returns what a process has used since it started.
func usageOf(pid int) (usage, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return usage{}, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return usage{}, err
	}
	status, err := proc.NewStatus()
	if err == nil && status.VmRSS == 0 {
		err = fmt.Errorf("process %d has no memory: it has ended", pid)
	}
	return usage{stat.CPUTime(), float64(status.RssAnon) / (1 << 20)}, err
}
