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
	// PeakMiB is the largest resident set since the process started.
	PeakMiB float64 `json:"peakMiB"`
	// FileMiB is how much of the resident set is pages of files now: its program, which the
	// system can drop and read again.
	FileMiB float64 `json:"fileMiB"`
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
	if err == nil && status.VmHWM == 0 {
		err = fmt.Errorf("process %d has no memory: it has ended", pid)
	}
	return Usage{CPUSeconds: stat.CPUTime(), PeakMiB: float64(status.VmHWM) / (1 << 20), FileMiB: float64(status.RssFile) / (1 << 20)}, err
}
