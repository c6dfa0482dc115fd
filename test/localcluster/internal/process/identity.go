// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Identity names one process of one boot. A pid alone does not: the kernel hands
// it out again, and a signal would then reach a stranger.
type Identity struct {
	PID int `json:"pid"`
	// StartTicks is the start time in clock ticks since boot, field 22 of /proc/PID/stat.
	StartTicks uint64 `json:"startTicks"`
	// BootID makes pid and ticks of an earlier boot worthless.
	BootID string `json:"bootID"`
}

// identify reads the identity of a process that is running now.
func identify(pid int) (Identity, error) {
	stat, err := readStat(pid)
	if err != nil {
		return Identity{}, err
	}
	boot, err := bootID()
	if err != nil {
		return Identity{}, err
	}
	return Identity{PID: pid, StartTicks: stat.startTicks, BootID: boot}, nil
}

// Alive tells whether exactly this process is still running. A zombie is not: it
// has ended and only waits for its parent to take note.
func (id Identity) Alive() bool {
	if id.PID <= 0 {
		return false
	}
	boot, err := bootID()
	if err != nil || boot != id.BootID {
		return false
	}
	stat, err := readStat(id.PID)
	return err == nil && stat.startTicks == id.StartTicks && !stat.ended()
}

// stat is what we need of /proc/PID/stat.
type stat struct {
	state      byte
	startTicks uint64
}

func (s stat) ended() bool { return s.state == 'Z' || s.state == 'X' }

func readStat(pid int) (stat, error) {
	path := fmt.Sprintf("/proc/%d/stat", pid)
	line, err := os.ReadFile(path)
	if err != nil {
		return stat{}, err
	}
	s, err := parseStat(line)
	if err != nil {
		return stat{}, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// parseStat reads one line of /proc/PID/stat. The second field is the command in
// parentheses and may itself hold spaces and parentheses, so counting starts
// behind the last one.
func parseStat(line []byte) (stat, error) {
	end := bytes.LastIndexByte(line, ')')
	if end < 0 {
		return stat{}, fmt.Errorf("no command in %q", line)
	}
	fields := strings.Fields(string(line[end+1:]))
	// fields[0] is field 3 (state), so field 22 (starttime) is fields[19].
	if len(fields) < 20 || len(fields[0]) != 1 {
		return stat{}, fmt.Errorf("too few fields in %q", line)
	}
	ticks, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("start time: %w", err)
	}
	return stat{state: fields[0][0], startTicks: ticks}, nil
}

func bootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("localcluster needs Linux's /proc: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}
