// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"strings"
	"testing"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

var found = &report{Trainer: "2.3", TrainJobs: 2, Findings: []finding{
	{File: "a b/job.yaml", Line: 3, Severity: refused, Field: "spec.trainer", Reason: string(field.ErrorTypeRequired), Message: "set it"},
	{File: "a b/job.yaml", Line: 4, Severity: told, Reason: string(field.ErrorTypeInvalid), Message: "50%\nof it"},
	{File: "-", Line: 1, Severity: doubtful, Reason: unread, Message: "no YAML"},
	{File: "c,d:e.yaml", Line: 2, Severity: doubtful, Reason: unread, Message: "a: b, c"},
}}

func TestSARIF(t *testing.T) {
	var out strings.Builder
	expect.NoError(t, found.print(&out, sarifFormat))
	log := expect.Must(sarif.FromString(out.String()))(t)
	err := log.Validate()
	expect.That(t, err == nil, "The log is not as its schema has it: %v\n%s", err, &out)
	type result struct {
		Rule, Level, Text, URI string
		Line                   int
	}
	var got []result
	for _, r := range log.Runs[0].Results {
		place := r.Locations[0].PhysicalLocation
		rule := log.Runs[0].Tool.Driver.Rules[r.RuleIndex]
		expect.That(t, *rule.ID == *r.RuleID && *rule.ShortDescription.Text != "", "Rule %d of %s is %v", r.RuleIndex, *r.RuleID, rule)
		got = append(got, result{*r.RuleID, r.Level, *r.Message.Text, *place.ArtifactLocation.URI, *place.Region.StartLine})
	}
	want := []result{
		{"FieldValueRequired", "error", "spec.trainer: set it", "a%20b/job.yaml", 3},
		{"FieldValueInvalid", "note", "50%\nof it", "a%20b/job.yaml", 4},
		{"Unreadable", "warning", "no YAML", "stdin", 1},
		{"Unreadable", "warning", "a: b, c", "./c,d:e.yaml", 2},
	}
	expect.Same(t, "Unexpected results", want, got)
}

func TestEmptySARIF(t *testing.T) {
	var out strings.Builder
	expect.NoError(t, (&report{}).print(&out, sarifFormat))
	log := expect.Must(sarif.FromString(out.String()))(t)
	err := log.Validate()
	expect.That(t, err == nil && strings.Contains(out.String(), `"results": []`), "The log is not as code scanning wants it: %v\n%s", err, &out)
}

func TestGitHub(t *testing.T) {
	var out strings.Builder
	expect.NoError(t, found.print(&out, githubFormat))
	const want = `::error file=a b/job.yaml,line=3,title=kubectl trainjob validate::spec.trainer: set it
::notice file=a b/job.yaml,line=4,title=kubectl trainjob validate::50%25%0Aof it
::warning file=-,line=1,title=kubectl trainjob validate::no YAML
::warning file=c%2Cd%3Ae.yaml,line=2,title=kubectl trainjob validate::a: b, c
2 TrainJobs for Trainer 2.3: 1 error, 2 warnings
`
	expect.Same(t, "Unexpected commands", want, out.String())
}
