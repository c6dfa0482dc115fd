// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/onsi/ginkgo/v2/types"
)

type specs struct {
	Run int `json:"run"`
	// Left are those that its flags leave out, or that its cluster is not made for.
	Left int `json:"left"`
	// Ran has Ginkgo's specs by name: whether they ran, or are left. Another part may run those.
	Ran map[string]bool `json:"ran,omitempty"`
	// Failures are told one by one.
	Failures []failure `json:"failures,omitempty"`
}

type failure struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// readSpecs counts the specs of Ginkgo's reports where there are any, whose names begin alike, and
// else the tests that the go command tells of in the log.
func readSpecs(report, log string) specs {
	var all []types.Report
	files, _ := filepath.Glob(report + "*") // the pattern is well-formed
	for _, name := range files {
		var reports []types.Report
		if content, err := os.ReadFile(name); err == nil && json.Unmarshal(content, &reports) == nil {
			all = append(all, reports...)
		}
	}
	if len(all) > 0 {
		return ginkgoSpecs(all)
	}
	file, err := os.Open(log)
	if err != nil {
		return specs{}
	}
	defer file.Close()
	return goTests(bufio.NewScanner(file))
}

func ginkgoSpecs(reports []types.Report) specs {
	s := specs{Ran: map[string]bool{}}
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			if spec.State.Is(types.SpecStateFailureStates) {
				s.Failures = append(s.Failures, failure{spec.FullText(), spec.FailureLocation().String() + " " + spec.FailureMessage()})
			}
			leftOut := spec.State.Is(types.SpecStateSkipped | types.SpecStatePending)
			if spec.LeafNodeType == types.NodeTypeIt {
				s.Ran[spec.FullText()] = s.Ran[spec.FullText()] || !leftOut
			}
		}
	}
	for _, ran := range s.Ran {
		if ran {
			s.Run++
		} else {
			s.Left++
		}
	}
	return s
}

// sampled is how a test that runs a part of what it could says so.
var sampled = regexp.MustCompile(`sample: (\d+) of (\d+)`)

// goTests reads what `go test -json` prints. Lines that are something else are passed over.
func goTests(lines *bufio.Scanner) specs {
	lines.Buffer(nil, 16<<20)
	var s specs
	failed, output := map[string][]string{}, map[string]string{}
	for lines.Scan() {
		if found := sampled.FindStringSubmatch(lines.Text()); found != nil {
			ran, _ := strconv.Atoi(found[1]) // the pattern has digits only
			of, _ := strconv.Atoi(found[2])
			s.Left += of - ran
		}
		var event struct{ Action, Package, ImportPath, Test, Output, FailedBuild string }
		if json.Unmarshal(lines.Bytes(), &event) != nil {
			continue
		}
		name := strings.TrimSpace(event.Package + event.ImportPath + " " + event.Test)
		switch event.Action {
		case "output", "build-output":
			output[name] += event.Output
		case "fail", "build-fail":
			if event.FailedBuild != "" {
				break // told where the build failed
			}
			failed[event.Package] = append(failed[event.Package], name)
		case "pass", "skip":
			delete(output, name)
		}
		if event.Test != "" && (event.Action == "pass" || event.Action == "fail") {
			s.Run++
		}
	}
	for _, names := range failed {
		for _, name := range names {
			// A test fails with its parts and a package with its tests: the innermost tell why.
			if !slices.ContainsFunc(names, func(inner string) bool {
				return strings.HasPrefix(inner, name+"/") || !strings.Contains(name, " ") && strings.HasPrefix(inner, name+" ")
			}) {
				s.Failures = append(s.Failures, failure{name, output[name]})
			}
		}
	}
	return s
}

// summary is the table of all parts, and what the gate leaves to `make test-all`.
func summary(results []result, all bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "Tested: %s, with %s on %d processors.\n\n", results[0].Commit, runtime.Version(), runtime.NumCPU())
	fmt.Fprintf(&b, "| %-18s | seconds | specs run | left | |\n|%s|--------:|----------:|-----:|---|\n", "part", strings.Repeat("-", 20))
	var run, failed int
	for i, r := range results {
		fmt.Fprintf(&b, "| %-18s | %7.0f | %9d | %4d | %s |\n", r.Part, r.Seconds, r.Specs.Run, left(results, i), r.state())
		run += r.Specs.Run
		if failed += len(r.Specs.Failures); r.Failed() && len(r.Specs.Failures) == 0 {
			failed++
		}
	}
	if !all {
		var only []string
		for _, p := range allParts {
			if !slices.ContainsFunc(gateParts, func(g part) bool { return g.name == p.name }) {
				only = append(only, p.name)
			}
		}
		fmt.Fprintf(&b, "\nOnly `make test-all` runs: %s.\n", strings.Join(only, ", "))
	}
	fmt.Fprintf(&b, "\n%d passed, %d failed\n", max(0, run-failed), failed)
	return b.String()
}

// left counts the specs of a part that no part of its suite has run. Of several, the last part tells of all.
func left(results []result, i int) int {
	r := results[i]
	if r.Suite == "" {
		return r.Specs.Left
	}
	if slices.ContainsFunc(results[i+1:], func(later result) bool { return later.Suite == r.Suite }) {
		return 0
	}
	return len(nowhere(results, r.Suite))
}

// nowhere returns the specs of a suite that none of its parts has run.
func nowhere(results []result, suite string) []string {
	ranIn := map[string]bool{}
	for _, r := range results {
		for name, ran := range r.Specs.Ran {
			if r.Suite == suite {
				ranIn[name] = ranIn[name] || ran
			}
		}
	}
	maps.DeleteFunc(ranIn, func(_ string, ran bool) bool { return ran })
	return slices.Sorted(maps.Keys(ranIn))
}

// verdict tells in a few lines what failed, why, and where to read on.
func verdict(results []result) error {
	var lines []string
	for _, r := range results {
		if !r.Failed() {
			continue
		}
		lines = append(lines, fmt.Sprintf("%s: %s; log: %s", r.Part, r.Error, r.Log))
		for _, f := range r.Specs.Failures[:min(2, len(r.Specs.Failures))] {
			why := strings.Join(strings.Fields(f.Why), " ")
			lines = append(lines, "  "+f.Name+": "+why[:min(600, len(why))])
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if len(lines) > 10 {
		lines = append(lines[:9], "and more: the table has all")
	}
	return errors.New(strings.Join(lines, "\n"))
}
