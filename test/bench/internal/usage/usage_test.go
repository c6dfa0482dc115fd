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
	expect.That(t, err == nil && got.AnonMiB >= 1 && got.AnonMiB <= 10_000 && got.CPUSeconds <= 1000,
		"this process: %+v, %v", got, err)
	zombie := exec.Command("/bin/true")
	expect.NoError(t, zombie.Start())
	t.Cleanup(func() { _ = zombie.Wait() })
	for end := time.Now().Add(30 * time.Second); err == nil && time.Now().Before(end); {
		_, err = Read(zombie.Process.Pid)
	}
	expect.That(t, err != nil, "a process that has ended is read")
}
