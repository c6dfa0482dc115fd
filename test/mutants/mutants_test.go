// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

func TestMutantsApply(t *testing.T) {
	root := expect.Must(world.Root())(t)
	seen := map[string]bool{}
	for _, m := range mutants {
		content, err := os.ReadFile(filepath.Join(root, m.File))
		if err != nil {
			t.Error(err)
			continue
		}
		changed, err := m.applied(string(content))
		expect.That(t, err == nil, "%s: %v", m.Breaks, err)
		expect.That(t, err != nil || changed != string(content), "%s: the mutant changes nothing", m.Breaks)
		expect.That(t, m.Test != "" || m.Spec != "", "%s: no test or spec is named that has to fail", m.Breaks)
		expect.That(t, !seen[m.Breaks], "%s: two mutants have this name", m.Breaks)
		seen[m.Breaks] = true
	}
	expect.That(t, len(mutants) >= 40, "there are %d mutants; 40 are promised", len(mutants))
}

func TestApplied(t *testing.T) {
	m := mutant{File: "f.go", Search: "a < b", Replace: "a <= b"}
	tests := map[string]struct {
		content, want string
		fails         bool
	}{
		"the code is there":       {content: "if a < b {", want: "if a <= b {"},
		"the code is gone":        {content: "if b > a {", fails: true},
		"the code is there twice": {content: "a < b && a < b", fails: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := m.applied(tc.content)
			expect.That(t, got == tc.want && (err != nil) == tc.fails, "applied(%q) = %q, %v; want %q", tc.content, got, err, tc.want)
		})
	}
}
