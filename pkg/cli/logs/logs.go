// SPDX-License-Identifier: Apache-2.0

// Package logs is the command that prints what the pods of a TrainJob say, in this cluster or in a worker.
package logs

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
)

const long = `Print the logs of a TrainJob's pods.

Without flags these are all containers of all pods, in order of replicated job and index. Lines
of several carry [REPLICATED-JOB-REPLICA-INDEX] in front: [node-0-1] is the second node of
replicated job node.

The pods of a job that MultiKueue runs in another cluster are read there, where a context of the
kubeconfig is named like that cluster, or --worker-context says which one leads there.

With --follow the logs go on until the TrainJob is over. Pods that come later, because the
TrainJob waits, starts, or is started again, are followed too.`

const example = `  # All pods
  kubectl trainjob logs llm -n team-a

  # The second node, as it goes on
  kubectl trainjob logs llm -n team-a --job node --index 1 -f

  # The last lines of what ran before the containers were started again
  kubectl trainjob logs llm -n team-a --previous --tail 20`

type options struct {
	flags   cluster.Flags
	streams genericiooptions.IOStreams

	workers   *cluster.Workers
	selection selection
	follow    bool
	prefix    bool
	log       corev1.PodLogOptions
	tail      int64
	since     time.Duration
}

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: flags, streams: streams, workers: cluster.NewWorkers(flags)}
	cmd := &cobra.Command{
		Use: "logs NAME", Short: "Print the logs of a TrainJob's pods",
		Long: long, Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := cluster.OneTrainJob(args)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), name, cmd.Flags().Changed("prefix"))
		},
		ValidArgsFunction: cluster.CompleteTrainJobs(flags, 1),
	}
	o.workers.AddTo(cmd)
	f := cmd.Flags()
	f.StringVar(&o.selection.job, "job", "", "the pods of this replicated job")
	f.IntVar(&o.selection.index, "index", -1, "the pods of this index in their Job, from 0")
	f.StringVarP(&o.selection.container, "container", "c", "", "this container, which may be an init container")
	f.BoolVarP(&o.follow, "follow", "f", false, "go on until the TrainJob is over")
	f.BoolVar(&o.prefix, "prefix", true, "tell in front of each line whose it is; by default where there may be several")
	f.Int64Var(&o.tail, "tail", -1, "this many of the last lines of each log")
	f.DurationVar(&o.since, "since", 0, "what is not older than this, such as 5m")
	f.BoolVarP(&o.log.Previous, "previous", "p", false, "the logs of containers before they were started again")
	f.BoolVar(&o.log.Timestamps, "timestamps", false, "the time of each line")
	return cmd
}

func (o *options) complete() error {
	if o.tail >= 0 {
		o.log.TailLines = &o.tail
	}
	if o.since < 0 {
		return errors.New("--since: give a time that is not negative, such as 5m")
	}
	if seconds := int64((o.since + time.Second - 1) / time.Second); seconds > 0 {
		o.log.SinceSeconds = &seconds
	}
	if o.follow && o.log.Previous {
		return errors.New("--previous and --follow exclude each other: what ran before does not go on")
	}
	return nil
}

func (o *options) run(ctx context.Context, name string, prefixGiven bool) error {
	if err := o.complete(); err != nil {
		return err
	}
	namespace, err := o.flags.InNamespace(false)
	if err != nil {
		return err
	}
	here, err := newPlace(o.flags)
	if err != nil {
		return err
	}
	l := &looker{here: here, workers: o.workers, key: client.ObjectKey{Namespace: namespace, Name: name}, selection: o.selection}
	now, err := l.look(ctx)
	if err != nil {
		return err
	}
	if !prefixGiven {
		o.prefix = o.follow || len(now.targets) > 1
	}
	r := &reader{options: o.log, out: o.streams.Out, errOut: o.streams.ErrOut, prefix: o.prefix}
	switch {
	case o.follow:
		return r.follow(ctx, l.watch(ctx), l.look)
	case len(now.targets) == 0:
		return now.nothing
	}
	return r.readAll(ctx, now.targets)
}
