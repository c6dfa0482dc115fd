// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// Every alert has a page that says what it means, what follows, how to find out and what to do.
func TestEveryAlertHasARunbook(t *testing.T) {
	dir := filepath.Join("..", "..", "docs", "runbooks")
	pages := expect.Must(filepath.Glob(filepath.Join(dir, "KueueTrainer*.md")))(t)
	expect.That(t, len(pages) == len(alerts()), "%d pages for %d alerts", len(pages), len(alerts()))
	for _, a := range alerts() {
		page := expect.Must(os.ReadFile(filepath.Join(dir, a.name+".md")))(t)
		for _, heading := range []string{"# " + a.name, "## Meaning", "## Impact", "## Diagnosis", "## Remedy"} {
			expect.That(t, strings.Contains(string(page), heading+"\n"), "%s.md has no heading %q", a.name, heading)
		}
	}
}

// Every alert has a test of promtool in which it fires, and one in which it does not.
func TestEveryAlertHasTests(t *testing.T) {
	suites := expect.Must(filepath.Glob(filepath.Join("..", "..", "config", "monitoring", "tests", "*.yaml")))(t)
	fires, silent := map[string]int{}, map[string]int{}
	for _, file := range suites {
		var suite struct {
			Tests []struct {
				Alerts []struct {
					Name     string `yaml:"alertname"`
					Expected []any  `yaml:"exp_alerts"`
				} `yaml:"alert_rule_test"`
			} `yaml:"tests"`
		}
		expect.NoError(t, yaml.Unmarshal(expect.Must(os.ReadFile(file))(t), &suite))
		for _, test := range suite.Tests {
			for _, expected := range test.Alerts {
				if len(expected.Expected) > 0 {
					fires[expected.Name]++
				} else {
					silent[expected.Name]++
				}
			}
		}
	}
	for _, a := range alerts() {
		expect.That(t, fires[a.name] != 0 && silent[a.name] != 0, "%s fires in %d tests and is silent in %d", a.name, fires[a.name], silent[a.name])
	}
}

// A number that is 1 says nothing: what there is, is in its labels.
func TestTrainerShowsItsRelease(t *testing.T) {
	dashboard := string(expect.Must(manager().render())(t))
	_, panel, found := strings.Cut(dashboard, `"title": "Trainer"`)
	expect.That(t, found, "there is no panel")
	_, mode, _ := strings.Cut(panel, `"textMode": "`)
	expect.That(t, strings.HasPrefix(mode, `name"`), "it shows %.20q", mode)
}
