// SPDX-License-Identifier: Apache-2.0

// Package version is the command that tells which releases of the plugin, kueue-trainer, Kueue,
// Trainer and JobSet there are, and whether they go together.
package version

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/version"
)

const long = `Tell the releases of the plugin, kueue-trainer, Kueue, Trainer and JobSet, and whether they go
together.

The release of a part is that of its Deployment's image, or its label
app.kubernetes.io/version; what neither tells, or may not be read, is <unknown>.

Exit codes: 0 where nothing is wrong, as far as that can be seen; 2 where TrainJobs cannot be
queued; 3 where releases were not made for each other; 4 where nothing is known to be wrong and
you may not read all that tells; 1 where the cluster does not answer.`

const example = `  # All of them
  kubectl trainjob version

  # The plugin alone, without asking a cluster
  kubectl trainjob version --client

  # For scripts
  kubectl trainjob version -o json`

// Report is what the command tells. Its JSON is for scripts: names stay, new ones may come.
type Report struct {
	Plugin version.Info `json:"plugin"`
	// Parts are those of the cluster; none with --client.
	Parts []Part `json:"parts,omitempty"`
	// Together tells whether they go together; empty with --client.
	Together Together  `json:"together,omitempty"`
	Problems []Problem `json:"problems,omitempty"`
	// Unseen are the kinds that the user may not read, of those that tell releases.
	Unseen []string `json:"unseen,omitempty"`
}

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	alone, format := false, ""
	cmd := &cobra.Command{
		Use: "version", Short: "Tell the releases of plugin, kueue-trainer, Kueue, Trainer and JobSet, and whether they go together",
		Long: long, Example: example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			report := Report{Plugin: version.Get()}
			var errCluster error
			if !alone {
				errCluster = report.look(cmd.Context(), flags, streams.ErrOut)
			}
			// The plugin's is known whatever the cluster says.
			if err := report.print(streams.Out, format); err != nil {
				return err
			}
			return cmp.Or(errCluster, report.err())
		},
	}
	cmd.Flags().BoolVar(&alone, "client", false, "tell the plugin's alone")
	show.OutputFlag(cmd, &format, show.JSON, show.YAML)
	return cmd
}

func (r *Report) look(ctx context.Context, flags cluster.Flags, notes io.Writer) error {
	c, err := flags.Client()
	if err != nil {
		return err
	}
	l := &loader{client: c}
	if r.Parts, err = l.parts(ctx); err != nil {
		return err
	}
	r.Unseen = l.unseen
	for _, kind := range l.unseen {
		fmt.Fprintf(notes, "note: you may not read %s, so something is <unknown>; ask an admin for that\n", kind)
	}
	judge(r)
	return nil
}

// err is the exit code.
func (r *Report) err() error {
	breaks := slices.ContainsFunc(r.Problems, func(p Problem) bool { return p.Breaks })
	switch {
	case breaks:
		return exit.With(exit.Findings, errors.New("TrainJobs cannot be queued with these"))
	case len(r.Problems) > 0:
		return exit.With(exit.Warnings, errors.New("these were not made for each other"))
	case r.Together == Unknown && len(r.Unseen) > 0:
		return exit.With(exit.Unseen, errors.New("you may not read all that tells whether they go together"))
	}
	return nil
}

func (r *Report) print(out io.Writer, format string) error {
	if format != "" {
		return show.Encode(out, format, r)
	}
	paint := show.Painter(out)
	table := show.NewTable("PART", "VERSION", "WANTED")
	table.Row("kubectl trainjob", r.Plugin.Version, "-")
	for i := range r.Parts {
		p := &r.Parts[i]
		table.Row(p.Name, p.text(), cmp.Or(p.Wants, "-"))
	}
	if err := table.Print(out, paint); err != nil {
		return err
	}
	switch r.Together {
	case Yes:
		fmt.Fprintf(out, "\n%s\n", paint.Green("They go together."))
	case Unknown:
		fmt.Fprintf(out, "\n%s\n", paint.Yellow("They go together, as far as that can be seen."))
	}
	for _, problem := range r.Problems {
		fmt.Fprintf(out, "\n%s\n%s %s\n", paint.Red(problem.Message+"."), paint.Bold("What helps:"), problem.Remedy)
	}
	return nil
}

// text is a part's version for eyes.
func (p *Part) text() string {
	switch {
	case p.Missing:
		return "<none>"
	case p.Version == "" && p.Generation != "":
		return p.Generation + " (served)"
	case p.Generation != "":
		return fmt.Sprintf("%s (serves %s)", p.Version, p.Generation)
	}
	return cmp.Or(p.Version, "<unknown>")
}
