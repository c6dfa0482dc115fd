// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/helm-unittest/helm-unittest/pkg/unittest"
	"github.com/helm-unittest/helm-unittest/pkg/unittest/printer"
)

// What the values do stands in the chart's own suites, which helm-unittest runs with Helm 3's
// engine; all other tests have Helm 4's.
func TestSuites(t *testing.T) {
	suites, err := filepath.Glob(chartPath + "/tests/*_test.yaml")
	if err != nil || len(suites) == 0 {
		t.Fatalf("The chart has no suites (%v)", err)
	}
	plain := false
	for _, suite := range suites {
		name := filepath.Base(suite)
		t.Run(name, func(t *testing.T) {
			var report strings.Builder
			runner := unittest.TestRunner{
				Printer: printer.NewPrinter(&report, &plain), Strict: true,
				TestFiles: []string{filepath.Join("tests", name)},
			}
			if !runner.RunV3([]string{chartPath}) {
				t.Error(report.String())
			}
		})
	}
}
