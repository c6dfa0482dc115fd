// SPDX-License-Identifier: Apache-2.0

// Package logs is the command that prints what the pods of a TrainJob say. target.go picks
// containers, stream.go and follow.go print.
package logs

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/follow"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const long = `Print the logs of a TrainJob's pods.

Without flags these are all containers of all pods, in order of replicated job and index. Lines
of several carry [REPLICATED-JOB-REPLICA-INDEX] in front: [node-0-1] is the second node of
replicated job node.

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

	selection selection
	follow    bool
	prefix    bool
	log       corev1.PodLogOptions
	tail      int64
	since     time.Duration
}

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: flags, streams: streams}
	cmd := &cobra.Command{
		Use:     "logs NAME",
		Short:   "Print the logs of a TrainJob's pods",
		Long:    long,
		Example: example,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := cluster.OneTrainJob(args)
			if err != nil {
				return err
			}
			return o.run(cmd.Context(), name, cmd.Flags().Changed("prefix"))
		},
		ValidArgsFunction: cluster.CompleteTrainJob(flags),
	}
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
	c, err := o.flags.Client()
	if err != nil {
		return err
	}
	clientset, err := o.clientset()
	if err != nil {
		return err
	}
	l := &looker{client: c, key: client.ObjectKey{Namespace: namespace, Name: name}, selection: o.selection}
	now, err := l.look(ctx)
	if err != nil {
		return err
	}
	if !prefixGiven {
		o.prefix = o.follow || len(now.targets) > 1
	}
	r := &reader{open: openerOf(clientset), printer: &printer{out: o.streams.Out, prefix: o.prefix}, errOut: o.streams.ErrOut, options: o.log}
	switch {
	case o.follow:
		return r.follow(ctx, l.changes(ctx), l.look)
	case len(now.targets) == 0:
		return l.nothing()
	}
	return r.readAll(ctx, now.targets)
}

// clientset is what logs are read with, which are a subresource of their own kind.
func (o *options) clientset() (*kubernetes.Clientset, error) {
	config, err := o.flags.Config()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(config)
}

// looker reads the pods of a TrainJob.
type looker struct {
	client    client.WithWatch
	key       client.ObjectKey
	selection selection
	// pods counts those that were there before some were picked.
	pods int
	// uid is that of the job which was there first.
	uid string
}

func (l *looker) look(ctx context.Context) (sight, error) {
	job, err := cluster.TrainJob(ctx, l.client, l.key.Namespace, l.key.Name)
	if l.uid != "" && (errors.Is(err, cluster.ErrNoTrainJob) || err == nil && string(job.UID) != l.uid) {
		return sight{over: true}, nil
	}
	if err != nil {
		return sight{}, err
	}
	l.uid = string(job.UID)
	var js jobsetapi.JobSet
	err = l.client.Get(ctx, l.key, &js)
	if err == nil && !metav1.IsControlledBy(&js, job) {
		return sight{}, fmt.Errorf("JobSet %s is not of TrainJob %s: delete one of them", js.Name, job.Name)
	}
	var pods corev1.PodList
	err = l.client.List(ctx, &pods, client.InNamespace(l.key.Namespace), client.MatchingLabels{jobsetapi.JobSetNameKey: l.key.Name})
	if apierrors.IsForbidden(err) {
		return sight{}, exit.With(exit.Unseen, fmt.Errorf("you may not list pods in namespace %s: ask an admin for the permission to list pods and to get pods/log", l.key.Namespace))
	}
	l.pods = len(pods.Items)
	return sight{targets: l.selection.targets(pods.Items), over: job.Finished()}, err
}

// nothing says why there is no log to print.
func (l *looker) nothing() error {
	if l.pods > 0 {
		return fmt.Errorf("TrainJob %s has pods, but none of those that --job, --index and --container name", l.key.Name)
	}
	return fmt.Errorf("TrainJob %s has no pods: kubectl trainjob explain -n %s %s tells why, and --follow waits for them", l.key.Name, l.key.Namespace, l.key.Name)
}

func (l *looker) changes(ctx context.Context) <-chan struct{} {
	in := client.InNamespace(l.key.Namespace)
	return follow.Changes(ctx, l.client, calm,
		follow.Kind{List: &trainjob.List{}, Options: []client.ListOption{in, client.MatchingFields{metav1.ObjectNameField: l.key.Name}}},
		follow.Kind{List: &corev1.PodList{}, Options: []client.ListOption{in, client.MatchingLabels{jobsetapi.JobSetNameKey: l.key.Name}}})
}
