// SPDX-License-Identifier: Apache-2.0

package process

import (
	"fmt"
	"os"
	"strings"

	"github.com/prometheus/procfs"
)

// Identity names one process of one boot. A pid alone does not: the kernel hands
// it out again, and a signal would then reach a stranger.
type Identity struct {
	PID int `json:"pid"`
	// StartTicks is the start time in clock ticks since boot.
	StartTicks uint64 `json:"startTicks"`
	// BootID makes pid and ticks of an earlier boot worthless.
	BootID string `json:"bootID"`
}

// identify reads the identity of the process that has a pid now. One that has ended still has
// it as a zombie, which only waits for its parent to take note.
func identify(pid int) (id Identity, ended bool, err error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return id, false, fmt.Errorf("localcluster needs Linux's /proc: %w", err)
	}
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return id, false, err
	}
	stat, err := proc.Stat()
	id = Identity{PID: pid, StartTicks: stat.Starttime, BootID: strings.TrimSpace(string(boot))}
	return id, stat.State == "Z" || stat.State == "X", err
}

// Alive tells whether exactly this process is still running.
func (id Identity) Alive() bool {
	now, ended, err := identify(id.PID)
	return err == nil && !ended && now == id
}
