// SPDX-License-Identifier: Apache-2.0

package kindcluster

import (
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/build"
)

// kind has a cluster that somebody left half made, and is interrupted, with who runs it, while it makes another.
const kind = `#!/bin/sh
echo "$@" >> "$0.log"
case "$1 $2" in
"get clusters") echo half ;;
"get kubeconfig") echo no admin.conf >&2; exit 1 ;;
"create cluster") kill -USR1 $PPID; exec sleep 60 ;;
esac
`

func TestAnInterruptedClusterIsNotInTheWay(t *testing.T) {
	repo := t.TempDir()
	tool := filepath.Join(repo, "bin", "kind")
	if err := errors.Join(os.Mkdir(filepath.Dir(tool), 0o755), os.WriteFile(tool, []byte(kind), 0o755)); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Name: "half", Dir: t.TempDir(), Builder: build.Builder{Repo: repo, Out: io.Discard}}
	err := attempt.To(func() { c.create(t.Context()) })
	if err == nil || !strings.Contains(err.Error(), "no admin.conf") || !strings.Contains(err.Error(), "make kind-down") {
		t.Errorf("One that is half made: %v", err)
	}

	ctx, stop := signal.NotifyContext(t.Context(), syscall.SIGUSR1)
	defer stop()
	c.Name = "another"
	if err := attempt.To(func() { c.create(ctx) }); err == nil {
		t.Error("No error when it was interrupted")
	}
	if calls, err := os.ReadFile(tool + ".log"); err != nil || !strings.Contains(string(calls), "\ndelete cluster --name another") {
		t.Errorf("Nothing is deleted when it was interrupted: %v\n%s", err, calls)
	}
}
