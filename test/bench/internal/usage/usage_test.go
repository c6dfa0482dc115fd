// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestRead(t *testing.T) {
	got, err := Read(os.Getpid())
	expect.That(t, err == nil && got.PeakMiB >= 1 && got.PeakMiB <= 10_000 && got.FileMiB > 0 && got.FileMiB <= got.PeakMiB && got.CPUSeconds <= 1000,
		"this process: %+v, %v", got, err)
	zombie := exec.Command("/bin/true")
	expect.NoError(t, zombie.Start())
	t.Cleanup(func() { _ = zombie.Wait() })
	for end := time.Now().Add(30 * time.Second); err == nil && time.Now().Before(end); {
		_, err = Read(zombie.Process.Pid)
	}
	expect.That(t, err != nil, "a process that has ended is read")
}
