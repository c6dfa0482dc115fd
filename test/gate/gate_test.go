// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/onsi/ginkgo/v2/types"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestPartsStandBehindWhatTheyNeed(t *testing.T) {
	for _, g := range gateParts {
		expect.That(t, slices.ContainsFunc(allParts, func(p part) bool { return p.name == g.name }), "make test-all has no part %s", g.name)
	}
	for name, parts := range map[string][]part{"gate": gateParts, "all": allParts} {
		known := map[string]bool{}
		for _, p := range parts {
			for _, need := range p.needs {
				expect.That(t, known[need], "%s: %s needs %s, which does not stand before it", name, p.name, need)
			}
			expect.That(t, p.after == "" || known[p.after], "%s: %s is to start after %s, which does not stand before it", name, p.name, p.after)
			expect.That(t, !known[p.name], "%s: there are two parts %s", name, p.name)
			known[p.name] = true
		}
	}
}

func TestPick(t *testing.T) {
	parts := []part{{name: "a"}, {name: "b", needs: []string{"a"}}, {name: "c", needs: []string{"b"}}, {name: "d"}}
	for names, want := range map[string]string{"": "a b c d", "c": "a b c", "d,a": "a d", "e": ""} {
		picked, err := pick(parts, names)
		got := ""
		for _, p := range picked {
			got += " " + p.name
		}
		expect.Same(t, "Unexpected parts of "+names, want, strings.TrimSpace(got))
		expect.That(t, (err != nil) == (names == "e"), "%s: %v", names, err)
	}
}

func TestGoTestsNamesTheInnermostFailure(t *testing.T) {
	log := strings.Join([]string{
		"go test ./...",
		`{"Action":"output","Package":"p","Test":"TestA","Output":"--- PASS: TestA"}`,
		`{"Action":"pass","Package":"p","Test":"TestA"}`,
		`{"Action":"output","Package":"p","Test":"TestB/x","Output":"b.go:1: got 1,"}`,
		`{"Action":"output","Package":"p","Test":"TestB/x","Output":" want 2"}`,
		`{"Action":"fail","Package":"p","Test":"TestB/x"}`,
		`{"Action":"fail","Package":"p","Test":"TestB"}`,
		`{"Action":"fail","Package":"p"}`,
		`{"Action":"build-output","ImportPath":"q","Output":"q.go:3: undefined: x"}`,
		`{"Action":"build-fail","ImportPath":"q"}`,
		`{"Action":"output","Package":"r","Output":"sample: 12 of 300 plans"}`,
		`{"Action":"pass","Package":"r"}`,
	}, "\n")
	got := goTests(bufio.NewScanner(strings.NewReader(log)))
	slices.SortFunc(got.Failures, func(a, b failure) int { return strings.Compare(a.Name, b.Name) })
	want := specs{Run: 3, Left: 288, Failures: []failure{{"p TestB/x", "b.go:1: got 1, want 2"}, {"q", "q.go:3: undefined: x"}}}
	expect.Same(t, "unexpected specs", want, got)
}

func TestGinkgoSpecs(t *testing.T) {
	spec := func(name string, state types.SpecState, message string) types.SpecReport {
		return types.SpecReport{LeafNodeType: types.NodeTypeIt, LeafNodeText: name, State: state, Failure: types.Failure{Message: message}}
	}
	setUp := types.SpecReport{LeafNodeType: types.NodeTypeSynchronizedBeforeSuite, State: types.SpecStatePassed}
	got := ginkgoSpecs([]types.Report{{SpecReports: types.SpecReports{
		setUp, spec("passes", types.SpecStatePassed, ""), spec("fails", types.SpecStateFailed, "no"),
		spec("long", types.SpecStateSkipped, ""), spec("newer", types.SpecStateSkipped, "the cluster runs Trainer 2.1"),
	}}})
	want := specs{Run: 2, Left: 2, Ran: map[string]bool{"passes": true, "fails": true, "long": false, "newer": false}, Failures: []failure{{"fails", ":0 no"}}}
	expect.Same(t, "Unexpected specs", want, got)
}

func TestLeftIsWhatNoPartOfASuiteRuns(t *testing.T) {
	of := func(suite string, ran ...string) result {
		r := result{Suite: suite, Specs: specs{Ran: map[string]bool{"a": false, "b": false, "c": false}, Left: 3 - len(ran)}}
		for _, name := range ran {
			r.Specs.Ran[name] = true
		}
		return r
	}
	results := []result{of("e2e", "a"), of("", "a"), of("e2e", "b")}
	for i, want := range []int{0, 2, 1} {
		expect.Same(t, fmt.Sprintf("Unexpected specs left of part %d", i), want, left(results, i))
	}
}

func TestEverySpecRunsSomewhere(t *testing.T) {
	of := func(ran ...bool) result {
		return result{Suite: suiteE2E, Specs: specs{Ran: map[string]bool{"core": ran[0], "of 2.1": ran[1]}}}
	}
	missing := []result{{Part: "everywhere", Error: "1 specs ran in no part", Specs: specs{Failures: []failure{{"of 2.1", "it ran in no part"}}}}}
	leftOut := result{Suite: suiteE2E, LeftOut: "no container engine answers"}
	expect.Answers(t, everywhere, map[string]expect.Row[[]result, []result]{
		"one of another release":         {In: []result{of(true, false), of(false, true)}},
		"one that skips itself always":   {In: []result{of(true, false), of(true, false)}, Want: missing},
		"one of a part that is left out": {In: []result{of(true, false), leftOut}},
		"one of a part that failed":      {In: []result{of(true, false), {Error: "exit status 2"}}},
	})
}

// recipes are what make would run for targets.
func recipes(t *testing.T, targets []string, variables ...string) string {
	t.Helper()
	cmd := exec.Command("make", slices.Concat([]string{"-C", "../..", "--dry-run"}, targets, variables)...)
	cmd.Env = environment()
	return string(expect.Must(cmd.Output())(t))
}

// The suite compares what it is told with what its cluster runs.
func TestSuitesAreToldTheirVersions(t *testing.T) {
	for target, version := range map[string]string{
		"e2e-core-2.1": "TRAINER=2.1", "e2e-2.1": "TRAINER=2.1", "e2e-2.2": "TRAINER=2.2", "e2e-1.34": "KUBERNETES=1.34", "e2e-1.37": "KUBERNETES=1.37",
	} {
		told := regexp.MustCompile(`export [^;]*\b` + version + `\b[^;]*;`)
		expect.That(t, told.MatchString(recipes(t, []string{target})), "Nobody tells the suite of make %s of %s", target, version)
	}
}

// A part that takes what is there as it is would otherwise run what an older commit was compiled to.
func TestWhatPartsStartIsBuiltBefore(t *testing.T) {
	taken := regexp.MustCompile(`test -x (\S+) \|\|`)
	for name, parts := range map[string][]part{"gate": gateParts, "all": allParts} {
		built := map[string]string{}
		for _, p := range parts {
			if p.builds {
				built[p.name] = recipes(t, p.target)
				continue
			}
			before := ""
			for _, need := range expect.Must(pick(parts, p.name))(t) {
				before += built[need.name]
			}
			for _, file := range taken.FindAllStringSubmatch(recipes(t, p.target, "BUILT=1"), -1) {
				expect.That(t, strings.Contains(before, " -o "+file[1]+" "), "%s: nothing that %s needs builds %s", name, p.name, file[1])
			}
		}
		expect.That(t, len(built) > 0, "%s: no part builds anything", name)
	}
}

// TestEveryPackageHasATarget compares the packages with tests to what the Makefile gives to go test and ginkgo. It reads the
// directories itself, so that the go command knows of a new file.
func TestEveryPackageHasATarget(t *testing.T) {
	const root = "../.."
	makefile := string(expect.Must(os.ReadFile(root + "/Makefile"))(t))
	tests := 0
	expect.NoError(t, filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && file != root && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if file = strings.TrimPrefix(file, root+"/"); strings.HasSuffix(file, "_test.go") {
			tests++
			expect.That(t, covers(makefile, file), "No target of the Makefile runs %s", file)
		}
		return err
	}))
	expect.That(t, tests >= 100, "Only %d files are found", tests)
	for file, want := range map[string]bool{
		"pkg/x/y/y_test.go": true, "release/x/x_test.go": true, "test/e2e/x_test.go": true, "test/adversary/x_test.go": true,
		"test/adversary/x/x_test.go": false, "test/e2e/x/x_test.go": false, "x_test.go": false,
	} {
		expect.That(t, covers(makefile, file) == want, "Is %s run by a target: want %t", file, want)
	}
}

// covers reports whether a Makefile gives the package of a file to go test, or runs it as a suite of ginkgo's.
func covers(makefile, file string) bool {
	for line := range strings.Lines(makefile) {
		words, module := strings.Fields(line), ""
		for i, word := range words {
			switch {
			case strings.HasSuffix(word, ".test") && path.Dir(word) == path.Dir(file):
				return true
			case !strings.Contains(line, "go test"):
			case word == "-C":
				module = words[i+1]
			case strings.HasPrefix(word, "./"):
				dir, below := strings.CutSuffix(path.Join(module, word), "...")
				if dir == path.Dir(file) || below && strings.HasPrefix(file, dir) {
					return true
				}
			}
		}
	}
	return false
}

func TestHelpNamesEveryTarget(t *testing.T) {
	help := string(expect.Must(exec.Command("make", "-C", "../..", "help").Output())(t))
	makefile := string(expect.Must(os.ReadFile("../../Makefile"))(t))
	for line := range strings.Lines(makefile) {
		if target, _, ok := strings.Cut(line, ":"); ok && !strings.ContainsAny(line[:1], "#\t") && strings.Contains(line, " ## ") {
			expect.That(t, strings.Contains(help, "  "+target+" "), "make help has no %s", target)
		}
	}
}

func TestMakeRefusesAPathWithSpaces(t *testing.T) {
	makefile := expect.Must(filepath.Abs("../../Makefile"))(t)
	dir := filepath.Join(t.TempDir(), "a b")
	expect.NoError(t, os.Mkdir(dir, 0o755))
	out, _ := exec.Command("make", "-n", "-C", dir, "-f", makefile, "help").CombinedOutput()
	expect.That(t, strings.Contains(string(out), "no path with spaces: move "+dir), "It says:\n%s", out)
}

// makefile has targets that pass, fail, and tell in which order they ran.
const makefile = `
ok-%: ; @echo $* >> order; echo told to $(REPORT)
bad: ; @echo bad >> order; echo it broke; exit 3
`

func checkout(t *testing.T, parts ...part) *run {
	t.Helper()
	t.Chdir(t.TempDir())
	expect.NoError(t, os.WriteFile("Makefile", []byte(makefile), 0o644))
	return &run{dir: filepath.Join(t.TempDir(), "reports"), parts: parts, atATime: 1, out: io.Discard,
		commit: func(context.Context) (string, error) { return "c0ffee", nil }}
}

func states(results []result) string {
	var b strings.Builder
	for _, r := range results {
		fmt.Fprintf(&b, "%s: %s\n", r.Part, r.state())
	}
	return b.String()
}

func TestRunGoesOnWithWhatDoesNotNeedTheFailedPart(t *testing.T) {
	r := checkout(t, part{name: "a", target: []string{"ok-a"}}, part{name: "b", target: []string{"bad"}, needs: []string{"a"}},
		part{name: "c", target: []string{"ok-c"}, needs: []string{"b"}}, part{name: "d", target: []string{"ok-d"}},
		part{name: "e", target: []string{"ok-e"}, engine: true})
	results := r.run(t.Context())
	want := "a: passed\nb: exit status 2\nc: needs b, which failed\nd: passed\ne: left out: no container engine answers\n"
	expect.Same(t, "unexpected ends", want, states(results))
	expect.Says(t, verdict(results), "b: exit status 2; log: "+filepath.Join(r.dir, "b.log"))
}

func TestRunStartsAPartAfterAnotherWhateverThatCameTo(t *testing.T) {
	r := checkout(t, part{name: "a", target: []string{"ok-a"}, after: "b"}, part{name: "b", target: []string{"bad"}}, part{name: "c", target: []string{"ok-c"}, after: "not picked"})
	r.atATime = 3
	expect.Same(t, "Unexpected ends", "a: passed\nb: exit status 2\nc: passed\n", states(r.run(t.Context())))
	order := string(expect.Must(os.ReadFile("order"))(t))
	expect.That(t, strings.Index(order, "bad") < strings.Index(order, "a\n"), "They ran in the order %q", order)
}

func TestRunGoesOnWhereOneOfTheSameCommitWasStopped(t *testing.T) {
	a, b := part{name: "a", target: []string{"ok-a"}}, part{name: "b", target: []string{"bad"}}
	r := checkout(t, a, b)
	r.resumes = true
	r.run(t.Context())
	r.parts[1].target = []string{"ok-b"}
	expect.Same(t, "Unexpected ends", "a: passed in an earlier run of this commit\nb: passed\n", states(r.run(t.Context())))
	r.commit = func(context.Context) (string, error) { return "c0ffee" + changed, nil }
	expect.Same(t, "Unexpected ends with changes that no commit has", "a: passed\nb: passed\n", states(r.run(t.Context())))
}
