// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"io"
	"strings"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

// Report is all that doctor has to say.
type Report struct {
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	// Checks that could be made, and that could not because their facts were not to be seen.
	Checks  int `json:"checks"`
	NotMade int `json:"notMade"`
	// Findings, the worst first.
	Findings []Finding `json:"findings"`
	// Passed names the checks that found no error or warning.
	Passed []string `json:"passed"`
	// Unseen is what could not be read, kind by kind.
	Unseen []Unseen `json:"unseen"`
}

// Unseen is a kind that could not be read, and the checks that could not be made without it.
type Unseen struct {
	Kind   string   `json:"kind"`
	Reason string   `json:"reason"`
	Checks []string `json:"checks"`

	// forRights is set where the user may not read it.
	forRights bool
}

func (r Report) summary() string {
	var counts []string
	if r.Errors > 0 {
		counts = append(counts, show.Count(r.Errors, "error"))
	}
	if r.Warnings > 0 {
		counts = append(counts, show.Count(r.Warnings, "warning"))
	}
	return strings.Join(counts, " and ") + " found"
}

// printText writes a paragraph per finding; wide also what is only to know, and what is
// in order.
func printText(out io.Writer, paint show.Paint, r Report, wide bool) error {
	var text strings.Builder
	for _, f := range r.Findings {
		if f.Severity > Info || wide {
			writeFinding(&text, paint, f)
		}
	}
	if wide {
		for _, name := range r.Passed {
			fmt.Fprintf(&text, "%s  %s\n", paint.Green("ok     "), name)
		}
	}
	switch {
	case r.Errors+r.Warnings > 0:
	case r.NotMade > 0:
		fmt.Fprintf(&text, "%s: %s made, nothing found; %d could not be made.\n", paint.Yellow("Not known"), show.Count(r.Checks, "check"), r.NotMade)
	default:
		fmt.Fprintf(&text, "%s: %s made, nothing found.\n", paint.Green("In order"), show.Count(r.Checks, "check"))
	}
	for _, u := range r.Unseen {
		fmt.Fprintf(&text, "%s  %s (%s): %s\n", paint.Yellow("unseen "), u.Kind, u.Reason, show.Count(len(u.Checks), "check"))
		if wide {
			fmt.Fprintf(&text, "%s%s\n", margin, strings.Join(u.Checks, "\n"+margin))
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}

// margin is where the text of a finding begins.
const margin = "         "

func writeFinding(text *strings.Builder, paint show.Paint, f Finding) {
	colour := map[Severity]func(string) string{Error: paint.Red, Warning: paint.Yellow, Info: paint.Dim}[f.Severity]
	fmt.Fprintf(text, "%s  %s\n", colour(fmt.Sprintf("%-7s", f.Severity)), paint.Bold(f.Object)+" "+paint.Dim("("+f.Reason+")"))
	for _, line := range []string{f.Problem, f.Effect, f.Advice} {
		if line != "" {
			fmt.Fprintf(text, "%s%s\n", margin, show.Line(line))
		}
	}
	for _, command := range f.Commands {
		fmt.Fprintf(text, "%s  %s\n", margin, paint.Cyan(command))
	}
	text.WriteString("\n")
}
