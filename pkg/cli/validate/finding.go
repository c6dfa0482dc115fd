// SPDX-License-Identifier: Apache-2.0

package validate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

// The severities of a finding.
const (
	// refused is for what Trainer, or Kueue for it, refuses a TrainJob for.
	refused = "error"
	// doubtful is for what they take although it does not do what it looks like, or what
	// could not be looked at.
	doubtful = "warning"
	// told is for what was taken for granted.
	told = "note"
)

// finding is something wrong with a TrainJob or a runtime. Its JSON is the command's interface.
type finding struct {
	File string `json:"file"`
	// Line is where the field begins or, if it is not there, what is around it; from 1.
	Line int `json:"line"`
	// TrainJob is empty for what is wrong with a runtime.
	TrainJob string `json:"trainJob"`
	Severity string `json:"severity"`
	// Field is empty for the TrainJob as a whole.
	Field   string `json:"field"`
	Message string `json:"message"`
}

// report is what the command found.
type report struct {
	// Trainer is the release whose rules were used.
	Trainer   string    `json:"trainer"`
	TrainJobs int       `json:"trainJobs"`
	Runtimes  int       `json:"runtimes"`
	Findings  []finding `json:"findings"`
}

// add takes errors about a TrainJob.
func (r *report) add(job *manifest.Object, severity string, errs field.ErrorList) {
	r.addAbout(job, job.Name(), severity, errs)
}

// addRuntime takes errors about a runtime.
func (r *report) addRuntime(runtime *manifest.Object, errs field.ErrorList) {
	r.addAbout(runtime, "", refused, errs)
}

func (r *report) addAbout(object *manifest.Object, trainJob, severity string, errs field.ErrorList) {
	for _, err := range errs {
		err.Field = strings.TrimPrefix(err.Field, "<nil>")
		r.Findings = append(r.Findings, finding{
			File: object.Document.Path, Line: object.LineOf(err.Field), TrainJob: trainJob, Severity: severity,
			Field: err.Field, Message: err.ErrorBody(),
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

// sort orders the findings by their places, and leaves out those that are there twice. A
// doubt about a field that is refused says nothing more.
func (r *report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Field, b.Field), cmp.Compare(a.Severity, b.Severity))
	})
	r.Findings = slices.Compact(r.Findings)
	type place struct {
		file  string
		line  int
		field string
	}
	bad := map[place]bool{}
	for _, f := range r.Findings {
		bad[place{f.File, f.Line, f.Field}] = bad[place{f.File, f.Line, f.Field}] || f.Severity == refused
	}
	r.Findings = slices.DeleteFunc(r.Findings, func(f finding) bool {
		return f.Severity == doubtful && bad[place{f.File, f.Line, f.Field}]
	})
}

// print writes a line for each finding.
func (r *report) print(out io.Writer) {
	paint := show.Painter(out)
	for _, f := range r.Findings {
		severity := map[string]func(string) string{refused: paint.Red, doubtful: paint.Yellow, told: paint.Dim}[f.Severity](f.Severity)
		where := f.Field
		if where != "" {
			where += ": "
		}
		fmt.Fprintf(out, "%s:%d: %s: %s%s\n", f.File, f.Line, severity, where, f.Message)
	}
	fmt.Fprintf(out, "%s for Trainer %s: %s, %s\n", r.checked(), r.Trainer,
		show.Count(int64(r.count(refused)), "error"), show.Count(int64(r.count(doubtful)), "warning"))
}

// checked says how much was looked at.
func (r *report) checked() string {
	jobs, runtimes := show.Count(int64(r.TrainJobs), "TrainJob"), show.Count(int64(r.Runtimes), "runtime")
	switch {
	case r.Runtimes == 0:
		return jobs
	case r.TrainJobs == 0:
		return runtimes
	}
	return jobs + " and " + runtimes
}

func (r *report) printJSON(out io.Writer) error {
	if r.Findings == nil {
		r.Findings = []finding{}
	}
	return show.Encode(out, show.JSON, r)
}
