// SPDX-License-Identifier: Apache-2.0

package world

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Terminal is where people type: in the repository's root, with kubectl and the plugin on the PATH.
type Terminal struct {
	Kubeconfig string
	// Log gets what is typed and what is printed.
	Log io.Writer
}

// Command is a program of bin/.
func (t Terminal) Command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	return t.command(exec.CommandContext(ctx, filepath.Join(root, "bin", name), args...), root)
}

// Shell is a block of shell commands as a reader of the docs runs it. It ends at the first command that
// fails.
func (t Terminal) Shell(ctx context.Context, block string) (*exec.Cmd, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	return t.command(exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", block), root)
}

func (t Terminal) command(cmd *exec.Cmd, root string) (*exec.Cmd, error) {
	// Paths are independent of where go test runs.
	kubeconfig, err := filepath.Abs(t.Kubeconfig)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig,
		"PATH="+filepath.Join(root, "bin")+string(os.PathListSeparator)+os.Getenv("PATH"))
	return cmd, err
}

// Run runs a command, and returns what it printed and its exit code, which is no error.
func (t Terminal) Run(cmd *exec.Cmd) (stdout, stderr string, code int, err error) {
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err = cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return "", "", 0, fmt.Errorf("`make build` and `make local-up` build what is in bin/: %w", err)
	}
	fmt.Fprintf(t.Log, "$ %s\n%s%s", strings.Join(cmd.Args, " "), out.String(), errOut.String())
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode(), nil
}
