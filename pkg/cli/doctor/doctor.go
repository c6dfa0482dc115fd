// SPDX-License-Identifier: Apache-2.0

// Package doctor is the command that checks a whole installation: Kueue, Trainer, JobSet and
// kueue-trainer, the pools and queues, and the TrainJobs in them. A loader reads the facts;
// every check is a pure function of them.
package doctor

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
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

// notMade is for checks that could not be made, where the others found nothing. Whoever has
// all rights gets no further than others with what is not for want of rights.
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
