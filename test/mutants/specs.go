// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// manager is the component that has the bug while a spec runs.
const manager = "kueue-trainer"

var failedSpec = regexp.MustCompile(`\[FAIL\] (.*)`)

// lab is a local control plane whose manager is exchanged.
type lab struct {
	root string
	// specs is the test binary of test/e2e.
	specs string
	dir   string
}

// newLab builds the specs once; they are the same for every mutant.
func newLab(ctx context.Context, root string) (*lab, error) {
	if os.Getenv("KUBECONFIG") == "" || os.Getenv("LOCAL_DIR") == "" {
		return nil, errors.New("specs need a control plane of `make local-up`: set LOCAL_DIR, and KUBECONFIG to LOCAL_DIR/kubeconfig")
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	l := &lab{root: root, dir: dir, specs: filepath.Join(dir, "e2e.test")}
	if err := do(ctx, root, "go", "test", "-c", "-o", l.specs, "./test/e2e"); err != nil {
		return nil, err
	}
	return l, nil
}

// close starts the control plane's own manager again.
func (l *lab) close(ctx context.Context) error {
	return errors.Join(l.exchange(ctx), os.RemoveAll(l.dir))
}

// run runs the spec that has to notice a mutant, with a manager that has it.
func (l *lab) run(ctx context.Context, m mutant) ([]string, error) {
	overlay, err := m.overlay(l.root, l.dir)
	if err != nil {
		return nil, err
	}
	if err := l.exchange(ctx, "-overlay", overlay); err != nil {
		return nil, err
	}
	out, err := command(ctx, filepath.Join(l.root, "test", "e2e"), l.specs, "-test.timeout", "10m",
		"-ginkgo.no-color", "-ginkgo.fail-fast", "-ginkgo.focus", regexp.QuoteMeta(m.Spec))
	return verdict(out, err, failedSpec)
}

// exchange builds the manager and starts it. Who repairs the control plane gets the one
// without a bug, so specs that do are no use here.
func (l *lab) exchange(ctx context.Context, flags ...string) error {
	binary := filepath.Join(l.root, "bin", manager)
	args := append([]string{"build"}, flags...)
	if err := do(ctx, l.root, "go", append(args, "-ldflags", "-s -w", "-o", binary, "./cmd/"+manager)...); err != nil {
		return err
	}
	return do(ctx, l.root, filepath.Join(l.root, "bin", "localcluster"), "restart", manager)
}

// mutant is a bug: one change of the core that a test has to notice.
type mutant struct {
	// Breaks says what goes wrong with it.
	Breaks string
	// File is the one that it changes, from the repository's root.
	File string
	// Search stands in File exactly once; Replace comes in its place.
	Search, Replace string
	// Test is the unit test of File's package that has to fail, empty where only a spec
	// can see the bug.
	Test string
	// Spec is the text of the e2e spec that has to fail, if there is one.
	Spec string
}

// applied returns the content of File with the bug in it, or why there is none.
func (m mutant) applied(content string) (string, error) {
	switch n := strings.Count(content, m.Search); n {
	case 1:
		return strings.Replace(content, m.Search, m.Replace, 1), nil
	case 0:
		return "", fmt.Errorf("the code to change is not in %s any more: rewrite the mutant, or take it out", m.File)
	default:
		return "", fmt.Errorf("the code to change is %d times in %s: make Search longer", n, m.File)
	}
}

// overlay writes the changed file and a file for the go command's -overlay into dir, and
// returns the name of the latter. The checkout stays as it is.
func (m mutant) overlay(root, dir string) (string, error) {
	file := filepath.Join(root, m.File)
	content, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	changed, err := m.applied(string(content))
	if err != nil {
		return "", err
	}
	replacement := filepath.Join(dir, filepath.Base(m.File))
	if err := os.WriteFile(replacement, []byte(changed), 0o644); err != nil {
		return "", err
	}
	data, err := json.Marshal(map[string]any{"Replace": map[string]string{file: replacement}})
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "overlay.json")
	return name, os.WriteFile(name, data, 0o644)
}
