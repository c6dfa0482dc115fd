// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/onsi/gomega"
	"github.com/prometheus/procfs"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
)

func TestAZombieIsNotAlive(t *testing.T) {
	cmd := exec.Command("/bin/true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	var zombie Identity
	gomega.NewWithT(t).Eventually(func() (ended bool, err error) {
		zombie, ended, err = identify(cmd.Process.Pid)
		return ended, err
	}).WithTimeout(30 * time.Second).Should(gomega.BeTrue())
	if zombie.Alive() {
		t.Errorf("%+v is alive", zombie)
	}
}

// firstThreadEnds is set for a process of this test whose first thread ends before it does anything.
const firstThreadEnds = "FIRST_THREAD_ENDS"

func init() {
	if os.Getenv(firstThreadEnds) != "" {
		_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
	}
}

// Killed, the others may end a moment later, and the process keeps its ports until then.
func TestAProcessIsAliveAsLongAsAThreadOfItIs(t *testing.T) {
	p := Start(Spec{Argv: []string{attempt.Must(os.Executable())}, Env: []string{firstThreadEnds + "=1"}, Log: filepath.Join(t.TempDir(), "log")})
	t.Cleanup(func() { p.Kill(context.Background()) })
	gomega.NewWithT(t).Eventually(func() (string, error) {
		proc, err := procfs.NewProc(p.PID)
		stat, errStat := proc.Stat()
		return stat.State, errors.Join(err, errStat)
	}).WithTimeout(30 * time.Second).Should(gomega.Equal("Z"))
	if !p.Alive() {
		t.Error("It is taken for ended as long as it has a thread")
	}
	p.Kill(t.Context())
	if p.Alive() {
		t.Error("It is alive when all threads have ended")
	}
}

func TestStopsOnlyWhatItStarted(t *testing.T) {
	ctx := context.Background()
	p := Start(Spec{Argv: []string{"/bin/sleep", "60"}, Log: filepath.Join(t.TempDir(), "sleep.log")})
	t.Cleanup(func() { p.Kill(ctx) })

	strangers := map[string]Identity{
		"same pid, other start time": {PID: p.PID, StartTicks: p.StartTicks + 1, BootID: p.BootID},
		"same pid, other boot":       {PID: p.PID, StartTicks: p.StartTicks, BootID: "another"},
		"no pid":                     {},
	}
	for name, stranger := range strangers {
		if stranger.Alive() {
			t.Errorf("%s: reported as alive", name)
		}
		stranger.Kill(ctx)
	}
	if !p.Alive() {
		t.Fatal("the process was killed under another identity")
	}
	if p.Terminate(ctx, 5*time.Second) {
		t.Fatal("it was killed, want it to end by itself")
	}
	if p.Alive() {
		t.Error("still alive after Terminate")
	}
}

func TestKillsWhatIgnoresTerm(t *testing.T) {
	ctx := context.Background()
	log := filepath.Join(t.TempDir(), "sh.log")
	p := Start(Spec{Argv: []string{"/bin/sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"}, Log: log})
	gomega.NewWithT(t).Eventually(os.ReadFile).WithArguments(log).WithTimeout(30 * time.Second).Should(gomega.ContainSubstring("ready\n"))
	if !p.Terminate(ctx, 300*time.Millisecond) {
		t.Fatal("it ended by itself, want it killed")
	}
	if p.Alive() {
		t.Error("still alive after Terminate's grace period")
	}
}

func TestStartsNothingThatItCannotStop(t *testing.T) {
	defer func(before string) { bootID = before }(bootID)
	bootID = filepath.Join(t.TempDir(), "no boot_id")
	if err := Supported(); err == nil || !strings.Contains(err.Error(), "make demo KIND=1") {
		t.Errorf("Without /proc it is %v", err)
	}
	log := filepath.Join(t.TempDir(), "log")
	if err := attempt.To(func() { Start(Spec{Argv: []string{"/usr/bin/tail", "-f", log}, Log: log}) }); err == nil {
		t.Error("It started")
	}
	gomega.NewWithT(t).Eventually(func() (bool, error) {
		running, err := procfs.AllProcs()
		return slices.ContainsFunc(running, func(p procfs.Proc) bool {
			argv, _ := p.CmdLine() // Nothing of one that has just ended.
			return slices.Contains(argv, log)
		}), err
	}).WithTimeout(5*time.Second).Should(gomega.BeFalse(), "It still runs")
}
