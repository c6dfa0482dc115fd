// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
)

// The generated part of performance.md stands between these.
const (
	beginMark = "<!-- make bench writes from here -->\n"
	endMark   = "<!-- to here -->\n"

	tablesTitle = "# What make bench measured\n\n[How to read it](../dev/measuring.md#how-to-read-it). All of this page is written by make bench.\n\n"
)

// writeReport writes the raw numbers to performance/ below dir, and the
// tables into performance.md there; they are given, too.
func writeReport(dir string, results *Results) (string, error) {
	details := filepath.Join(dir, "performance")
	if err := os.MkdirAll(details, 0o755); err != nil {
		return "", err
	}
	raw, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return "", err
	}
	return summary(results) + tables(results), errors.Join(
		os.WriteFile(filepath.Join(details, "results.json"), append(raw, '\n'), 0o644),
		os.WriteFile(filepath.Join(details, "tables.md"), []byte(tablesTitle+tables(results)), 0o644),
		replaceGenerated(filepath.Join(dir, "performance.md"), summary(results)))
}

// earlierResults reads the raw numbers of a report, to which others are added. Those of
// another machine cannot be compared.
func earlierResults(dir string, machine Machine) (*Results, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "performance", "results.json"))
	if err != nil {
		return nil, err
	}
	results := &Results{}
	if err := json.Unmarshal(raw, results); err != nil {
		return nil, err
	}
	earlier := results.Machine
	earlier.Versions = machine.Versions
	if !reflect.DeepEqual(earlier, machine) {
		return nil, fmt.Errorf("the report of %s was measured on another machine: measure all of it", dir)
	}
	return results, nil
}

// replaceGenerated leaves what people wrote around the marks as it is. Where there is no
// file yet, it gets the generated part alone.
func replaceGenerated(path, generated string) error {
	text, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	before, rest, marked := strings.Cut(string(text), beginMark)
	_, after, ended := strings.Cut(rest, endMark)
	if len(text) > 0 && (!marked || !ended) {
		return fmt.Errorf("%s has no lines %q and %q for the tables to stand between", path, beginMark, endMark)
	}

	return os.WriteFile(path, []byte(before+beginMark+generated+endMark+after), 0o644)
}
