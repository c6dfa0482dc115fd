// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

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
