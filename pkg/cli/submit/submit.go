// SPDX-License-Identifier: Apache-2.0

// Package submit is the command that makes a TrainJob of flags, creates it, and watches it until it runs.
package submit

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	kueueconstants "sigs.k8s.io/kueue/pkg/controller/constants"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const submitLong = `Make a TrainJob of flags and create it. The command for the trainer's container follows --;
without one the runtime's runs.

Before anything is created, the runtime, the LocalQueue and the priority class are looked
for; with --watch the command stays until the pods run, or another cluster has the job, and
fails with exit code 2 when the TrainJob fails or is deactivated before. Ctrl-C ends the
watching and leaves the TrainJob.

--runtime-patch takes what an entry of spec.runtimePatches says, without its manager: the
entry becomes that of the SDK, trainer.kubeflow.org/kubeflow-sdk. On Trainer 2.1 it
becomes podTemplateOverrides.`

const submitExample = `  # 2 nodes with 8 GPUs each, from the queue of the team, and watch it start
  kubectl trainjob submit llama -n team-a --runtime torch-distributed --nodes 2 --gpus-per-node 8 \
    --image ghcr.io/team-a/llama:1 --queue gpus --env EPOCHS=3 --watch -- torchrun train.py

  # A MIG slice, for a TrainJob with a generated name
  kubectl trainjob submit --runtime torch-distributed --gpus-per-node 1 --gpu-resource nvidia.com/mig-1g.10gb

  # Nodes in one rack
  kubectl trainjob submit llama --runtime torch-distributed --nodes 4 --topology required=cloud.provider.com/rack

  # A manifest to keep
  kubectl trainjob submit llama --runtime torch-distributed --nodes 2 --dry-run=client -o yaml`

type command struct {
	request
	dryRun   string
	watch    bool
	forecast bool // has it said when the TrainJob starts, by what running tells, too
	running  outlook.Flags

	printing *genericclioptions.PrintFlags
	printer  printers.ResourcePrinter
	flags    cluster.Flags
	streams  genericiooptions.IOStreams
}

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	c := &command{flags: flags, streams: streams, dryRun: "none", printing: genericclioptions.NewPrintFlags("created")}
	cmd := &cobra.Command{
		Use: "submit [NAME] --runtime RUNTIME [flags] [-- COMMAND...]", Short: "Make a TrainJob of flags, and watch it on its way to running",
		Long: submitLong, Example: submitExample,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.arguments(args, cmd.ArgsLenAtDash()); err != nil {
				return err
			}
			if err := notNothing(cmd.Flags()); err != nil {
				return err
			}
			return c.run(cmd.Context())
		},
	}
	c.addFlags(cmd)
	return cmd
}

func (c *command) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&c.runtime, "runtime", "", "the ClusterTrainingRuntime, or trainingruntime/NAME for one of the namespace")
	f.Int32Var(&c.nodes, "nodes", 0, "how many nodes (default the runtime's)")
	f.Int64Var(&c.gpus, "gpus-per-node", 0, "how many GPUs on each node (default the runtime's)")
	f.StringVar(&c.resource, "gpu-resource", "nvidia.com/gpu", "the resource that --gpus-per-node counts")
	f.StringVar(&c.image, "image", "", "the trainer's image (default the runtime's)")
	f.StringArrayVar(&c.args, "trainer-args", nil, "an argument for the trainer's command; repeat it for more")
	f.StringArrayVar(&c.env, "env", nil, "NAME=VALUE, a variable of the trainer; repeat it for more")
	f.StringVar(&c.queue, "queue", "", "the LocalQueue")
	f.StringVar(&c.priority, "priority", "", "the WorkloadPriorityClass")
	f.StringVar(&c.topology, "topology", "", "required=LEVEL or preferred=LEVEL: the part of the topology that all nodes are to be in")
	f.StringArrayVar(&c.labels, "label", nil, "KEY=VALUE, of the TrainJob; repeat it for more")
	f.StringArrayVar(&c.annotations, "annotation", nil, "KEY=VALUE, of the TrainJob; repeat it for more")
	f.StringVar(&c.patch, "runtime-patch", "", "a file with a runtime patch, or the patch itself, in YAML or JSON")
	show.OneOf(cmd, &c.dryRun, "dry-run", "client: only print it, without asking the cluster; server: the API server checks it and stores nothing", "none", "client", "server")
	f.BoolVar(&c.forecast, "forecast", false, "say when it will start, which takes some seconds")
	c.running.AddTo(cmd, "")
	f.BoolVarP(&c.watch, "watch", "w", false, "stay until its pods run or, with MultiKueue, another cluster has it")
	c.printing.AddFlags(cmd)
	_ = cmd.MarkFlagRequired("runtime")
	for flag, list := range map[string]client.ObjectList{
		"runtime": &trainer.ClusterTrainingRuntimeList{}, "queue": &kueue.LocalQueueList{}, "priority": &kueue.WorkloadPriorityClassList{},
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cluster.Complete(c.flags, flag != "queue", list))
	}
}

// notNothing refuses flags that say nothing: a zero, or an unset variable of a script, would be dropped without a word.
func notNothing(flags *pflag.FlagSet) error {
	const leaveOut = "leave the flag out for what the runtime has"
	var errs []error
	flags.Visit(func(f *pflag.Flag) {
		switch value := f.Value.String(); {
		case f.Name == "nodes" && value == "0":
			errs = append(errs, fmt.Errorf("--nodes=0: no pod would run; name 1 or more, or %s", leaveOut))
		case f.Name == "gpus-per-node" && value == "0":
			errs = append(errs, fmt.Errorf("--gpus-per-node=0: a runtime's GPUs cannot be taken away; use a runtime without, or %s", leaveOut))
		case value == "" && slices.Contains([]string{"runtime", "image", "queue", "priority", "gpu-resource", "topology", "runtime-patch"}, f.Name):
			errs = append(errs, fmt.Errorf("--%s is empty: name one, or leave the flag out", f.Name))
		}
	})
	return errors.Join(errs...)
}

// arguments reads NAME and what follows --.
func (c *command) arguments(args []string, dash int) error {
	names := args
	if dash >= 0 {
		names, c.command = args[:dash], args[dash:]
	}
	if len(names) > 1 {
		return fmt.Errorf("one NAME only, and the command after --: %s", strings.Join(names, " "))
	}
	if len(names) == 1 {
		c.name = names[0]
	}
	if c.forecast && c.dryRun == "client" {
		return errors.New("--forecast and --dry-run=client: the cluster is not asked; use --dry-run=server, or leave one of them out")
	}
	if c.watch && c.dryRun != "none" {
		return fmt.Errorf("--watch and --dry-run=%s: there would be nothing to watch; leave one of them out", c.dryRun)
	}
	return nil
}

func (c *command) run(ctx context.Context) error {
	err := c.running.Complete(ctx, c.streams.ErrOut)
	if err != nil {
		return err
	}
	if err = c.printing.Complete("%s" + map[string]string{"client": " (dry run)", "server": " (server dry run)"}[c.dryRun]); err != nil {
		return err
	}
	// Before anything is created: it might be in no format that there is.
	if c.printer, err = c.printing.ToPrinter(); err != nil {
		return err
	}
	if c.namespace, err = c.flags.InNamespace(false); err != nil {
		return err
	}
	if c.dryRun == "client" {
		return c.printUnasked()
	}
	api, err := c.flags.Client()
	if err != nil {
		return err
	}
	u, err := c.create(ctx, api)
	if err != nil {
		return err
	}
	if outside(u) {
		fmt.Fprintln(c.streams.ErrOut, "note: the TrainJob is in no queue, so it runs outside of all quotas: name one with --queue")
	}
	c.foresee(ctx, api, u)
	if !c.watch {
		return nil
	}
	out := c.streams.Out
	if *c.printing.OutputFormat != "" {
		out = c.streams.ErrOut
	}
	return (&follower{client: api, out: out, errOut: c.streams.ErrOut, job: client.ObjectKeyFromObject(u), uid: u.GetUID()}).follow(ctx)
}

// outside reports whether a TrainJob that the API server has taken runs outside of all quotas: a default queue stands in it by
// then, and one that Kueue has to do with for want of a queue is suspended.
func outside(u *unstructured.Unstructured) bool {
	suspended, _, _ := unstructured.NestedBool(u.Object, "spec", "suspend")
	return u.GetLabels()[kueueconstants.QueueLabel] == "" && !suspended
}

// printUnasked prints the TrainJob as far as it can be checked without a cluster.
func (c *command) printUnasked() error {
	c.topologyOfNode("no cluster is asked for the runtime: use --dry-run=server")
	job, err := c.trainJob(false, nil)
	if err != nil {
		return err
	}
	u, err := manifest(job, trainjob.Trainer23, nil, c.streams.ErrOut)
	if err != nil {
		return err
	}
	return c.printer.PrintObj(u, c.streams.Out)
}

// create looks at what the TrainJob refers to, creates it, and prints it.
func (c *command) create(ctx context.Context, api client.Client) (*unstructured.Unstructured, error) {
	u, err := c.prepare(ctx, &preflight{client: api, notes: c.streams.ErrOut})
	if err != nil {
		return nil, err
	}
	// Strict: a field that is dropped without a word would make another job.
	create := []client.CreateOption{client.FieldValidation(metav1.FieldValidationStrict)}
	if c.dryRun == "server" {
		create = append(create, client.DryRunAll)
	}
	// What the API server, a quota, a policy or a webhook finds wrong has an exit code of its own. A webhook may answer with any.
	switch err := api.Create(ctx, u, create...); {
	case err == nil:
		return u, c.printer.PrintObj(u, c.streams.Out)
	case apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) && !cluster.ForRights(err) || strings.Contains(err.Error(), "denied the request"):
		return nil, exit.With(exit.Findings, fmt.Errorf("the TrainJob was refused: %w", err))
	case c.dryRun == "" && errors.As(err, new(*url.Error)) && !utilnet.IsConnectionRefused(err):
		// No answer to what was sent.
		return nil, fmt.Errorf("creating the TrainJob: %w; it may be there all the same: kubectl get trainjobs -n %s", err, u.GetNamespace())
	default:
		return nil, fmt.Errorf("creating the TrainJob: %w", err)
	}
}

// roles have the right to read runtimes of a kind.
var roles = map[string]string{trainer.ClusterTrainingRuntimeKind: "kueue-trainer-queues-viewer", trainer.TrainingRuntimeKind: "kueue-trainer-user in the namespace"}

// topologyOfNode warns of what --topology leaves out for a runtime that is not seen.
func (c *command) topologyOfNode(unseen string) {
	if c.topology != "" {
		fmt.Fprintf(c.streams.ErrOut, "warning: --topology is set for replicated job node alone; a launcher that trains beside it, as a runtime of MPI may have, is left out, because %s\n", unseen)
	}
}

// prepare makes the TrainJob for the cluster.
func (c *command) prepare(ctx context.Context, before *preflight) (*unstructured.Unstructured, error) {
	generation, err := before.generation(ctx)
	if err != nil {
		return nil, err
	}
	ref, err := c.runtimeRef()
	if err != nil {
		return nil, err
	}
	spec, builtin, err := before.runtime(ctx, ref, c.namespace)
	if err != nil {
		return nil, err
	}
	if spec == nil {
		c.topologyOfNode(fmt.Sprintf("you may not get %s %s: ask an admin for ClusterRole %s", *ref.Kind, ref.Name, roles[*ref.Kind]))
	}
	if err := before.queue(ctx, &c.request); err != nil {
		return nil, err
	}
	job, err := c.trainJob(builtin, spec)
	if err != nil {
		return nil, err
	}
	return manifest(job, generation, spec, before.notes)
}

// foresee says when the TrainJob starts, where that is asked for. It is there already, so that failing is no error.
func (c *command) foresee(ctx context.Context, api client.Client, u *unstructured.Unstructured) {
	if !c.forecast {
		return
	}
	var job trainjob.TrainJob
	var start *outlook.Start
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &job)
	if err == nil {
		start, err = explain.StartOf(ctx, api, &job, c.running.Told)
	}
	if err != nil {
		fmt.Fprintln(c.streams.ErrOut, "note: there is no forecast:", err)
		return
	}
	fmt.Fprintln(c.streams.ErrOut, "forecast:", start)
}
