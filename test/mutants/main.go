// SPDX-License-Identifier: Apache-2.0

// Command mutants puts one bug after another into the core and runs the test that has to
// notice. The checkout stays as it is: the go command reads the changed file in its place.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/kueue-trainer/kueue-trainer/test/attempt"
	"github.com/kueue-trainer/kueue-trainer/test/kit/pages"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var (
	withSpecs = flag.Bool("e2e", false, "run the e2e specs too, on the control plane of LOCAL_DIR and KUBECONFIG")
	only      = flag.String("run", "", "regular expression of the mutants to try, by what they break or their file; the document is left alone")
	atATime   = flag.Int("parallel", 2, "unit tests at a time")
)

// The document has between its marks which bugs no test noticed; the table names the test of every other.
const (
	document  = "docs/dev/invariants.md"
	beginMark = "<!-- make mutants writes from here -->\n"
	endMark   = "<!-- to here -->\n"
)

// manager is the component that has the bug while a spec runs.
const manager = "kueue-trainer"

// mutant is a bug: one change of the core that a test has to notice.
type mutant struct {
	Breaks string
	// File is the one that it changes, from the repository's root.
	File string
	// Search stands in File exactly once; Replace comes in its place.
	Search, Replace string
	// Test is the unit test of File's package that has to fail, empty where only a spec can see the bug.
	Test string
	// Spec is the text of the e2e spec that has to fail, if there is one.
	Spec string
}

type fate struct {
	mutant
	// tried is set where a test or a spec was run; killedBy are those that failed, as they have to.
	tried    bool
	killedBy []string
	// err is why the mutant says nothing.
	err error
}

func main() {
	flag.Parse()
	attempt.Main("", run)
}

func run(ctx context.Context) {
	root, pattern := attempt.Must(world.Root()), attempt.Must(regexp.Compile(*only))
	var fates []fate
	for _, m := range mutants {
		if pattern.MatchString(m.Breaks) || pattern.MatchString(m.File) {
			fates = append(fates, fate{mutant: m, tried: m.Test != ""})
		}
	}
	tryUnits(ctx, root, fates)
	if *withSpecs {
		trySpecs(ctx, root, fates)
	}
	if *only == "" {
		attempt.Succeed(pages.Fill(filepath.Join(root, document), beginMark, endMark, section(fates)))
	}
	attempt.Succeed(judge(fates))
}

func tryUnits(ctx context.Context, root string, fates []fate) {
	var group errgroup.Group
	group.SetLimit(*atATime)
	for i := range fates {
		f := &fates[i]
		if !f.tried {
			continue
		}
		group.Go(func() error {
			f.err = attempt.To(func() { f.killedBy = runUnit(ctx, root, f.mutant) })
			f.tell()
			return nil
		})
	}
	_ = group.Wait() // What became of each is in its fate.
}

func trySpecs(ctx context.Context, root string, fates []fate) {
	if os.Getenv("KUBECONFIG") == "" || os.Getenv("LOCAL_DIR") == "" {
		attempt.Fail("specs need a control plane of `make local-up`: set LOCAL_DIR, and KUBECONFIG to LOCAL_DIR/kubeconfig")
	}
	dir := attempt.Must(os.MkdirTemp("", "mutants-"))
	defer os.RemoveAll(dir)
	// They are the same for every mutant.
	specs := filepath.Join(dir, "e2e.test")
	attempt.Must(command(ctx, root, "go", "test", "-c", "-o", specs, "./test/e2e"))
	defer func() { exchange(context.WithoutCancel(ctx), root) }()
	for i := range fates {
		f := &fates[i]
		if f.Spec == "" || f.err != nil {
			continue
		}
		f.tried = true
		f.err = attempt.To(func() {
			if len(runSpec(ctx, root, dir, specs, f.mutant)) > 0 {
				f.killedBy = append(f.killedBy, "spec "+f.Spec)
			}
		})
		f.tell()
	}
}

// judge is an error where a bug was not noticed, or could not be tried.
func judge(fates []fate) error {
	var survived, broken, left int
	for _, f := range fates {
		switch {
		case f.err != nil:
			broken++
		case !f.tried:
			left++
		case len(f.killedBy) == 0:
			survived++
		}
	}
	fmt.Printf("\n%d mutants: %d survived, %d do not apply, %d need -e2e\n", len(fates), survived, broken, left)
	if survived+broken > 0 {
		return fmt.Errorf("%d mutants survived, %d do not apply", survived, broken)
	}
	return nil
}

func (f fate) tell() { fmt.Printf("%s (%s)\n  %s\n", f.Breaks, f.File, f.outcome()) }

func (f fate) outcome() string {
	switch {
	case f.err != nil:
		return "DOES NOT APPLY: " + f.err.Error()
	case !f.tried:
		return "not run without -e2e: " + f.Spec
	case len(f.killedBy) == 0:
		return "SURVIVED"
	}
	return strings.Join(f.killedBy, "; ")
}

func section(fates []fate) string {
	rows := [][]string{{"the other bugs", "where", "outcome"}}
	for _, f := range fates {
		if f.err != nil || len(f.killedBy) == 0 {
			rows = append(rows, []string{f.Breaks, "`" + f.File + "`", strings.NewReplacer("\n", " ", "|", "\\|").Replace(f.outcome())})
		}
	}
	summary := fmt.Sprintf("%d seeded bugs, of which tests noticed %d.\n", len(fates), len(fates)-len(rows)+1)
	if len(rows) > 1 {
		summary += "\n" + pages.Table(rows...)
	}
	return summary
}

var (
	failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	failedSpec = regexp.MustCompile(`\[FAIL\] (.*)`)
)

func runUnit(ctx context.Context, root string, m mutant) []string {
	dir := attempt.Must(os.MkdirTemp("", "mutant-"))
	defer os.RemoveAll(dir)
	out, err := command(ctx, root, "go", "test", "-overlay", m.overlay(root, dir), "-count=1", "-timeout", "3m", "-run", "^"+m.Test+"$", "./"+filepath.Dir(m.File))
	return verdict(out, err, failedTest)
}

// runSpec runs the spec that has to notice a mutant, with a manager that has it.
func runSpec(ctx context.Context, root, dir, specs string, m mutant) []string {
	exchange(ctx, root, "-overlay", m.overlay(root, dir))
	out, err := command(ctx, filepath.Join(root, "test", "e2e"), specs, "-test.timeout", "10m",
		"-ginkgo.no-color", "-ginkgo.fail-fast", "-ginkgo.focus", regexp.QuoteMeta(m.Spec))
	return verdict(out, err, failedSpec)
}

// exchange builds the manager and starts it. Specs that repair the control plane get the one without a bug: no use here.
func exchange(ctx context.Context, root string, flags ...string) {
	args := slices.Concat([]string{"build"}, flags, []string{"-ldflags", "-s -w", "-o", filepath.Join(root, "bin", manager), "./cmd/" + manager})
	attempt.Must(command(ctx, root, "go", args...))
	attempt.Must(command(ctx, root, filepath.Join(root, "bin", "localcluster"), "restart", manager))
}

// applied returns the content of File with the bug in it, or why there is none.
func (m mutant) applied(content string) (string, error) {
	if n := strings.Count(content, m.Search); n != 1 {
		return "", fmt.Errorf("the code to change is %d times in %s: rewrite the mutant, or take it out", n, m.File)
	}
	return strings.Replace(content, m.Search, m.Replace, 1), nil
}

// overlay writes the changed file and one for the go command's -overlay into dir, and returns the name of the latter.
func (m mutant) overlay(root, dir string) string {
	file, name, replacement := filepath.Join(root, m.File), filepath.Join(dir, "overlay.json"), filepath.Join(dir, filepath.Base(m.File))
	changed := attempt.Must(m.applied(string(attempt.Must(os.ReadFile(file)))))
	data := attempt.Must(json.Marshal(map[string]any{"Replace": map[string]string{file: replacement}}))
	attempt.Succeed(errors.Join(os.WriteFile(replacement, []byte(changed), 0o644), os.WriteFile(name, data, 0o644)))
	return name
}

// verdict tells tests that failed, whose names a pattern finds, from a command that could not do its work.
func verdict(out string, err error, failed *regexp.Regexp) (names []string) {
	if err == nil {
		if strings.Contains(out, "no tests to run") {
			attempt.Fail("there is no such test")
		}
		return nil
	}
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		attempt.Succeed(err)
	}
	for _, match := range failed.FindAllStringSubmatch(out, -1) {
		names = append(names, strings.TrimSpace(match[1]))
	}
	if len(names) == 0 {
		attempt.Succeed(err, "no test failed, but the command did")
	}
	return names
}

// command runs one, whose error has the last lines of what it said.
func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		err = fmt.Errorf("%w\n%s", err, strings.Join(lines[max(0, len(lines)-8):], "\n"))
	}
	return string(out), err
}
