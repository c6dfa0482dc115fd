// SPDX-License-Identifier: Apache-2.0

// Package usage reads what processes use of the machine, from /proc.
package usage

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ticksPerSecond is USER_HZ, which is 100 on every Linux that Go runs on.
const ticksPerSecond = 100

// Usage is what one process used.
type Usage struct {
	// CPUSeconds in user and kernel mode, of all threads.
	CPUSeconds float64 `json:"cpuSeconds"`
	// PeakMiB is the largest resident set since the process started.
	PeakMiB float64 `json:"peakMiB"`
}

// Since gives what was used after an earlier reading; the peak stays that of the whole life.
func (u Usage) Since(earlier Usage) Usage {
	return Usage{CPUSeconds: u.CPUSeconds - earlier.CPUSeconds, PeakMiB: u.PeakMiB}
}

// Read gives what a process has used since it started.
func Read(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Usage{}, err
	}
	ticks, err := cpuTicks(string(stat))
	if err != nil {
		return Usage{}, fmt.Errorf("/proc/%d/stat: %w", pid, err)
	}
	peak, err := peakKiB(string(status))
	if err != nil {
		return Usage{}, fmt.Errorf("/proc/%d/status: %w", pid, err)
	}
	return Usage{CPUSeconds: float64(ticks) / ticksPerSecond, PeakMiB: float64(peak) / 1024}, nil
}

// cpuTicks adds utime and stime, fields 14 and 15. The name, field 2, may hold anything.
func cpuTicks(stat string) (int, error) {
	const utime = 14 - 3
	fields := strings.Fields(stat[strings.LastIndex(stat, ")")+1:])
	if len(fields) < utime+2 {
		return 0, fmt.Errorf("it has %d fields after the name, which are too few", len(fields))
	}
	user, err := strconv.Atoi(fields[utime])
	if err != nil {
		return 0, err
	}
	kernel, err := strconv.Atoi(fields[utime+1])
	return user + kernel, err
}

func peakKiB(status string) (int, error) {
	for line := range strings.Lines(status) {
		if value, found := strings.CutPrefix(line, "VmHWM:"); found {
			return strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
		}
	}
	return 0, fmt.Errorf("it has no VmHWM: the process has ended")
}
