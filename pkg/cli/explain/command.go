// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const long = `Tell why a TrainJob waits, where it will land and who set what.

The first line is its state in one sentence. Then come the objects on its way to running
pods with what each waits for, its queue and position, what every flavor of the queue can
do for it and why Kueue skips it, and the effective placement with the owner of every part.

Of a job that waits for quota it forecasts when it starts: Kueue's own scheduler plays many futures,
in which jobs run as long as jobs like them did, of those that the cluster still has or, with
--prometheus, of the last 30 days. What nothing is known of is unknown; --assume takes a time for it.

A job that MultiKueue runs in another cluster is followed there, where a context of the
kubeconfig is named like that cluster, or --worker-context says which one leads there.

With -f the TrainJob need not exist: runtimes are taken from the same files, then from the
cluster, and what Kueue would do with it is found by Kueue's own code.

Without a name there is a table of all in the namespace that do not run yet or are held, or with -A
of those in all namespaces: why, and what helps.

For scripts, a TrainJob that is named is an object; with -f, and without a name, there is a list.

Exit codes: 0 there is an explanation, 1 there is no such TrainJob, 4 you may not see what
it takes.`

const example = `  # Why does it not start?
  kubectl trainjob explain llm -n team-a

  # Why does it not start in the cluster that MultiKueue gave it to?
  kubectl trainjob explain llm -n team-a --worker-context worker1=admin@gpu-west

  # Why do all those wait that do?
  kubectl trainjob explain -A

  # Would it start with a higher priority?
  kubectl trainjob explain llm -n team-a --priority urgent

  # When does it start, by how long this month's jobs ran?
  kubectl trainjob explain llm -n team-a --prometheus http://localhost:9090

  # Which flavors could take it now, before it exists?
  kubectl trainjob explain -f job.yaml

  # For scripts
  kubectl trainjob explain llm -n team-a -o json
  kubectl trainjob explain -f job.yaml -o jsonpath='{[0].state.reason}'`

type options struct {
	flags   cluster.Flags
	streams genericiooptions.IOStreams

	files    manifest.Flags
	workers  *cluster.Workers
	all      bool
	priority string
	running  outlook.Flags
	output   string
}

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: flags, streams: streams, workers: cluster.NewWorkers(flags)}
	cmd := &cobra.Command{
		Use: "explain [NAME | -A | -f FILE]", Short: "Tell why a TrainJob waits, where it will land and who set what",
		Long: long, Example: example, Args: o.args,
		RunE:              func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
		ValidArgsFunction: cluster.CompleteTrainJobs(flags, 1),
	}
	o.files.AddTo(cmd, ", with TrainJobs that need not exist")
	o.workers.AddTo(cmd)
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "tell of those of all namespaces that do not run yet, or are held")
	cmd.Flags().StringVar(&o.priority, "priority", "", "tell what would become of a TrainJob that waits if it had this WorkloadPriorityClass")
	o.running.AddTo(cmd, "")
	show.OutputFlag(cmd, &o.output, show.Wide, show.JSON, show.YAML)
	return cmd
}

func (o *options) args(_ *cobra.Command, args []string) error {
	switch named := len(args) == 1; {
	case len(args) > 1 || named && o.files.Given() || o.all && (named || o.files.Given()):
		return errors.New("give the name of one TrainJob, or -A, or -f")
	case o.priority != "" && !named:
		return errors.New("--priority goes with the name of a TrainJob")
	}
	return nil
}

func (o *options) run(ctx context.Context, args []string) error {
	if err := o.running.Complete(ctx, o.streams.ErrOut); err != nil {
		return err
	}
	c, namespace, err := o.flags.ClientIn(o.all)
	if err != nil {
		return err
	}
	if len(args) == 0 && !o.files.Given() {
		return o.explainAll(ctx, c, namespace)
	}
	renderer, err := trainjob.NewRenderer(ctx, c.Scheme())
	if err != nil {
		return err
	}
	if o.files.Given() {
		return o.explainFiles(ctx, c, renderer, namespace)
	}
	name, err := cluster.TrainJobName(args[0])
	if err != nil {
		return err
	}
	job, err := cluster.TrainJob(ctx, c, namespace, name)
	if err != nil {
		return err
	}
	facts, err := readRendered(ctx, c, renderer, job)
	if err != nil {
		return err
	}
	if o.priority != "" {
		if facts, err = facts.withPriority(ctx, o.priority); err != nil {
			return err
		}
	} else {
		lookInto(ctx, o.workers, renderer, facts)
	}
	return o.tell([]Explanation{foreseen(ctx, newForesight(ctx, c, namespace, o.running.Told, 1), facts)})
}

// foreseen explains, with when the job starts. That this cannot be told is no reason to tell nothing.
func foreseen(ctx context.Context, fs *foresight, f *Facts) Explanation {
	e := Explain(f)
	starts, err := fs.starts(ctx, f)
	if e.Start = starts[f]; err != nil {
		e.Start = &outlook.Start{Unknown: fmt.Sprintf("it could not be made: %v", err)}
	}
	return e
}

func (o *options) explainAll(ctx context.Context, c client.Client, namespace string) error {
	snapshot, err := ReadAll(ctx, c, namespace)
	if err != nil {
		return err
	}
	LookIntoAll(ctx, o.workers, snapshot, namespace)
	all := []Explanation{}
	for _, f := range snapshot.Facts {
		if s := StateOf(f); s.waits() {
			all = append(all, Explain(f))
		}
	}
	switch {
	case show.ForMachines(o.output):
		err = show.Encode(o.streams.Out, o.output, all)
	case len(all) == 0:
		fmt.Fprintln(o.streams.ErrOut, "No TrainJob waits.")
	default:
		err = o.printer().table(all)
	}
	return cmp.Or(err, o.seen(all))
}

func (o *options) printer() *printer {
	return &printer{out: o.streams.Out, paint: show.Painter(o.streams.Out), wide: o.output == show.Wide}
}

func (o *options) explainFiles(ctx context.Context, c client.Client, renderer *trainjob.Renderer, namespace string) error {
	documents, err := o.files.Read(o.streams.In)
	if err != nil {
		return err
	}
	jobs, unread, err := readFiles(documents, namespace)
	if err != nil {
		return err
	}
	previews, err := newPreviews(ctx, c, renderer, documents, namespace)
	if err != nil {
		return err
	}
	var all []Explanation
	fs := newForesight(ctx, c, namespace, o.running.Told, len(jobs))
	for i := range jobs {
		facts, err := previews.of(ctx, &jobs[i])
		if err != nil {
			return err
		}
		all = append(all, foreseen(ctx, fs, facts))
	}
	return errors.Join(o.tell(all), unread)
}

// tell prints a TrainJob that is named as an object, those of files as a list. It fails where that is not to be seen.
func (o *options) tell(all []Explanation) error {
	return cmp.Or(o.print(all), o.seen(all))
}

// seen returns an error where one is not to be seen, and Kueue does not say why it waits.
func (o *options) seen(all []Explanation) error {
	for i := range all {
		if e := &all[i]; e.State.Reason == Unseen && (e.State.Phase != Waiting || o.priority != "") {
			return exit.With(exit.Unseen, fmt.Errorf("you may not see enough to explain TrainJob %s/%s", e.Namespace, e.Name))
		}
	}
	return nil
}

func (o *options) print(all []Explanation) error {
	switch machines := show.ForMachines(o.output); {
	case machines && o.files.Given():
		return show.Encode(o.streams.Out, o.output, all)
	case machines:
		return show.Encode(o.streams.Out, o.output, all[0])
	}
	p := o.printer()
	if len(all) > 1 {
		p.say("Each of %s is told as if it came alone.\n\n", show.Count(len(all), "TrainJob"))
	}
	for i := range all {
		if i > 0 {
			p.say("\n\n")
		}
		if err := p.print(&all[i]); err != nil {
			return err
		}
	}
	return nil
}
