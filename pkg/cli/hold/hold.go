// SPDX-License-Identifier: Apache-2.0

// Package hold has the commands that keep TrainJobs out of their queues and bring them back:
// hold, stop, resume and requeue.
package hold

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const holdLong = `Keep TrainJobs that wait from being admitted, until they are resumed.

A held TrainJob keeps the time since which it waits: resumed, it stands where it would have
stood. Its label kueue.x-k8s.io/queue-name names the queue with ".held" behind it meanwhile.`

const holdExample = `  # Let others go first
  kubectl trainjob hold big -n team-a`

const stopLong = `Stop TrainJobs, until they are resumed.

Their pods are deleted, with their grace period: what they have not saved is lost. The quota
is free when the last pod is gone. Resumed, they queue again behind those that wait, and their
time limit (kueue.x-k8s.io/max-exec-time-seconds) and their retries count from the beginning.

Setting spec.suspend to true stops a TrainJob too, but Kueue starts it again at once.`

const stopExample = `  # Give the GPUs back
  kubectl trainjob stop llm -n team-a`

const resumeLong = `Queue TrainJobs again that were held or stopped.

That is for those of hold and stop and, for users who may change Workloads, for those that
were deactivated (spec.active: false of the Workload).

While the pods of a stopped TrainJob end, the command waits until its quota is given back, and
two seconds more, in which Kueue looks at those that wait: so it queues behind them. Interrupted before, it leaves the TrainJob stopped.`

const resumeExample = `  # After hold, and after stop
  kubectl trainjob resume llm -n team-a`

const requeueLong = `Stop TrainJobs and queue them again, behind those that wait.

Their pods are deleted, with their grace period, and the command waits until the quota is
given back. Interrupted before, it leaves the TrainJob stopped: resume queues it. Its time limit
and its retries count from the beginning, as after stop.`

const requeueExample = `  # Let those that wait go first
  kubectl trainjob requeue llm -n team-a`

type verb struct {
	use, short, long, example string
	// away keeps the job out of its queue; nil for one that is.
	away func(*view) (change, error)
	// back brings it back when its quota is free.
	back bool
}

var verbs = []verb{
	{use: "hold", short: "Keep TrainJobs that wait from being admitted", long: holdLong, example: holdExample, away: (*view).hold},
	{use: "stop", short: "Stop TrainJobs, and keep them stopped", long: stopLong, example: stopExample, away: (*view).stop},
	{use: "resume", short: "Queue TrainJobs again that were held or stopped", long: resumeLong, example: resumeExample, back: true},
	{use: "requeue", short: "Stop TrainJobs and queue them again", long: requeueLong, example: requeueExample, away: (*view).requeue, back: true},
}

// NewCommands returns the commands.
func NewCommands(flags cluster.Flags, streams genericiooptions.IOStreams) []*cobra.Command {
	var commands []*cobra.Command
	for _, v := range verbs {
		a := &actor{verb: v, out: streams.Out, errOut: streams.ErrOut}
		cmd := &cobra.Command{
			Use: v.use + " NAME...", Short: v.short,
			Long: v.long, Example: v.example, Args: cobra.MinimumNArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				var err error
				if a.client, a.namespace, err = flags.ClientIn(false); err != nil {
					return err
				}
				if err := a.managed(cmd.Context(), args[0]); err != nil {
					return err
				}
				return a.all(cmd.Context(), args)
			},
			ValidArgsFunction: cluster.CompleteTrainJobs(flags, math.MaxInt),
		}
		if v.back {
			cmd.Flags().DurationVar(&a.timeout, "timeout", 10*time.Minute, "how long to wait for the quota to be given back")
		}
		commands = append(commands, cmd)
	}
	return commands
}

// managed returns an error where a queued TrainJob of the namespace would start at once: nobody would bring back what is
// stopped, nor stop what is held. Kueue's in-tree integration starts again what is stopped while it is admitted. It asks
// with the runtime of the job of a name, which its user need not be able to read.
func (a *actor) managed(ctx context.Context, arg string) error {
	var known []trainer.RuntimeRef
	if name, err := cluster.TrainJobName(arg); err == nil {
		if job, err := cluster.TrainJob(ctx, a.client, a.namespace, name); err == nil {
			known = []trainer.RuntimeRef{job.Spec.RuntimeRef}
		}
	}
	namespace, use := a.namespace, a.verb.use
	job, err := trainjob.DryRun(ctx, a.client, namespace, trainjob.ProbeQueue, known...)
	switch {
	case err != nil:
		fmt.Fprintf(a.errOut, "note: whether kueue-trainer looks after TrainJobs in namespace %s could not be asked: %v\n", namespace, err)
		return nil
	case !job.Suspended():
		return fmt.Errorf("nobody looks after the queues of TrainJobs in namespace %s: Kueue leaves it out (managedJobsNamespaceSelector; "+
			"an admin can label it), or kueue-trainer is not installed; outside of all quotas, spec.suspend stops and starts it: "+
			"kubectl -n %s patch trainjob NAME --type=merge -p '{\"spec\":{\"suspend\":%t}}'", namespace, namespace, use != "resume")
	case (use == "stop" || use == "requeue") && !patch.HoldsGate(&job.Spec):
		return fmt.Errorf("Kueue's in-tree integration looks after TrainJobs in namespace %s, and would start them again at once: stop one by its Workload: "+
			"kubectl -n %s patch workload NAME --type=merge -p '{\"spec\":{\"active\":false}}'", namespace, namespace)
	}
	return nil
}

// all goes on with the others where one fails.
func (a *actor) all(ctx context.Context, args []string) error {
	var errs []error
	for _, arg := range args {
		name, err := cluster.TrainJobName(arg)
		if err == nil {
			err = a.act(ctx, name)
		}
		if why := unchanged(""); errors.As(err, &why) {
			a.say(name, string(why))
			continue
		}
		errs = append(errs, err)
	}
	err := errors.Join(errs...)
	if slices.ContainsFunc(errs, func(err error) bool { return exit.Code(err) == exit.Failed }) {
		return exit.With(exit.Failed, err)
	}
	return err
}
