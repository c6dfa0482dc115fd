// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Module is what the go command knows about a dependency.
type Module struct {
	Path    string
	Version string
	// Dir is its source in the module cache, which is read-only.
	Dir string
}

// Module finds a module that the go.mod in dir requires, and downloads it where the
// module cache does not have it yet.
func (b Builder) Module(ctx context.Context, dir, path string) (Module, error) {
	out, err := b.goCommand(ctx, dir, "mod", "download", "-json", path)
	if err != nil {
		return Module{}, err
	}
	var m Module
	if err := json.Unmarshal(out, &m); err != nil {
		return Module{}, fmt.Errorf("go mod download %s: %w", path, err)
	}
	return m, nil
}

func (b Builder) goCommand(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = filepath.Join(b.Repo, dir), b.environment()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %v in %s: %w\n%s", args, cmd.Dir, err, stderr.Bytes())
	}
	return out, nil
}

// FindRepo walks up from the working directory, and then from the program's own
// place, to the root of the repository.
func FindRepo() (string, error) {
	starts := []string{}
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	if exe, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(exe))
	}
	for _, dir := range starts {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if _, err := os.Stat(filepath.Join(dir, ControlPlaneDir, "go.mod")); err == nil {
				return dir, nil
			}
		}
	}
	return "", fmt.Errorf("no %s/go.mod above %v: run localcluster inside the repository", ControlPlaneDir, starts)
}
