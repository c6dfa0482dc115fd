// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
)

type part struct {
	name string
	// target of the Makefile, with variables.
	target []string
	// suite is set where several parts share the specs of one: what one leaves another may run.
	suite string
	needs []string
	// after names a part that would keep the processors too busy beside it.
	after string
	// busy is set where it keeps all processors busy. It gives way to parts that mostly wait for their clusters.
	busy bool
	// parallel is set where many specs wait for one cluster at a time, which keeps it busy, or where a cluster has
	// so many processes that its leaders lose their leases beside others.
	parallel bool
	// builds is set where it makes what others start, which may be gone when a run goes on.
	builds bool
	// specs is set where to have run none is a failure: a filter may name what is called otherwise now.
	specs bool
	// engine is set where it needs a container engine; without one it is left out.
	engine bool
	env    []string
}

// load is how much of -at-a-time a part takes.
func (p part) load() int {
	if p.busy || p.parallel {
		return 2
	}
	return 1
}

func (p part) argv() []string {
	argv := append([]string{"make", "--no-print-directory"}, p.target...)
	if p.busy {
		return append([]string{"nice", "-n", "5"}, argv...)
	}
	return argv
}

func (p part) String() string { return "make " + strings.Join(p.target, " ") }

// Parts of both runs.
var (
	generated = part{name: "generated", target: []string{"verify-generated"}, busy: true}
	modules   = part{name: "modules", target: []string{"verify-modules"}, needs: []string{"generated"}}
	binaries  = part{name: "binaries", target: []string{"test-binaries"}, busy: true, builds: true, needs: []string{"generated"}}
	unit      = part{name: "unit", target: []string{"unit"}, busy: true, specs: true, needs: []string{"generated"}}
	lint      = part{name: "lint", target: []string{"lint", "vet"}, busy: true, needs: []string{"generated"}}
	chart     = part{name: "chart", target: []string{"e2e-chart"}, specs: true, needs: []string{"binaries"}}
	nodeImage = part{name: "node-image", target: []string{"kind-node-image"}, busy: true, engine: true, needs: []string{"binaries"}}
)

// ofGenerations are the files with specs of what differs between the generations of Trainer: which
// field holds the manager's entry, what it becomes, and which writes Trainer takes.
const ofGenerations = "(mainjob|exact|others|generation)_test"

// required are the specs that a change has to pass: a TrainJob's main ways, and what docs/dev/invariants.md promises.
const required = "(core || invariant) && !long"

// gateParts are what every change has to pass, in the order of their start: first what takes longest and mostly waits.
var gateParts = []part{
	generated, binaries, modules, nodeImage,
	parallel(e2e("e2e", "e2e", required+" && !control && !docs-page", "-walk.steps=15")),
	e2e("e2e-control", "e2e-control", required+" && control"),
	parallel(kind("kind-core")),
	{name: "fleet", target: []string{"e2e-fleet"}, specs: true, needs: []string{"binaries"}, env: flags("core")},
	{name: "faults", target: []string{"faults-sample"}, specs: true, needs: []string{"binaries"}, env: []string{"FAULTS_FLAGS=-faults.sample=8"}},
	{name: "e2e-2.1", suite: suiteE2E, target: []string{"e2e-core-2.1"}, specs: true, needs: []string{"binaries"},
		env: []string{"E2E_FLAGS=-ginkgo.focus-file='" + ofGenerations + "'"}},
	{name: "adversary", target: []string{"adversary"}, specs: true, needs: []string{"binaries"}, env: []string{"ADVERSARY_FLAGS=-adversary.tenants=3 -adversary.shrink=90s"}},
	unit, lint, chart,
	{name: "generations", target: []string{"generations-sample"}, busy: true, specs: true, needs: []string{"generated"}},
}

var allParts = []part{
	generated, and(binaries, "test/monitoring/monitoring.test"), modules, unit, lint, chart, nodeImage,
	{name: "race", target: []string{"race"}, busy: true, specs: true, needs: []string{"generated"}},
	{name: "generations", target: []string{"generations"}, busy: true, specs: true, needs: []string{"generated"}},
	parallel(e2e("e2e", "e2e", "!control && !docs-page", "-foresight.scenarios=20")),
	e2e("e2e-control", "e2e-control", "control"),
	e2e("e2e-pages", "e2e-pages", "docs-page && !control"),
	{name: "e2e-2.1", suite: suiteE2E, target: []string{"e2e-core-2.1"}, specs: true, needs: []string{"binaries"}},
	{name: "e2e-2.1-all", suite: suiteE2E, target: []string{"e2e-2.1"}, specs: true, needs: []string{"binaries"}, after: "e2e-2.1", env: flags("!docs-page")},
	{name: "e2e-2.2", suite: suiteE2E, target: []string{"e2e-2.2"}, specs: true, needs: []string{"binaries"}, after: "e2e-2.1-all", env: flags("!docs-page")},
	{name: "kubernetes-1.37", suite: suiteE2E, target: []string{"e2e-1.37"}, specs: true, needs: []string{"binaries"}, after: "e2e-2.2", env: flags("core && !long")},
	{name: "kubernetes-1.34", suite: suiteE2E, target: []string{"e2e-1.34"}, specs: true, needs: []string{"binaries"}, after: "kubernetes-1.37", env: flags("core && !long")},
	{name: "fleet", target: []string{"e2e-fleet"}, specs: true, needs: []string{"binaries"}},
	{name: "fleet-mixed", target: []string{"e2e-fleet", "FLEET_WORKERS=external:2.2,external:2.1"}, specs: true, needs: []string{"binaries"}, after: "fleet",
		env: []string{"E2E_FLAGS=-ginkgo.focus=Whatever.release"}},
	{name: "faults", target: []string{"faults"}, specs: true, needs: []string{"binaries"}},
	{name: "adversary", target: []string{"adversary"}, specs: true, needs: []string{"binaries"}},
	kind(""),
	{name: "monitoring", target: []string{"monitoring-test"}, specs: true, needs: []string{"binaries"}},
	{name: "mutants", target: []string{"mutants"}, busy: true, needs: []string{"generated"}},
}

const suiteE2E = "e2e"

// e2e runs the specs that a label filter picks.
func e2e(name, target, filter string, more ...string) part {
	return part{name: name, suite: suiteE2E, target: []string{target}, specs: true, needs: []string{"binaries"}, env: flags(filter, more...)}
}

func parallel(p part) part {
	p.parallel = true
	return p
}

// and has a part make another target, too.
func and(p part, target string) part {
	p.target = append(slices.Clone(p.target), target)
	return p
}

// kind runs specs on a kind cluster of its own, which stays where they fail.
func kind(filter string) part {
	return part{name: "kind", suite: suiteE2E, target: []string{"e2e-kind", "kind-down", "KIND_NAME=kueue-trainer-test", "KIND_DIR=.kind-test"},
		specs: true, engine: true, needs: []string{"node-image"}, env: flags(filter)}
}

func flags(filter string, more ...string) []string {
	if filter == "" {
		return nil
	}
	return []string{fmt.Sprintf("E2E_FLAGS=-ginkgo.label-filter=%q %s", filter, strings.Join(more, " "))}
}

// pick returns the parts that are named, and what they need. Without a name it returns all.
func pick(parts []part, names string) ([]part, error) {
	wanted := map[string]bool{}
	for _, name := range strings.FieldsFunc(names, func(r rune) bool { return r == ',' }) {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return nil, fmt.Errorf("there is no part %q", name)
		}
		wanted[name] = true
	}
	if len(wanted) == 0 {
		return parts, nil
	}
	// What a part needs stands before it.
	for _, p := range slices.Backward(parts) {
		for _, need := range p.needs {
			wanted[need] = wanted[need] || wanted[p.name]
		}
	}
	return slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return !wanted[p.name] }), nil
}
