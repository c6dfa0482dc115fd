// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
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
