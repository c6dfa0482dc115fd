// SPDX-License-Identifier: Apache-2.0

// Package migrate is the command that brings TrainJobs of every generation to
// spec.runtimePatches.
package migrate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/convert"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch/rules"
)

const migrateLong = `Bring TrainJobs to spec.runtimePatches, which Trainer has since 2.2.

It reads podTemplateOverrides (Trainer 2.1), templateOverrides in both proposed shapes,
and v2alpha1 manifests of both groups. A document in which a TrainJob changes is
reprinted: its data, its comments and the order of its fields stay, blank lines and alignment
do not. Comments within the old fields move along with what they stand by. Everything else in
the files stays byte for byte.

Without -f it reads the TrainJobs of the cluster that have not finished and that
MultiKueue has not made, and prints manifests to create them again: without status,
what the API server sets, and what kueue-trainer had added.

Converted manifests go to standard output, with --in-place into the files. What changed,
warnings, and what cannot be expressed go to standard error; a file with anything of the
latter, or that cannot be read, is left out, or left as it is, and the exit code is 2.`

const migrateExample = `  # See what would change in a directory, and then change it
  kubectl trainjob migrate -f manifests/ --diff
  kubectl trainjob migrate -f manifests/ --in-place

  # Move a TrainJob to a cluster with Trainer 2.3
  kubectl trainjob migrate -f job.yaml --owner example.com/ml-team | kubectl --context new create -f -

  # Everything that waits or runs in a cluster with Trainer 2.1
  kubectl trainjob migrate --all-namespaces > trainjobs.yaml`

type options struct {
	files                   manifest.Flags
	inPlace, diff, allSpace bool
	owner                   string

	flags   cluster.Flags
	streams genericiooptions.IOStreams
}

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: flags, streams: streams}
	cmd := &cobra.Command{
		Use: "migrate [-f FILE|DIR|-]", Short: "Bring TrainJobs of every generation to runtimePatches",
		Long: migrateLong, Example: migrateExample, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd) },
	}
	o.files.AddTo(cmd, "; without it, the TrainJobs of the cluster")
	cmd.Flags().BoolVar(&o.inPlace, "in-place", false, "change the files instead of printing them")
	cmd.Flags().BoolVar(&o.diff, "diff", false, "print the changes as a unified diff; with --in-place also make them")
	cmd.Flags().StringVar(&o.owner, "owner", convert.DefaultOwner, "the manager of the runtime patches made of overrides that name none")
	cmd.Flags().BoolVarP(&o.allSpace, "all-namespaces", "A", false, "without -f: the TrainJobs of every namespace")
	return cmd
}

func (o *options) run(cmd *cobra.Command) error {
	if err := o.check(); err != nil {
		return err
	}
	files, err := o.read(cmd)
	if err != nil {
		return err
	}
	var results []result
	for i := range files {
		results = append(results, migrateFile(&files[i], o.owner))
	}
	return o.finish(results)
}

// finish brings the results to where they belong. Whatever of that fails, the report
// tells what was done.
func (o *options) finish(results []result) error {
	if err := o.output(results); err != nil {
		return exit.With(exit.Failed, errors.Join(err, o.report(results)))
	}
	return o.report(results)
}

func (o *options) check() error {
	if errs := rules.Manager(o.owner); len(errs) > 0 {
		return fmt.Errorf("--owner: %w; name a domain and a path, such as example.com/ml-team", errs.ToAggregate())
	}
	if o.inPlace && slices.Contains(o.files.Filenames, manifest.Stdin) {
		return errors.New("--in-place: standard input cannot be changed: leave the flag out, and the result goes to standard output")
	}
	if !o.files.Given() && o.inPlace {
		return errors.New("--in-place is for files: name them with -f")
	}
	if o.files.Given() && o.allSpace {
		return errors.New("--all-namespaces is for the TrainJobs of the cluster: leave out one of it and -f")
	}
	return nil
}

func (o *options) read(cmd *cobra.Command) ([]manifest.File, error) {
	if o.files.Given() {
		return o.files.Read(o.streams.In)
	}
	c, namespace, err := o.flags.ClientIn(o.allSpace)
	if err != nil {
		return nil, err
	}
	files, left, err := export(cmd.Context(), c, namespace)
	for _, line := range left {
		fmt.Fprintln(o.streams.ErrOut, line)
	}
	return files, err
}

// report tells what happened, and fails if anything could not be expressed.
func (o *options) report(results []result) error {
	found, changed, failed, unreadable := 0, 0, 0, 0
	for _, r := range results {
		for _, line := range slices.Concat(r.changes, r.remarks) {
			fmt.Fprintln(o.streams.ErrOut, line)
		}
		found, changed = found+r.found, changed+len(r.changes)
		failed, unreadable = failed+r.failed, unreadable+r.unreadable
	}
	fmt.Fprintf(o.streams.ErrOut, "%s: %d migrated, %d left as they were\n", show.Count(found, "TrainJob"), changed, found-changed)
	var parts []string
	if failed > 0 {
		parts = append(parts, show.Count(failed, "TrainJob")+" cannot be brought to Trainer 2.3")
	}
	if unreadable > 0 {
		parts = append(parts, show.Count(unreadable, "document")+" cannot be read")
	}
	if len(parts) == 0 {
		return nil
	}
	return exit.With(exit.Findings, fmt.Errorf("%s; files with such are left out", strings.Join(parts, ", ")))
}
