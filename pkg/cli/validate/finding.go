// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/version"
)

// The severities of a finding.
const (
	refused  = "error"   // for what Trainer, or Kueue for it, refuses a TrainJob for
	doubtful = "warning" // for what they take and does not do what it looks like, or what could not be looked at
	told     = "note"    // for what was taken for granted
)

// finding is something wrong with a TrainJob or a runtime. Its JSON is the command's interface.
type finding struct {
	File     string `json:"file"`
	Line     int    `json:"line"`     // where the field begins or, if it is not there, what is around it; from 1
	TrainJob string `json:"trainJob"` // empty for what is wrong with a runtime
	Severity string `json:"severity"`
	Field    string `json:"field"`  // empty for the object as a whole
	Reason   string `json:"reason"` // the API server's word for what is wrong, such as FieldValueInvalid
	Message  string `json:"message"`
}

// These reasons are no API server's.
const (
	unread  = "Unreadable" // the reason of a document that cannot be read as objects
	assumed = "Assumed"    // that of what was taken for granted
)

func (f finding) text() string {
	return strings.TrimPrefix(f.Field+": "+f.Message, ": ")
}

type report struct {
	Trainer   string    `json:"trainer"` // the release whose rules were used
	TrainJobs int       `json:"trainJobs"`
	Runtimes  int       `json:"runtimes"`
	Findings  []finding `json:"findings"`
}

// add takes errors about an object; trainJob is its name, and empty for a runtime.
func (r *report) add(object *manifest.Object, trainJob, severity string, errs field.ErrorList) {
	for _, err := range errs {
		path := strings.TrimPrefix(err.Field, "<nil>")
		r.Findings = append(r.Findings, finding{
			File: object.Document.Path, Line: object.LineOf(path), TrainJob: trainJob, Severity: severity,
			Field: path, Reason: string(err.Type), Message: err.ErrorBody(),
		})
	}
}

func (r *report) count(severity string) int {
	n := 0
	for _, f := range r.Findings {
		if f.Severity == severity {
			n++
		}
	}
	return n
}

// sort orders the findings by their places, without those that are there twice, and doubts about a field that is refused.
func (r *report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Severity, b.Severity))
	})
	r.Findings = slices.Compact(r.Findings)
	refusals := map[finding]bool{}
	for _, f := range r.Findings {
		refusals[f.place()] = refusals[f.place()] || f.Severity == refused
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f finding) bool { return f.Severity == doubtful && refusals[f.place()] })
}

// place is where the finding is, and nothing else of it.
func (f finding) place() finding { return finding{File: f.File, Line: f.Line, Field: f.Field} }

// printLines writes a line for each finding, and the sum.
func (r *report) printLines(out io.Writer, line func(finding) string) error {
	for _, f := range r.Findings {
		if _, err := fmt.Fprintln(out, line(f)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(out, "%s for Trainer %s: %s, %s\n", r.checked(), r.Trainer,
		show.Count(r.count(refused), "error"), show.Count(r.count(doubtful), "warning"))
	return err
}

func (r *report) checked() string {
	jobs, runtimes := show.Count(r.TrainJobs, "TrainJob"), show.Count(r.Runtimes, "runtime")
	switch {
	case r.Runtimes == 0:
		return jobs
	case r.TrainJobs == 0:
		return runtimes
	}
	return jobs + " and " + runtimes
}

// The formats of -o beside those of package show.
const (
	sarifFormat  = "sarif"  // what code scanning reads (SARIF 2.1.0)
	githubFormat = "github" // workflow commands, which GitHub turns into annotations
)

func (r *report) print(out io.Writer, format string) error {
	switch format {
	case "":
		paint := show.Painter(out)
		colours := map[string]func(string) string{refused: paint.Red, doubtful: paint.Yellow, told: paint.Dim}
		return r.printLines(out, func(f finding) string {
			return fmt.Sprintf("%s:%d: %s: %s", f.File, f.Line, colours[f.Severity](f.Severity), f.text())
		})
	case sarifFormat:
		return show.Encode(out, show.JSON, r.sarif())
	case githubFormat:
		return r.printLines(out, finding.workflowCommand)
	}
	if r.Findings == nil {
		r.Findings = []finding{}
	}
	return show.Encode(out, format, r)
}

// sarif returns a log with a run. What is wrong is grouped by the API server's reasons.
func (r *report) sarif() *sarif.Report {
	run := sarif.NewRunWithInformationURI("kubectl-trainjob validate", "https://github.com/kueue-trainer/kueue-trainer/blob/main/docs/plugin.md#validate")
	run.Tool.Driver.WithVersion(version.Get().Version)
	for _, f := range r.Findings {
		ours := map[string]string{unread: "A document cannot be read", assumed: "Something was taken for granted"}[f.Reason]
		run.AddRule(f.Reason).WithShortDescription(sarif.NewMultiformatMessageString().WithText(cmp.Or(ours, field.ErrorType(f.Reason).String())))
		path := url.URL{Path: filepath.ToSlash(f.File)}
		if f.File == manifest.Stdin {
			path.Path = "stdin"
		}
		place := sarif.NewPhysicalLocation().
			WithArtifactLocation(sarif.NewArtifactLocation().WithURI(path.String())).
			WithRegion(sarif.NewRegion().WithStartLine(f.Line))
		run.CreateResultForRule(f.Reason).WithLevel(f.Severity).
			WithMessage(sarif.NewTextMessage(f.text())).
			AddLocation(sarif.NewLocationWithPhysicalLocation(place))
	}
	return sarif.NewReport().AddRun(run)
}

// escaped is text in the message of a workflow command, property in one of its properties
// (https://docs.github.com/actions/reference/workflow-commands-for-github-actions).
var (
	escaped  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

func (f finding) workflowCommand() string {
	command := map[string]string{refused: "error", doubtful: "warning", told: "notice"}[f.Severity]
	return fmt.Sprintf("::%s file=%s,line=%d,title=%s::%s",
		command, property.Replace(f.File), f.Line, property.Replace("kubectl trainjob validate"), escaped.Replace(f.text()))
}
