// SPDX-License-Identifier: Apache-2.0

// Package usage reads what processes use of the machine, from /proc.
package usage

import (
	"fmt"

	"github.com/prometheus/procfs"
)

// Usage is what one process used.
type Usage struct {
	// CPUSeconds in user and kernel mode, of all threads.
	CPUSeconds float64 `json:"cpuSeconds"`
	// AnonMiB is what it has in memory now without pages of files: its program, which the system can drop and read
	// again, does not count.
	AnonMiB float64 `json:"anonMiB"`
}

// Since returns what was used after an earlier reading; memory stays as it is.
func (u Usage) Since(earlier Usage) Usage {
	u.CPUSeconds -= earlier.CPUSeconds
	return u
}

// Read returns what a process has used since it started.
func Read(pid int) (Usage, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return Usage{}, err
	}
	stat, err := proc.Stat()
	if err != nil {
		return Usage{}, err
	}
	status, err := proc.NewStatus()
	if err == nil && status.VmRSS == 0 {
		err = fmt.Errorf("process %d has no memory: it has ended", pid)
	}
	return Usage{CPUSeconds: stat.CPUTime(), AnonMiB: float64(status.RssAnon) / (1 << 20)}, err
}
