// SPDX-License-Identifier: Apache-2.0

// Package version is the command that tells which releases of the plugin, kueue-trainer, Kueue,
// Trainer and JobSet there are, and whether they go together.
//
// version.go is the command, load.go reads the releases, judge.go compares them.
package version

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

type options struct {
	flags   cluster.Flags
	streams genericiooptions.IOStreams

	client bool
	output string
}

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: flags, streams: streams}
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Tell the releases of plugin, kueue-trainer, Kueue, Trainer and JobSet, and whether they go together",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().BoolVar(&o.client, "client", false, "tell the plugin's alone")
	show.OutputFlag(cmd, &o.output, show.JSON, show.YAML)
	return cmd
}

func (o *options) run(ctx context.Context) error {
	build := version.Get()
	report := Report{Plugin: Plugin{Version: build.Version, Revision: build.Revision, Go: build.Go}}
	var errCluster error
	if !o.client {
		errCluster = o.look(ctx, &report)
	}
	// The plugin's is known whatever the cluster says.
	if err := o.print(&report); err != nil {
		return err
	}
	if errCluster != nil {
		return errCluster
	}
	return report.err()
}

func (o *options) look(ctx context.Context, report *Report) error {
	c, err := o.flags.Client()
	if err != nil {
		return err
	}
	l := &loader{client: c}
	if report.Parts, err = l.parts(ctx); err != nil {
		return err
	}
	report.Unseen = l.unseen
	for _, kind := range l.unseen {
		fmt.Fprintf(o.streams.ErrOut, "note: you may not read %s, so something is <unknown>; ask an admin for that\n", kind)
	}
	judge(report)
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

func (o *options) print(report *Report) error {
	if o.output != "" {
		return show.Encode(o.streams.Out, o.output, report)
	}
	paint := show.Painter(o.streams.Out)
	table := show.NewTable("PART", "VERSION", "WANTED")
	table.Row("kubectl trainjob", report.Plugin.Version, "-")
	for i := range report.Parts {
		p := &report.Parts[i]
		table.Row(p.Name, p.text(), cmp.Or(p.Wants, "-"))
	}
	if err := table.Print(o.streams.Out, paint, ""); err != nil {
		return err
	}
	switch report.Together {
	case Yes:
		fmt.Fprintf(o.streams.Out, "\n%s\n", paint.Green("They go together."))
	case Unknown:
		fmt.Fprintf(o.streams.Out, "\n%s\n", paint.Yellow("They go together, as far as that can be seen."))
	}
	for _, problem := range report.Problems {
		fmt.Fprintf(o.streams.Out, "\n%s\n%s %s\n", paint.Red(problem.Message+"."), paint.Bold("What helps:"), problem.Remedy)
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
