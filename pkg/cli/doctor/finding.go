// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"gomodules.xyz/jsonpatch/v2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

// Severity is how bad a finding is.
type Severity int

const (
	// Info is worth to know; nothing has to be done.
	Info Severity = iota + 1
	// Warning is for what works now, or for most, and may not later or for others.
	Warning
	// Error is for what keeps TrainJobs from running, or lets them run beside the quotas.
	Error
)

// String names the severity.
func (s Severity) String() string {
	return [...]string{Info: "info", Warning: "warning", Error: "error"}[s]
}

// MarshalText writes the name.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is something that a check saw.
type Finding struct {
	Severity Severity `json:"severity"`
	// Reason names the kind of finding, for scripts: LocalQueueToNowhere.
	Reason string `json:"reason"`
	// Object that is concerned, as "Kind name" or "Kind namespace/name".
	Object string `json:"object"`
	// Problem is what is wrong, Effect what it causes. Both are sentences.
	Problem string `json:"problem"`
	Effect  string `json:"effect,omitempty"`
	// Advice says what the commands cannot, such as what to decide before.
	Advice string `json:"advice,omitempty"`
	// Commands fix it when they are pasted into a shell, in this order.
	Commands []string `json:"commands,omitempty"`
}

// sortFindings puts the worst first.
func sortFindings(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(b.Severity, a.Severity), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Object, b.Object))
	})
}

// object names an object of a namespace for people.
func object(kind, namespace, name string) string {
	return kind + " " + strings.TrimPrefix(namespace+"/"+name, "/")
}

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

// patchCommand is the command that changes one field of a cluster-wide object.
func patchCommand(kind, name, op, path string, value any) string {
	data, err := json.Marshal([]jsonpatch.Operation{jsonpatch.NewOperation(op, path, value)})
	if err != nil {
		panic(fmt.Sprintf("a patch of %s %s: %v", kind, name, err)) // only texts, maps and API types come here
	}
	return fmt.Sprintf("kubectl patch %s %s --type=json -p %s", kind, name, quoted(string(data)))
}

// quoted is a text as one word of a shell.
func quoted(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// quotedIfNeeded leaves a word of letters, digits and a few signs as it is.
func quotedIfNeeded(text string) string {
	if plain.MatchString(text) {
		return text
	}
	return quoted(text)
}

var plain = regexp.MustCompile(`^[A-Za-z0-9@:/._-]+$`)

// sentence ends with a full stop.
func sentence(text string) string {
	return strings.TrimRight(strings.TrimSpace(text), ".") + "."
}
