// SPDX-License-Identifier: Apache-2.0

package build

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/attempt"
)

// linkFlags leave out what debuggers need: the binaries weigh a third less.
var linkFlags = []string{"-s", "-w"}

// Builder builds Binaries of one repository.
type Builder struct {
	Repo string
	// LogDir receives build-NAME.log with what the go command prints.
	LogDir string
	// Out is told what is done.
	Out io.Writer
	// OS is the operating system that the binaries run on; empty means this one.
	OS string
}

// Say tells people of something.
func (b Builder) Say(format string, args ...any) { fmt.Fprintf(b.Out, format+"\n", args...) }

// Done tells what became of something since a start.
func (b Builder) Done(what, verb string, start time.Time) {
	b.Say("%-24s %s in %s", what, verb, time.Since(start).Round(100*time.Millisecond))
}

// BinDir is where the binaries lie.
func (b Builder) BinDir() string {
	if b.OS == "" || b.OS == runtime.GOOS {
		return filepath.Join(b.Repo, "bin")
	}
	return filepath.Join(b.Repo, "bin", b.OS)
}

// environment is that of the go command. Without C no compiler is needed, and what is built runs in an image of nothing else.
func (b Builder) environment() []string {
	env := append(os.Environ(), "CGO_ENABLED=0")
	if b.OS != "" {
		env = append(env, "GOOS="+b.OS)
	}
	return env
}

// Build makes those of binaries that are missing or out of date.
func (b Builder) Build(ctx context.Context, binaries []Binary) {
	attempt.Succeed(errors.Join(os.MkdirAll(b.BinDir(), 0o755), os.MkdirAll(b.LogDir, 0o755)))
	record := readRecord(b.BinDir())
	toolchain := b.goCommand(ctx, ControlPlaneDir, "env", "GOVERSION", "GOOS", "GOARCH", "GOFLAGS", "CGO_ENABLED")
	fresh := 0
	if len(record) == 0 {
		b.Say("Compiling %d programs from Go modules, once: 7 to 10 minutes on two cores, and longer on a busy machine.", len(binaries))
		// A kind cluster takes these or fewer.
		if len(binaries) > 8 {
			b.Say("With Docker, `make demo KIND=1` compiles no Kubernetes and is there in half of the time.")
		}
	}
	for i, bin := range binaries {
		stamp := b.stamp(bin, toolchain)
		if b.upToDate(bin, record[bin.Name], stamp) {
			fresh++
			continue
		}
		b.Say("[%d/%d] %s …  building", i+1, len(binaries), bin.Name)
		start := time.Now()
		b.goBuild(ctx, bin)
		b.Say("[%d/%d] %s     done in %s", i+1, len(binaries), bin.Name, time.Since(start).Round(100*time.Millisecond))
		record[bin.Name] = stamp
		content := attempt.Must(json.MarshalIndent(record, "", "  "))
		attempt.Succeed(os.WriteFile(filepath.Join(b.BinDir(), recordFile), append(content, '\n'), 0o644))
	}
	if fresh > 0 {
		b.Say("%d binaries up to date", fresh)
	}
}

// upToDate spares the go command's own check, which reads every source file of Kubernetes and takes seconds per binary.
// A module version never changes, so the stamp says it all; our own sources do change, so they have none. With BUILT=1,
// as the Makefile has it, they have been built for this run.
func (b Builder) upToDate(bin Binary, last, stamp string) bool {
	if last != stamp || stamp == "" && os.Getenv("BUILT") == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(b.BinDir(), bin.Name))
	return err == nil
}

func (b Builder) goBuild(ctx context.Context, bin Binary) {
	logFile := filepath.Join(b.LogDir, "build-"+bin.Name+".log")
	log := attempt.Must(os.Create(logFile))
	defer log.Close() //nolint:errcheck // only text for people

	flags := slices.Clone(linkFlags)
	if bin.VersionVars != nil {
		flags = append(flags, bin.VersionVars(b.Module(ctx, bin.Dir, bin.Module).Version)...)
	}
	// go run keeps what it has linked in Go's cache, which go build does not; install also takes the place
	// of a program that runs. Flags that change what is compiled come from make alone, so that it serves
	// `go test` and `go run` as well. -C must come first; the output is named absolutely because of it.
	args := []string{"run", "-C", filepath.Join(b.Repo, bin.Dir),
		"-ldflags", strings.Join(flags, " "), "-exec", "install", bin.Package, filepath.Join(b.BinDir(), bin.Name)}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, b.environment()
	fmt.Fprintln(log, strings.Join(cmd.Args, " "))
	if err := cmd.Run(); err != nil {
		attempt.Fail("failed to build %s: %w%s", bin.Name, err, Tail(logFile))
	}
}

// Module is what the go command knows about a dependency.
type Module struct {
	Version string
	// Dir is its source in the module cache, which is read-only.
	Dir string
}

// Module finds a module that the go.mod in dir requires, and downloads it where the module cache does not have it yet.
func (b Builder) Module(ctx context.Context, dir, path string) (m Module) {
	out := b.goCommand(ctx, dir, "mod", "download", "-json", path)
	attempt.Succeed(json.Unmarshal(out, &m), "go mod download %s", path)
	return m
}

func (b Builder) goCommand(ctx context.Context, dir string, args ...string) []byte {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = filepath.Join(b.Repo, dir), b.environment()
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		attempt.Fail("go %v in %s: %w\n%s", args, cmd.Dir, err, stderr.Bytes())
	}
	return out
}

// FindRepo returns the root of the repository, in whose bin directory this program lies.
func FindRepo() string {
	program := attempt.Must(os.Executable())
	repo := filepath.Dir(filepath.Dir(program))
	_, err := os.Stat(filepath.Join(repo, ControlPlaneDir, "go.mod"))
	attempt.Succeed(err, "%s does not lie in bin of the repository, where make builds it", program)
	return repo
}

// recordFile lies beside the binaries, so that it goes with them.
const recordFile = ".build-stamps.json"

// readRecord returns the stamps of the last builds, and none where they are unreadable: all it costs is one build.
func readRecord(dir string) map[string]string {
	record := map[string]string{}
	content, err := os.ReadFile(filepath.Join(dir, recordFile))
	if err == nil && json.Unmarshal(content, &record) != nil {
		return map[string]string{}
	}
	return record
}

// stamp hashes everything that decides what a build from modules makes. Binaries of the repository itself get none.
func (b Builder) stamp(bin Binary, toolchain []byte) string {
	if bin.Module == "" {
		return ""
	}
	hash := sha256.New()
	hash.Write(toolchain)
	for _, name := range []string{"go.mod", "go.sum"} {
		hash.Write(attempt.Must(os.ReadFile(filepath.Join(b.Repo, bin.Dir, name))))
	}
	var flags []string
	if bin.VersionVars != nil {
		flags = bin.VersionVars("v1.2.3") // The version itself is in go.mod.
	}
	fmt.Fprintln(hash, bin.Package, linkFlags, flags)
	return fmt.Sprintf("%x", hash.Sum(nil)[:16])
}

// Tail returns the last lines of a log for an error message, of which structured ones can be pages long.
func Tail(path string) string {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Sprintf("\n  (no log: %v)", err)
	}
	all := bytes.Split(bytes.TrimRight(content, "\n"), []byte("\n"))
	out := fmt.Sprintf("\n  last lines of %s:", path)
	for _, line := range all[max(0, len(all)-15):] {
		out += fmt.Sprintf("\n  | %.400s", bytes.ToValidUTF8(line, []byte("?")))
	}
	return out
}
