// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
)

// outcome says in a few words what became of a mutant.
func (f fate) outcome() string {
	switch f.end() {
	case broken:
		return "DOES NOT APPLY: " + f.err.Error()
	case notRun:
		return "not run without -e2e: " + f.Spec
	case survived:
		return "SURVIVED"
	}
	return strings.Join(f.killedBy, "; ")
}

// short leaves out the tests that only failed because a part of them did.
func short(names []string) []string {
	var out []string
	for i, name := range names {
		if i+1 == len(names) || !strings.HasPrefix(names[i+1], name+"/") {
			out = append(out, strings.ReplaceAll(name, "_", " "))
		}
	}
	if len(out) > 2 {
		out = append(out[:2], fmt.Sprintf("and %d more", len(out)-2))
	}
	return out
}

const (
	beginMark = "<!-- make mutants writes from here -->\n"
	endMark   = "<!-- to here -->\n"
)

// section is the part of docs/dev/invariants.md that tells of the mutants: those that no test noticed, since
// test/mutants names the test of every other.
func section(fates []fate) string {
	var rows strings.Builder
	noticed := 0
	for _, f := range fates {
		if f.end() == killed {
			noticed++
			continue
		}
		fmt.Fprintf(&rows, "| %s | `%s` | %s |\n", f.Breaks, f.File, cell(f.outcome()))
	}
	summary := fmt.Sprintf("%d seeded bugs, of which tests noticed %d.\n", len(fates), noticed)
	if rows.Len() > 0 {
		summary += "\n| the other bugs | where | outcome |\n|---|---|---|\n" + rows.String()
	}
	return summary
}

func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\n", " "), "|", "\\|")
}
