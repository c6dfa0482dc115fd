// SPDX-License-Identifier: Apache-2.0

// Package simulate is the command that plays what becomes of a cluster's jobs, as it is and with changes.
package simulate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/inventory"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/manifest"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/outlook"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

const long = `Play what becomes of a cluster's jobs, as it is and with changes, and compare the two.

Kueue's own scheduler plays, on a clock that runs ahead; the cluster is only read. With -f it is
what files say, such as "kubectl get -o yaml" writes: ClusterQueues, Cohorts, LocalQueues,
ResourceFlavors, Topologies, Nodes, Workloads, TrainJobs. Jobs run for as long as jobs like them
did, of those that the cluster still has or, with --prometheus, of the last 30 days; those of which
nothing is known run to the end of what is played, or as long as --assume says.

Who comes is drawn from who came in the last three days, or stands in a CSV: time, queue, GPUs,
duration and, if you like, priority, such as 90m,team-a/main,8,4h.

With --for and --now it tells without whom a job would get quota at once, and what each of them
would lose. It advises, and changes nothing.`

const example = `  # Would more quota shorten the waits?
  kubectl trainjob simulate --set-quota team-a/h100/nvidia.com/gpu=32

  # Two borrowing limits on last month's arrivals, without a cluster
  kubectl trainjob simulate -f queues.yaml --arrivals july.csv --set-borrowing-limit team-a/h100/nvidia.com/gpu=16

  # The same with this month's jobs, which the cluster has no more
  kubectl trainjob simulate --prometheus http://localhost:9090 --set-quota team-a/h100/nvidia.com/gpu=32

  # What a scenario file says, as a chart
  kubectl trainjob simulate --scenario fair.yaml -o svg > fair.svg

  # Who would have to go for this job to get quota now?
  kubectl trainjob simulate --for team-a/llm --now`

type options struct {
	flags   cluster.Flags
	streams genericiooptions.IOStreams

	files            manifest.Flags
	scenario         Scenario
	scenarioFile     string
	arrivals, output string
	horizon          time.Duration
	running          outlook.Flags
	seed             uint64
	// csv is what arrivals names.
	csv []byte
	job string
	now bool
	// come are who comes in the first play.
	come []forecast.Arrival
	// warned are the warnings that were printed: two plays have the same.
	warned sets.Set[string]
}

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: flags, streams: streams, warned: sets.New[string]()}
	cmd := &cobra.Command{
		Use: "simulate", Short: "Play what becomes of waiting jobs, as things are and with changes",
		Long: long, Example: example, Args: cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE:              func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	o.files.AddTo(cmd, ", with a cluster's queues, flavors, nodes and Workloads instead of the cluster")
	f := cmd.Flags()
	f.StringVar(&o.scenarioFile, "scenario", "", "a file with changes: setQuota, setBorrowingLimit, addNodes, drain, priorities, preemption, fairSharing, jobs")
	for _, l := range o.scenario.lists() {
		f.StringArrayVar(l.texts, l.flag, nil, l.usage+"; repeat it for more")
	}
	f.StringVar(&o.arrivals, "arrivals", "", "who comes: a CSV, or none (default as many as came in the last three days)")
	f.DurationVar(&o.horizon, "horizon", outlook.Horizon, "how long is played")
	o.running.AddTo(cmd, "")
	f.Uint64Var(&o.seed, "seed", 1, "the same seed plays the same")
	f.StringVar(&o.job, "for", "", "NAMESPACE/JOB that waits, with --now")
	f.BoolVar(&o.now, "now", false, "tell without whom the job of --for would get quota at once")
	cmd.MarkFlagsRequiredTogether("for", "now")
	show.OutputFlag(cmd, &o.output, show.JSON, show.CSV, show.SVG)
	return cmd
}

func (o *options) run(ctx context.Context) error {
	if o.horizon < time.Hour {
		return errors.New("--horizon: it takes at least 1h")
	}
	if o.now && o.output != "" && !show.ForMachines(o.output) {
		return errors.New("--now goes with -o json or jsonpath=TEMPLATE, or without -o")
	}
	if err := o.running.Complete(ctx, o.streams.ErrOut); err != nil {
		return err
	}
	if err := o.completeScenario(); err != nil {
		return err
	}
	if o.now && !o.scenario.none() {
		return errors.New("--now tells of things as they are: leave the changes out")
	}
	now := time.Now()
	before, err := o.read(ctx)
	if err != nil {
		return err
	}
	before.Now, before.Told = now, o.running.Told
	if o.csv, err = o.readArriving(); err != nil {
		return err
	}
	if o.now {
		return o.tellNow(ctx, before)
	}
	comparison, err := o.compare(ctx, before)
	if err != nil {
		return err
	}
	return o.print(comparison)
}

// completeScenario adds to the file what flags say.
func (o *options) completeScenario() error {
	if o.scenarioFile == "" {
		return nil
	}
	s, err := readScenario(o.scenarioFile)
	if err != nil {
		return err
	}
	flags := o.scenario.lists()
	for n, l := range s.lists() {
		*l.texts = append(*l.texts, *flags[n].texts...)
	}
	o.scenario = s
	return nil
}

func (o *options) read(ctx context.Context) (*outlook.Outlook, error) {
	namespace, err := o.flags.InNamespace(false)
	if err != nil {
		return nil, err
	}
	if o.files.Given() {
		files, err := o.files.Read(o.streams.In)
		if err != nil {
			return nil, err
		}
		at, err := readFiles(files, namespace)
		if err == nil && len(at.ClusterQueues) == 0 {
			err = errors.New("there is no ClusterQueue in what -f names")
		}
		return at, err
	}
	c, err := o.flags.Client()
	if err != nil {
		return nil, err
	}
	return readCluster(ctx, c, namespace, o.warn)
}

func (o *options) warn(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !o.warned.Has(text) {
		o.warned.Insert(text)
		fmt.Fprintln(o.streams.ErrOut, "warning:", text)
	}
}

// readArriving reads the CSV of --arrivals once for all plays, from standard input for -.
func (o *options) readArriving() ([]byte, error) {
	switch o.arrivals {
	case "", "none":
		return nil, nil
	case "-":
		return io.ReadAll(o.streams.In)
	}
	return os.ReadFile(o.arrivals)
}

// readCluster reads the cluster as it is. What Kueue's configuration says is left at its defaults where the user
// may not read it, which a warning says.
func readCluster(ctx context.Context, c client.Client, namespace string, warn func(string, ...any)) (*outlook.Outlook, error) {
	o := &outlook.Outlook{}
	var err error
	if o.Inventory, err = inventory.LoadForQuota(ctx, c); err != nil {
		return nil, err
	}
	if unseen := o.Unseen(); len(unseen) > 0 {
		return nil, exit.With(exit.Unseen, fmt.Errorf("you may not list %s: ask an admin for ClusterRole kueue-trainer-queues-viewer, or simulate what files say with -f", strings.Join(unseen, ", ")))
	}
	var all bool
	if o.TrainJobs, all, err = cluster.VisibleTrainJobs(ctx, c, namespace); err != nil {
		return nil, err
	}
	if !all {
		warn("what TrainJobs of other namespaces tell of their running times is not seen")
	}
	// Without it, jobs are not told apart by their users, and Kueue is where its manifests install it.
	o.Manager, _ = cluster.ManagerConfiguration(ctx, c)
	at := cluster.WithDefaults(o.Manager).KueueConfigMap
	if o.Kueue, err = cluster.KueueConfigurationAt(ctx, c, at); err != nil {
		warn("Kueue's configuration is not seen, its defaults are taken: %v", err)
	} else if o.Kueue == nil {
		warn("Kueue's configuration, ConfigMap %s in namespace %s, is not there or not read, its defaults are taken", at.Name, at.Namespace)
	}
	var deployment appsv1.Deployment
	if c.Get(ctx, client.ObjectKey{Namespace: at.Namespace, Name: cluster.Kueue.Deployment}, &deployment) == nil {
		if release := cluster.Release(&deployment, nil); release != "" && cluster.MinorOf(release) != cluster.KueueMinor {
			warn("the cluster has Kueue %s, and what is played is by the code of %s", release, cluster.KueueMinor)
		}
	}
	return o, nil
}

// readFiles reads what files have of a cluster: Kueue's objects and TrainJobs, in a namespace where they name none, and nodes.
func readFiles(files []manifest.File, namespace string) (*outlook.Outlook, error) {
	group := kueue.SchemeGroupVersion.Group
	i := &inventory.Inventory{}
	o := &outlook.Outlook{Inventory: i}
	var unread error
	for n := range files {
		unread = errors.Join(unread, files[n].Err())
	}
	return o, errors.Join(unread,
		manifest.Collect(files, corev1.GroupName, "Node", "", &i.Nodes),
		manifest.Collect(files, group, "ResourceFlavor", "", &i.Flavors),
		manifest.Collect(files, group, "Topology", "", &i.Topologies),
		manifest.Collect(files, group, "ClusterQueue", "", &i.ClusterQueues),
		manifest.Collect(files, group, "Cohort", "", &i.Cohorts),
		manifest.Collect(files, group, "LocalQueue", namespace, &i.LocalQueues),
		manifest.Collect(files, group, "AdmissionCheck", "", &i.AdmissionChecks),
		manifest.Collect(files, group, "Workload", namespace, &i.Workloads),
		manifest.Collect(files, trainjob.GVK.Group, trainjob.GVK.Kind, namespace, &o.TrainJobs))
}
