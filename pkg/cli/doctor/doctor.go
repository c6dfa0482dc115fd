// SPDX-License-Identifier: Apache-2.0

// Package doctor is the command that checks a whole installation: Kueue, Trainer, JobSet and kueue-trainer, the pools and
// queues, and the TrainJobs in them. A loader reads the facts; every check is a pure function of them.
package doctor

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"gomodules.xyz/jsonpatch/v2"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

const doctorLong = `Check the whole installation and say for each finding what is wrong, what it causes, and
the command that fixes it.

Doctor reads, and asks the API server what would become of a TrainJob, a JobSet and a
ResourceFlavor (dry runs, in the namespace of -n); it changes nothing. What you may not
read it names, with the number of checks that could not be made. Commands that name config/
or charts/ are for a checkout of kueue-trainer.

In a manager cluster of MultiKueue it looks into those workers, too, for which a context of the
kubeconfig is named like the MultiKueueCluster, or --worker-context says which one leads there.
Of the Secrets with Kueue's kubeconfigs it reads until when they are good, and for whom; it asks
the worker what that one may do there, and sends the credentials nowhere.

Exit codes: 0 nothing found, 1 the cluster does not answer, 2 errors, 3 only warnings,
4 nothing found, but you may not see all that there is. A check that fails for another
reason than rights, such as a timeout or a ResourceQuota in the way of a dry run, makes
it 1.`

const doctorExample = `  # What is wrong
  kubectl trainjob doctor

  # And what doctor found to be in order, or could not check
  kubectl trainjob doctor -o wide

  # For scripts
  kubectl trainjob doctor -o json`

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	format, workers := "", cluster.NewWorkers(flags)
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the whole installation, and say what fixes it",
		Long: doctorLong, Example: doctorExample, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, namespace, err := flags.ClientIn(false)
			if err != nil {
				return err
			}
			discovery, err := flags.ToDiscoveryClient()
			if err != nil {
				return err
			}
			if _, err := discovery.ServerVersion(); err != nil {
				return fmt.Errorf("asking the cluster for its version: %w", err)
			}
			facts := Load(cmd.Context(), c, namespace)
			loadWorkers(cmd.Context(), workers, facts)
			return report(streams.Out, format, newReport(facts))
		},
	}
	workers.AddTo(cmd)
	show.OutputFlag(cmd, &format, show.Wide, show.JSON, show.YAML)
	cmd.AddCommand(newConfigMapCommand(flags, streams))
	return cmd
}

// notMade is for checks that could not be made, for want of rights or, which nobody gets around, for other reasons.
func (r Report) notMade() error {
	checks := show.Count(r.NotMade, "check")
	if i := slices.IndexFunc(r.Unseen, func(u Unseen) bool { return !u.forRights }); i >= 0 {
		return fmt.Errorf("%s could not be made: %s: %s: repair that, and run doctor again", checks, r.Unseen[i].Kind, r.Unseen[i].Reason)
	}
	return exit.With(exit.Unseen, fmt.Errorf("%s could not be made: run doctor as somebody who may list these kinds", checks))
}

// report prints, and returns the exit code as an error.
func report(out io.Writer, format string, r Report) error {
	var err error
	if show.ForMachines(format) {
		err = show.Encode(out, format, r)
	} else {
		err = printText(out, show.Painter(out), r, format == show.Wide)
	}
	if err != nil {
		return err
	}
	switch {
	case r.Errors > 0:
		return exit.With(exit.Findings, errors.New(r.summary()))
	case r.Warnings > 0:
		return exit.With(exit.Warnings, errors.New(r.summary()))
	case r.NotMade > 0:
		return r.notMade()
	}
	return nil
}

// Severity is how bad a finding is.
type Severity string

// The severities.
const (
	Error   Severity = "error"   // for what keeps TrainJobs from running, or lets them run beside the quotas
	Warning Severity = "warning" // for what works now, or for most, and may not later or for others
	Info    Severity = "info"    // worth to know; nothing has to be done
)

// Finding is something that a check saw.
type Finding struct {
	Severity Severity `json:"severity"`
	Reason   string   `json:"reason"`  // names the kind of finding, for scripts: LocalQueueToNowhere
	Object   string   `json:"object"`  // what is concerned, as "Kind name" or "Kind namespace/name"
	Problem  string   `json:"problem"` // what is wrong, Effect what it causes. Both are sentences.
	Effect   string   `json:"effect,omitempty"`
	Advice   string   `json:"advice,omitempty"`   // what the commands cannot say, such as what to decide before
	Commands []string `json:"commands,omitempty"` // fix it when they are pasted into a shell, in this order
}

// sortFindings puts the worst first.
func sortFindings(findings []Finding) {
	worst := []Severity{Error, Warning, Info}
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(slices.Index(worst, a.Severity), slices.Index(worst, b.Severity)), cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Object, b.Object))
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
	Checks   int       `json:"checks"`
	NotMade  int       `json:"notMade"`
	Findings []Finding `json:"findings"` // the worst first
	Passed   []string  `json:"passed"`   // the checks that found no error or warning
	Unseen   []Unseen  `json:"unseen"`   // what could not be read, kind by kind
}

// Unseen is a kind that could not be read, and the checks that could not be made without it.
type Unseen struct {
	Kind   string   `json:"kind"`
	Reason string   `json:"reason"`
	Checks []string `json:"checks"`

	forRights bool // set where the user may not read it
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

// printText writes a paragraph per finding; wide also what is only to know, and what is in order.
func printText(out io.Writer, paint show.Paint, r Report, wide bool) error {
	var text strings.Builder
	for _, f := range r.Findings {
		if f.Severity != Info || wide {
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
