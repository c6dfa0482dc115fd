// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
)

const long = `Tell every step of a TrainJob from created to finished: when, who took it, and where the time
went.

Steps come from conditions, events and the managers of fields of the TrainJob, its Workloads,
JobSet, Jobs and pods. Of a kind that you may not list they are missing: a line on standard error
names it, and the exit code is 4. Events are kept for an hour: of what is older, conditions tell
the last time only. Times without a fraction are to the second.

Steps of a job that MultiKueue runs in another cluster are taken from there, too, where a
context of the kubeconfig is named like that cluster, or --worker-context says which one leads
there.`

const example = `  # The steps, and where the time went
  kubectl trainjob timeline llm -n team-a

  # A picture, with a lane for each actor
  kubectl trainjob timeline llm -n team-a -o svg > llm.svg

  # For scripts
  kubectl trainjob timeline llm -n team-a -o json`

type options struct {
	flags   cluster.Flags
	streams genericiooptions.IOStreams
	workers *cluster.Workers
	output  string
}

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: flags, streams: streams, workers: cluster.NewWorkers(flags)}
	cmd := &cobra.Command{
		Use: "timeline NAME", Short: "Tell every step of a TrainJob, who took it, and where the time went",
		Long: long, Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := cluster.OneTrainJob(args)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), name)
		},
		ValidArgsFunction: cluster.CompleteTrainJobs(flags, 1),
	}
	o.workers.AddTo(cmd)
	show.OutputFlag(cmd, &o.output, show.JSON, show.YAML, show.SVG)
	return cmd
}

func (o *options) run(ctx context.Context, name string) error {
	c, namespace, err := o.flags.ClientIn(false)
	if err != nil {
		return err
	}
	job, err := cluster.TrainJob(ctx, c, namespace, name)
	if err != nil {
		return err
	}
	s, err := explain.ReadMade(ctx, c, namespace, name)
	if err != nil {
		return err
	}
	facts := factsOf(s, job, job.CreationTimestamp.Time, nil)
	lookInto(ctx, o.workers, facts)
	unseen := o.tellUnseen(facts)
	t := Of(facts)
	switch {
	case o.output == show.SVG:
		err = writeSVG(o.streams.Out, &t, facts.Now)
	case show.ForMachines(o.output):
		err = show.Encode(o.streams.Out, o.output, t)
	default:
		err = o.print(&t)
	}
	return cmp.Or(err, unseen)
}

// tellUnseen returns the error of a timeline that lacks steps for the want of a right.
func (o *options) tellUnseen(f *Facts) error {
	for _, kind := range f.Unseen {
		fmt.Fprintf(o.streams.ErrOut, "note: you may not list %s, so steps are missing; ask an admin for ClusterRole kueue-trainer-user\n", kind)
	}
	for i := range f.Copies {
		if c := &f.Copies[i]; c.Problem != "" {
			fmt.Fprintf(o.streams.ErrOut, "note: the steps in worker cluster %s are missing: %s\n", c.Cluster, c.Problem)
		}
	}
	if len(f.Unseen) == 0 {
		return nil
	}
	return exit.With(exit.Unseen, fmt.Errorf("not all of it is known: you may not list %s", strings.Join(f.Unseen, ", ")))
}

// shown is how much of a step's text is shown; -o json has all of it.
const shown = 100

func (o *options) print(t *Timeline) error {
	paint := show.Painter(o.streams.Out)
	steps := show.NewTable("TIME", "AFTER", "CLUSTER", "ACTOR", "OBJECT", "STEP")
	for _, s := range t.Steps {
		what := s.Step
		if runes := []rune(what); len(runes) > shown {
			what = string(runes[:shown]) + "…"
		}
		if s.Until != nil {
			what += fmt.Sprintf(" (the last after %s)", after(t.Steps[0].Time, *s.Until))
		}
		steps.Row(s.Time.Local().Format("15:04:05"), after(t.Steps[0].Time, s.Time), cmp.Or(s.Cluster, "-"), paint.Cyan(string(s.Actor)), s.Object, what)
	}
	steps.Hide(t.Worker == nil && len(t.FormerWorkers) == 0, "CLUSTER")
	if err := steps.Print(o.streams.Out, paint); err != nil {
		return err
	}
	fmt.Fprintln(o.streams.Out)
	spans := show.NewTable("PHASE", "TIME", "SHARE")
	for _, s := range t.Spans {
		spans.Row(s.Phase, length(s.Seconds), fmt.Sprintf("%.0f%%", s.Share*100))
	}
	return spans.Print(o.streams.Out, paint)
}

// after is to the millisecond where that is known. The clock of another machine may be behind.
func after(begin, at time.Time) string {
	d := max(0, at.Sub(begin))
	if exact(at) && d < time.Minute {
		return d.Round(time.Millisecond).String()
	}
	return length(d.Seconds())
}
