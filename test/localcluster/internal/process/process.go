// SPDX-License-Identifier: Apache-2.0

// Package process starts programs that outlive the launcher and stops exactly those again.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
)

const (
	pollInterval = 25 * time.Millisecond
	// killWait is how long a killed process may take to disappear: it can be stuck in a disk write for a moment.
	killWait = 10 * time.Second
)

// Spec says what to run.
type Spec struct {
	Argv []string `json:"argv"`
	// Env is the whole environment: etcd reads ETCD_*, clients KUBECONFIG and proxies, and kwok a file in $HOME.
	Env []string `json:"env"`
	// Log receives stdout and stderr; an existing file is continued.
	Log string `json:"log"`
	// Config is a hash of the configuration that the program reads, so that another one makes another Spec.
	Config string `json:"config"`
}

// Process is a started Spec, as it is written to the state file.
type Process struct {
	Identity
	Spec
}

// Start runs spec in a session of its own, which neither the launcher's end nor Ctrl-C in its terminal reaches.
func Start(spec Spec) Process {
	attempt.Succeed(os.MkdirAll(filepath.Dir(spec.Log), 0o755))
	log := attempt.Must(os.OpenFile(spec.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644))
	defer log.Close() //nolint:errcheck // the child has its own descriptor

	cmd := exec.Command(spec.Argv[0], spec.Argv[1:]...)
	cmd.Env = spec.Env
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	attempt.Succeed(cmd.Start(), "failed to start %s", spec.Argv[0])
	id, _, err := identify(cmd.Process.Pid)
	if err != nil {
		_ = cmd.Process.Kill() // Nobody would find it again.
	}
	// Reap it should it end while we are still here, else it stays as a zombie.
	go cmd.Wait() //nolint:errcheck // whether it runs is read from /proc
	attempt.Succeed(err, "failed to identify %s", spec.Argv[0])
	return Process{id, spec}
}

// Terminate asks the process to end, and kills it when it has not within grace, which it reports.
func (id Identity) Terminate(ctx context.Context, grace time.Duration) (killed bool) {
	id.signal(syscall.SIGTERM)
	if attempt.To(func() { id.waitGone(ctx, grace) }) == nil {
		return false
	}
	id.Kill(ctx)
	return true
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (id Identity) Kill(ctx context.Context) {
	id.signal(syscall.SIGKILL)
	id.waitGone(ctx, killWait)
}

// signal takes a handle on the pid before it compares the identity, so that a recycled pid is not hit.
func (id Identity) signal(sig syscall.Signal) {
	// It finds any on Unix, also one that is gone.
	p, _ := os.FindProcess(id.PID)
	defer p.Release() //nolint:errcheck // only frees the handle
	if !id.Alive() {
		return
	}
	if err := p.Signal(sig); !errors.Is(err, os.ErrProcessDone) {
		attempt.Succeed(err, "failed to send %s to process %d", sig, id.PID)
	}
}

func (id Identity) waitGone(ctx context.Context, limit time.Duration) {
	err := wait.PollUntilContextTimeout(ctx, pollInterval, limit, true, func(context.Context) (bool, error) { return !id.Alive(), nil })
	attempt.Succeed(err, "process %d is still running after %s", id.PID, limit)
}

// Identity names one process of one boot. A pid alone does not: the kernel hands it out again.
type Identity struct {
	PID int `json:"pid"`
	// StartTicks is the start time in clock ticks since boot.
	StartTicks uint64 `json:"startTicks"`
	// BootID makes pid and ticks of an earlier boot worthless.
	BootID string `json:"bootID"`
}

// Supported says where processes cannot be identified, and what there is instead.
func Supported() error {
	_, _, err := identify(os.Getpid())
	return err
}

// bootID is a variable for a test.
var bootID = "/proc/sys/kernel/random/boot_id"

// identify reads the identity of the process that has a pid now. One that has ended still has it as a zombie, which only
// waits for its parent to take note. With other threads a zombie has not ended: they keep its ports.
func identify(pid int) (id Identity, ended bool, err error) {
	boot, err := os.ReadFile(bootID)
	if err != nil {
		return id, false, fmt.Errorf("the local control plane needs Linux, elsewhere `make demo KIND=1` needs Docker: %w", err)
	}
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return id, false, err
	}
	stat, err := proc.Stat()
	id = Identity{PID: pid, StartTicks: stat.Starttime, BootID: strings.TrimSpace(string(boot))}
	return id, stat.State == "X" || stat.State == "Z" && stat.NumThreads <= 1, err
}

// Alive tells whether exactly this process is still running.
func (id Identity) Alive() bool {
	now, ended, err := identify(id.PID)
	return err == nil && !ended && now == id
}
