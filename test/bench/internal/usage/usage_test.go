// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestRead(t *testing.T) {
	got, err := Read(os.Getpid())
	if err != nil || got.PeakMiB < 1 || got.PeakMiB > 10_000 || got.FileMiB <= 0 || got.FileMiB > got.PeakMiB || got.CPUSeconds > 1000 {
		t.Errorf("this process: %+v, %v", got, err)
	}
	zombie := exec.Command("/bin/true")
	if err := zombie.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = zombie.Wait() })
	for end := time.Now().Add(30 * time.Second); err == nil && time.Now().Before(end); {
		_, err = Read(zombie.Process.Pid)
	}
	if err == nil {
		t.Error("a process that has ended is read")
	}
}
