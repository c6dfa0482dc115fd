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
		file, err := os.ReadFile(filepath.Join(root, m.File))
		if err != nil {
			t.Error(err)
			continue
		}
		content := string(file)
		changed, err := m.applied(content)
		expect.That(t, err == nil, "%s: %v", m.Breaks, err)
		expect.That(t, err != nil || changed != content, "%s: the mutant changes nothing", m.Breaks)
		expect.That(t, m.Test != "" || m.Spec != "", "%s: no test or spec is named that has to fail", m.Breaks)
		expect.That(t, !seen[m.Breaks], "%s: two mutants have this name", m.Breaks)
		seen[m.Breaks] = true
	}
	_, err := mutant{Search: "a < b"}.applied("a < b && a < b")
	expect.That(t, err != nil, "code that is there twice is changed")
	expect.That(t, len(mutants) >= 40, "there are %d mutants; 40 are promised", len(mutants))
}
