// SPDX-License-Identifier: Apache-2.0

// Package migrate is the command that brings TrainJobs of every generation to
// spec.runtimePatches.
package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
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

// output prints the results, or what changed, or changes the files: all that can be.
func (o *options) output(results []result) error {
	printed := false
	var failed []error
	for i := range results {
		r := &results[i]
		changed := !bytes.Equal(r.data, r.file.Data)
		if r.failed+r.unreadable > 0 || !changed && (o.diff || o.inPlace) {
			continue
		}
		var err error
		switch {
		case o.diff:
			err = printDiff(o.streams.Out, r)
		case !o.inPlace:
			err = o.print(r, printed)
			printed = true
		}
		if err != nil {
			return err
		}
		if !o.inPlace {
			continue
		}
		if err := replace(r.file.Path, r.data); err != nil {
			r.leave()
			failed = append(failed, fmt.Errorf("%s is left as it is: %w", r.file.Path, err))
		}
	}
	return errors.Join(failed...)
}

// print writes a file behind others.
func (o *options) print(r *result, behind bool) error {
	data := r.data
	switch {
	case behind && r.file.HasDirectives():
		data = append([]byte("...\n"), data...)
	case behind && !bytes.HasPrefix(data, []byte("---")):
		data = append([]byte("---\n"), data...)
	}
	if len(data) > 0 && !bytes.HasSuffix(data, []byte("\n")) {
		data = append(data, '\n')
	}
	_, err := o.streams.Out.Write(data)
	return err
}

// printDiff prints what changed in a file as a unified diff, coloured like git's.
func printDiff(out io.Writer, r *result) error {
	diff, err := difflib.GetUnifiedDiffString(difflib.UnifiedDiff{
		A: diffLines(r.file.Data), B: diffLines(r.data), FromFile: r.file.Path, ToFile: r.file.Path, Context: 3,
	})
	if err != nil {
		return err
	}
	paint := show.Painter(out)
	colours := map[byte]func(string) string{'+': paint.Green, '-': paint.Red, '@': paint.Cyan}
	for line := range strings.Lines(diff) {
		text := strings.TrimRight(line, "\r\n")
		if colour := colours[text[0]]; colour != nil {
			line = colour(text) + line[len(text):]
		}
		if _, err := io.WriteString(out, line); err != nil {
			return err
		}
	}
	return nil
}

// diffLines are lines as a diff has them: each ends, and the last tells if the file's does not.
func diffLines(data []byte) []string {
	all := slices.Collect(strings.Lines(string(data)))
	if last := len(all) - 1; last >= 0 && !strings.HasSuffix(all[last], "\n") {
		all[last] += "\n\\ No newline at end of file\n"
	}
	return all
}

// replace writes new content to a file in one step, so that there is never half of it. Symbolic
// links stay and point to the new content, and the mode stays.
func replace(path string, data []byte) error {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return errors.New("it is not a regular file: leave --in-place out, and the result goes to standard output")
	}
	// A file that may not be written could be replaced all the same.
	old, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	fresh, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return errors.Join(fmt.Errorf("writing a file beside it: %w", err), old.Close())
	}
	_, err = fresh.Write(data)
	if err = errors.Join(err, fresh.Chmod(info.Mode().Perm()), fresh.Sync(), fresh.Close(), old.Close()); err == nil {
		err = os.Rename(fresh.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(fresh.Name()))
	}
	return nil
}
