// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// fate is what became of a mutant.
type fate struct {
	mutant
	// killedBy are the tests and specs that failed, as they have to.
	killedBy []string
	// bySpec is set when its spec is among them.
	bySpec bool
	// err is why the mutant says nothing, or nil.
	err error
	// notRun is set where there was no way to try it.
	notRun bool
}

// end is how a mutant ended.
type end int

const (
	killed end = iota
	// survived means that the bug was there, and nobody noticed.
	survived
	broken
	notRun
)

func (f fate) end() end {
	switch {
	case f.err != nil:
		return broken
	case f.notRun:
		return notRun
	case len(f.killedBy) == 0:
		return survived
	}
	return killed
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// runUnit runs the unit test that has to notice a mutant.
func runUnit(ctx context.Context, root string, m mutant) ([]string, error) {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	overlay, err := m.overlay(root, dir)
	if err != nil {
		return nil, err
	}
	out, err := command(ctx, root, "go", "test", "-overlay", overlay, "-count=1", "-timeout", "3m",
		"-run", "^"+m.Test+"$", "./"+filepath.Dir(m.File))
	return verdict(out, err, failedTest)
}

// verdict tells a failed test from a command that could not do its work. failed finds the
// names of the tests that failed.
func verdict(out string, err error, failed *regexp.Regexp) ([]string, error) {
	var exit *exec.ExitError
	switch {
	case err == nil && strings.Contains(out, "no tests to run"):
		return nil, errors.New("there is no such test")
	case err == nil:
		return nil, nil
	case !errors.As(err, &exit):
		return nil, err
	}
	var names []string
	for _, match := range failed.FindAllStringSubmatch(out, -1) {
		names = append(names, strings.TrimSpace(match[1]))
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no test failed, but the command did:\n%s", lastLines(out))
	}
	return names, nil
}

func lastLines(text string) string {
	const n = 8
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// do runs what has to succeed.
func do(ctx context.Context, dir, name string, args ...string) error {
	if out, err := command(ctx, dir, name, args...); err != nil {
		return fmt.Errorf("%s\n%w", lastLines(out), err)
	}
	return nil
}
