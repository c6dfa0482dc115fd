// SPDX-License-Identifier: Apache-2.0

// Package list is the command that lists TrainJobs with the state that they are really in.
package list

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/follow"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib/scheduler"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const long = `List TrainJobs with the state that they are really in.

The STATE of kubectl get says Suspended for a TrainJob that was resumed, and for one that
waits. Here it is what explain says, with its reason in one word: see explain for the whole
story. POSITION is the place among those that wait in the same ClusterQueue, SINCE tells how
long the state has lasted.

A job that MultiKueue runs in another cluster has the state and the flavor that it has there,
where a context of the kubeconfig is named like that cluster, or --worker-context says which
one leads there; else its state is Elsewhere. CLUSTER of -o wide is that cluster. STARTS of -o wide is a forecast for those that wait for quota:
half of the futures start within the first time, eight tenths between the two in brackets.

What you may not see is <unknown>, a line on standard error names the kind, and the exit code is 4.`

const example = `  # Those of a namespace
  kubectl trainjob list -n team-a

  # All of them, with ClusterQueues and what explain says of each
  kubectl trainjob list -A -o wide

  # Those of a queue that wait, in its order
  kubectl trainjob list -A --queue gpus --state Waiting --sort-by position

  # Those that have waited for longest, for scripts
  kubectl trainjob list -A --state Waiting --sort-by since -o json | jq '.trainJobs[0].name'

  # Who is next in queues that share quota?
  kubectl trainjob list -A --by-cohort

  # Follow them
  kubectl trainjob list -n team-a --watch`

// calm is the time between two looks at the least: every look lists what jobs compete for.
const calm = time.Second

type options struct {
	flags   cluster.Flags
	streams genericiooptions.IOStreams

	workers          *cluster.Workers
	all, watch       bool
	selector, output string
	query            query
	running          outlook.Flags
	// starts has forecasts made.
	starts bool

	client    client.WithWatch
	namespace string
	labels    labels.Selector
	// watching is nil unless the list is followed. It has the kinds of the workers in watched, too.
	watching *follow.Watching
	watched  []string
}

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: flags, streams: streams, workers: cluster.NewWorkers(flags)}
	cmd := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List TrainJobs with their true state, queue, flavor, position and reason",
		Long: long, Example: example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "list those of all namespaces")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "list those with these labels, such as key=value")
	cmd.Flags().StringSliceVar(&o.query.states, "state", nil, "list those in one of these states, such as Waiting,Starting")
	cmd.Flags().StringVar(&o.query.queue, "queue", "", "list those of this LocalQueue, or of this ClusterQueue")
	cmd.Flags().StringVar(&o.query.user, "user", "", "list those of this user, whom metrics.userLabel of kueue-trainer's configuration tells")
	show.OneOf(cmd, &o.query.order, "sort-by", strings.Join(columns, ", "), columns...)
	cmd.Flags().BoolVar(&o.query.byCohort, "by-cohort", false, "list those that wait for quota by cohort, in the order in which Kueue comes to look at them")
	cmd.MarkFlagsMutuallyExclusive("by-cohort", "sort-by")
	o.running.AddTo(cmd, " with -o wide, json and yaml")
	o.workers.AddTo(cmd)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "after that, list those that change, until interrupted")
	show.OutputFlag(cmd, &o.output, show.Wide, "name", show.JSON, show.YAML)
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *options) run(ctx context.Context) error {
	if err := o.query.check(); err != nil {
		return err
	}
	if err := o.running.Complete(ctx, o.streams.ErrOut); err != nil {
		return err
	}
	// Followed, it would be another with every look; and scripts that do not ask for it need not wait for it.
	o.starts = !o.watch && (o.output == show.Wide || show.ForMachines(o.output) && (o.running.Assume > 0 || o.running.Prometheus.URL != ""))
	o.query.users = o.output == show.Wide || show.ForMachines(o.output) || o.query.user != "" || o.query.order == "user"
	var err error
	if o.labels, err = labels.Parse(o.selector); err != nil {
		return fmt.Errorf("--selector %s: %w", o.selector, err)
	}
	if o.client, o.namespace, err = o.flags.ClientIn(o.all); err != nil {
		return err
	}
	now, err := o.list(ctx)
	if err != nil {
		return err
	}
	o.tell(now)
	if len(now.TrainJobs) > 0 || show.ForMachines(o.output) {
		if err := o.print(now); err != nil {
			return err
		}
	}
	switch {
	case o.watch:
		return o.follow(ctx, now)
	case o.output == "name":
		return nil
	}
	return now.notAll()
}

// notAll is the error of a list that does not tell all of what TrainJobs do. Whose they are says a configuration that few may
// read: that does not count.
func (l *List) notAll() error {
	var kinds []string
	for _, u := range l.Unseen {
		if !slices.Equal(u.Fields, []string{"user"}) && !strings.HasPrefix(u.Kind, notThere) {
			kinds = append(kinds, u.Kind)
		}
	}
	if len(kinds) == 0 {
		return nil
	}
	return exit.With(exit.Unseen, fmt.Errorf("not all of it is known: you may not list %s", strings.Join(kinds, ", ")))
}

// tell says once of each kind, and of each worker, what is not known of jobs; and that there are none.
func (o *options) tell(l List) {
	for _, u := range l.Unseen {
		fmt.Fprintf(o.streams.ErrOut, "note: %s is %s: %s\n", strings.Join(u.Fields, ", "), unknown, u.why())
	}
	for _, u := range l.Workers {
		fmt.Fprintf(o.streams.ErrOut, "note: what %s do in worker cluster %s is not known: %s\n", show.Count(u.TrainJobs, "TrainJob"), u.Cluster, u.Problem)
	}
	switch {
	case len(l.TrainJobs) > 0 || show.ForMachines(o.output):
	case o.namespace == "":
		fmt.Fprintln(o.streams.ErrOut, "No resources found.")
	default:
		fmt.Fprintf(o.streams.ErrOut, "No resources found in %s namespace.\n", o.namespace)
	}
}

// why names the role that brings the right, of those that docs/rights.md has for users.
func (u *Unseen) why() string {
	// Behind a kind there may be a namespace, or a worker cluster.
	switch kind, _, _ := strings.Cut(u.Kind, " "); {
	case strings.HasPrefix(u.Kind, notThere):
		return u.Kind + "; ask an admin to put that right"
	case kind == "configmaps":
		return "you may not list " + u.Kind + "; ask an admin for that"
	case kind == "jobs.batch", kind == "jobsets.jobset.x-k8s.io":
		return "you may not list " + u.Kind + "; ask an admin for ClusterRole kueue-trainer-user"
	}
	return "you may not list all " + u.Kind + "; ask an admin for ClusterRole kueue-trainer-queues-viewer"
}

func (o *options) print(l List) error {
	switch {
	case show.ForMachines(o.output):
		if o.watching != nil && o.output == show.YAML {
			fmt.Fprintln(o.streams.Out, "---")
		}
		return show.Encode(o.streams.Out, o.output, l)
	case o.output == "name":
		for i := range l.TrainJobs {
			fmt.Fprintf(o.streams.Out, "trainjob.%s/%s\n", trainjob.GVK.Group, l.TrainJobs[i].Name)
		}
		return nil
	}
	paint := show.Painter(o.streams.Out)
	return o.table(l.TrainJobs, paint, time.Now()).Print(o.streams.Out, paint)
}

// follow prints jobs again when what is said of them has changed, as kubectl get --watch does.
func (o *options) follow(ctx context.Context, last List) error {
	o.watching = follow.Watch(ctx, calm)
	o.watching.Add(o.client, o.kinds()...)
	return follow.Each(ctx, o.watching, o.streams.ErrOut, o.list, func(now List) (over bool, err error) {
		news := news(last, now)
		last = now
		if len(news.TrainJobs) == 0 {
			return false, nil
		}
		return false, o.print(news)
	})
}

// news are the jobs of which another thing is said than before; messages tell the time, and
// do not count. Of those that were deleted nothing is said.
func news(last, now List) List {
	said := func(job TrainJob) bool {
		return slices.ContainsFunc(last.TrainJobs, func(old TrainJob) bool {
			old.Message, old.Remedy, old.Cause = job.Message, job.Remedy, job.Cause
			return old.Name == job.Name && reflect.DeepEqual(old, job)
		})
	}
	return List{TrainJobs: slices.DeleteFunc(slices.Clone(now.TrainJobs), said), Unseen: now.Unseen}
}

func (o *options) list(ctx context.Context) (List, error) {
	snapshot, err := explain.ReadAll(ctx, o.client, o.namespace, client.MatchingLabelsSelector{Selector: o.labels})
	if err != nil {
		return List{}, err
	}
	if err := o.query.checkUser(&snapshot.Around); err != nil {
		return List{}, err
	}
	explain.LookIntoAll(ctx, o.workers, snapshot, o.namespace)
	o.watchWorkers(snapshot)
	var turns map[types.UID]scheduler.Turn
	if o.query.byCohort {
		if turns, err = snapshot.Turns(ctx); err != nil {
			return List{}, err
		}
	}
	var starts map[*explain.Facts]*outlook.Start
	if o.starts {
		// Without them, there is a list all the same.
		starts, _ = explain.Starts(ctx, o.client, snapshot, o.namespace, o.running.Told)
	}
	return newList(snapshot, &o.query, turns, starts), nil
}

// watchWorkers has the jobs of workers watched from when a worker is assigned: the copy may come after
// the last change of the job here.
func (o *options) watchWorkers(s *explain.Snapshot) {
	if o.watching == nil {
		return
	}
	for _, f := range s.Facts {
		name, _ := f.Dispatched()
		if name == "" || slices.Contains(o.watched, name) {
			continue
		}
		if _, c, err := o.workers.Enter(name); err == nil {
			o.watching.Add(c, o.kinds()...)
			o.watched = append(o.watched, name)
		}
	}
}

// kinds are those whose changes move a TrainJob on.
func (o *options) kinds() []follow.Kind {
	in := client.InNamespace(o.namespace)
	return []follow.Kind{
		{List: &trainjob.List{}, Options: []client.ListOption{in, client.MatchingLabelsSelector{Selector: o.labels}}},
		{List: &kueue.WorkloadList{}, Options: []client.ListOption{in}},
		{List: &corev1.PodList{}, Options: []client.ListOption{in, client.HasLabels{jobsetapi.JobSetNameKey}}},
		{List: &kueue.ClusterQueueList{}},
		{List: &kueue.LocalQueueList{}, Options: []client.ListOption{in}},
	}
}
