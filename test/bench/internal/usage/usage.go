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
	usage := Usage{CPUSeconds: float64(ticks) / ticksPerSecond}
	for field, into := range map[string]*float64{"VmHWM": &usage.PeakMiB, "RssFile": &usage.FileMiB} {
		if *into, err = mebibytes(string(status), field); err != nil {
			return Usage{}, fmt.Errorf("/proc/%d/status: %w", pid, err)
		}
	}
	return usage, nil
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

// mebibytes reads a field that counts kibibytes.
func mebibytes(status, field string) (float64, error) {
	for line := range strings.Lines(status) {
		if value, found := strings.CutPrefix(line, field+":"); found {
			kib, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")))
			return float64(kib) / 1024, err
		}
	}
	return 0, fmt.Errorf("it has no %s: the process has ended", field)
}
