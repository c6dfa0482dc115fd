// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/owenrumney/go-sarif/v3/pkg/report/v210/sarif"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/version"
)

// The formats of -o beside those of package show.
const (
	// sarifFormat is what code scanning reads (SARIF 2.1.0).
	sarifFormat = "sarif"
	// githubFormat is workflow commands, which GitHub turns into annotations.
	githubFormat = "github"
)

// print writes the report in a format.
func (r *report) print(out io.Writer, format string) error {
	switch format {
	case "":
		paint := show.Painter(out)
		return r.printLines(out, func(f finding) string { return f.forPeople(paint) })
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
		run.AddRule(f.Reason).WithShortDescription(sarif.NewMultiformatMessageString().WithText(reasons[f.Reason]))
		place := sarif.NewPhysicalLocation().
			WithArtifactLocation(sarif.NewArtifactLocation().WithURI(uriOf(f.File))).
			WithRegion(sarif.NewRegion().WithStartLine(f.Line))
		run.CreateResultForRule(f.Reason).WithLevel(f.Severity).
			WithMessage(sarif.NewTextMessage(f.text())).
			AddLocation(sarif.NewLocationWithPhysicalLocation(place))
	}
	return sarif.NewReport().AddRun(run)
}

// uriOf is the path of a file, relative to where the command runs, as a URI.
func uriOf(path string) string {
	if path == manifest.Stdin {
		path = "stdin"
	}
	return (&url.URL{Path: filepath.ToSlash(path)}).String()
}

// escaped is text in the message of a workflow command, property in one of its properties
// (https://docs.github.com/actions/reference/workflow-commands-for-github-actions).
var (
	escaped  = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

// workflowCommand is a finding as GitHub reads it.
func (f finding) workflowCommand() string {
	command := map[string]string{refused: "error", doubtful: "warning", told: "notice"}[f.Severity]
	return fmt.Sprintf("::%s file=%s,line=%d,title=%s::%s",
		command, property.Replace(f.File), f.Line, property.Replace("kubectl trainjob validate"), escaped.Replace(f.text()))
}
