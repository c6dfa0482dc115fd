// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// recordFile lies beside the binaries, so that it goes with them.
const recordFile = ".build-times.json"

// entry is what we remember about the last build of one binary.
type entry struct {
	// Stamp of what it was built from; empty for what is built every time.
	Stamp string `json:"stamp,omitempty"`
	// Seconds that the last build took.
	Seconds float64 `json:"seconds"`
}

// lastTime tells people how long to wait.
func (e entry) lastTime() string {
	if e.Seconds < 1 {
		return ""
	}
	return fmt.Sprintf(" (last time %s)", round(time.Duration(e.Seconds*float64(time.Second))))
}

// readRecord returns an empty record where there is none or it is unreadable: all
// it costs is one build.
func readRecord(dir string) map[string]entry {
	record := map[string]entry{}
	content, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err == nil && json.Unmarshal(content, &record) != nil {
		return map[string]entry{}
	}
	return record
}

func writeRecord(dir string, record map[string]entry) error {
	content, err := json.MarshalIndent(record, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, recordFile), append(content, '\n'), 0o644)
}

// stamps hashes, per binary, everything that decides what a build from modules
// gives. Binaries of the repository itself get none.
func (b Builder) stamps(ctx context.Context, binaries []Binary) (map[string]string, error) {
	toolchain, err := b.goCommand(ctx, ControlPlaneDir, "env", "GOVERSION", "GOOS", "GOARCH", "GOFLAGS", "CGO_ENABLED")
	if err != nil {
		return nil, err
	}
	stamps := map[string]string{}
	for _, bin := range binaries {
		if bin.Module == "" {
			continue
		}
		hash := sha256.New()
		hash.Write(toolchain)
		for _, name := range []string{"go.mod", "go.sum"} {
			content, err := os.ReadFile(filepath.Join(b.Repo, bin.Dir, name))
			if err != nil {
				return nil, err
			}
			hash.Write(content)
		}
		fmt.Fprintln(hash, bin.Package, linkFlags, flagsOf(bin))
		stamps[bin.Name] = fmt.Sprintf("%x", hash.Sum(nil)[:16])
	}
	return stamps, nil
}

// flagsOf is the form of the version flags; the version itself is in go.mod.
func flagsOf(bin Binary) []string {
	if bin.VersionVars == nil {
		return nil
	}
	return bin.VersionVars("v1.2.3")
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Second {
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}
