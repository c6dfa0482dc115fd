// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
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

	"github.com/kueue-trainer/kueue-trainer/test/localcluster/internal/logtail"
)

// linkFlags leave the symbol table and the debug information out: the binaries are
// run, not debugged, and weigh a third less.
var linkFlags = []string{"-s", "-w"}

// Builder builds Binaries of one repository.
type Builder struct {
	// Repo is the root of the repository.
	Repo string
	// LogDir receives build-NAME.log with what the go command prints.
	LogDir string
	// Out receives the progress, for people.
	Out io.Writer
	// OS is the operating system that the binaries run on; empty means this one.
	OS string
}

// BinDir is where the binaries lie.
func (b Builder) BinDir() string {
	if b.OS == "" || b.OS == runtime.GOOS {
		return filepath.Join(b.Repo, "bin")
	}
	return filepath.Join(b.Repo, "bin", b.OS)
}

// environment is that of the go command. Nothing is built with C, so that no compiler is
// needed and what is built runs in an image of nothing else.
func (b Builder) environment() []string {
	env := append(os.Environ(), "CGO_ENABLED=0")
	if b.OS != "" {
		env = append(env, "GOOS="+b.OS)
	}
	return env
}

// Build makes those of binaries that are missing or out of date.
func (b Builder) Build(ctx context.Context, binaries []Binary) error {
	if err := errors.Join(os.MkdirAll(b.BinDir(), 0o755), os.MkdirAll(b.LogDir, 0o755)); err != nil {
		return err
	}
	record := readRecord(b.BinDir())
	stamps, err := b.stamps(ctx, binaries)
	if err != nil {
		return err
	}
	fresh := 0
	if len(record) == 0 {
		b.sayHowLong(len(binaries))
	}
	for i, bin := range binaries {
		last := record[bin.Name]
		if b.upToDate(bin, last, stamps[bin.Name]) {
			fresh++
			continue
		}
		fmt.Fprintf(b.Out, "[%d/%d] %s …  building%s\n", i+1, len(binaries), bin.Name, last.lastTime())
		start := time.Now()
		if err := b.goBuild(ctx, bin); err != nil {
			return err
		}
		took := time.Since(start)
		fmt.Fprintf(b.Out, "[%d/%d] %s     done in %s\n", i+1, len(binaries), bin.Name, round(took))
		record[bin.Name] = entry{Stamp: stamps[bin.Name], Seconds: took.Seconds()}
		if err := writeRecord(b.BinDir(), record); err != nil {
			return err
		}
	}
	if fresh > 0 {
		fmt.Fprintf(b.Out, "%d binaries up to date\n", fresh)
	}
	return nil
}

// sayHowLong tells whoever builds for the first time what is coming.
func (b Builder) sayHowLong(programs int) {
	fmt.Fprintf(b.Out, "Compiling %d programs from Go modules, once: 7 to 10 minutes on two cores, and longer on a busy machine.\n", programs)
	if programs > kindPrograms {
		fmt.Fprintln(b.Out, "With Docker, `make demo KIND=1` compiles no Kubernetes and is there in half of the time.")
	}
}

// kindPrograms is how many a kind cluster takes, or fewer.
const kindPrograms = 8

// upToDate spares the go command's own check, which reads every source file of
// Kubernetes and takes seconds per binary. A module version never changes, so the
// stamp says it all; our own sources do change, so they have none. With BUILT=1, as the
// Makefile has it, they have been built for this run.
func (b Builder) upToDate(bin Binary, last entry, stamp string) bool {
	if last.Stamp != stamp || stamp == "" && os.Getenv("BUILT") == "" {
		return false
	}
	_, err := os.Stat(filepath.Join(b.BinDir(), bin.Name))
	return err == nil
}

func (b Builder) goBuild(ctx context.Context, bin Binary) error {
	logFile := filepath.Join(b.LogDir, "build-"+bin.Name+".log")
	log, err := os.Create(logFile)
	if err != nil {
		return err
	}
	defer log.Close() //nolint:errcheck // only text for people

	flags, err := b.ldflags(ctx, bin)
	if err != nil {
		return err
	}
	// go run keeps what it has linked in Go's cache, which go build does not; install also takes the place
	// of a program that runs. Flags that change what is compiled come from make alone, so that it serves
	// `go test` and `go run` as well. -C must come first; the output is named absolutely because of it.
	args := []string{"run", "-C", filepath.Join(b.Repo, bin.Dir),
		"-ldflags", flags, "-exec", "install", bin.Package, filepath.Join(b.BinDir(), bin.Name)}
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Stdout, cmd.Stderr, cmd.Env = log, log, b.environment()
	fmt.Fprintln(log, strings.Join(cmd.Args, " "))
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("failed to build %s: %w%s", bin.Name, err, logtail.Of(logFile))
	}
	return nil
}

func (b Builder) ldflags(ctx context.Context, bin Binary) (string, error) {
	flags := slices.Clone(linkFlags)
	if bin.VersionVars != nil {
		module, err := b.Module(ctx, bin.Dir, bin.Module)
		if err != nil {
			return "", err
		}
		flags = append(flags, bin.VersionVars(module.Version)...)
	}
	return strings.Join(flags, " "), nil
}
