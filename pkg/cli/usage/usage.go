// SPDX-License-Identifier: Apache-2.0

// Package usage is the command that prints who used how much: the bill.
package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/prom"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

const long = `Print who used how much of the quotas: the bill.

HELD is what TrainJobs held of their quotas, whether pods used it or not. It is split by what
they did with it: WAITING until all pods were ready, RUNNING, and STOPPING until the last pod
was gone. USEFUL, LOST, FAILED and DELETED are the running hours of runs that ended in the time:
in success, by an eviction, in failure, and because somebody deleted the job. Amounts are hours:
GPU-hours, with --all-resources core-hours and GiB-hours, too.

The bill comes from the ledger that the manager keeps: all since that began or, with
--prometheus, any time that Prometheus has scraped it for, up to now or to --until. Who may not read the ledger, or asks
it for a time of its own by --since, gets what the Workloads that are in the cluster now tell:
jobs that are gone, and former runs of jobs that were evicted, are missing, and what is not told
is a question mark, nothing in CSV, and left out of JSON and YAML.

Exit codes: 0 this is the bill, 1 there is no answer, 4 you may not see what the answer takes; what
the Workloads tell is printed all the same.`

const example = `  # The bill since the manager's ledger began
  kubectl trainjob usage

  # Of one namespace: all of them (-A) are what it prints by default
  kubectl trainjob usage -n team-a

  # The bill of the last 30 days by queue
  kubectl trainjob usage --prometheus http://localhost:9090 --since 30d

  # That of November
  kubectl trainjob usage --prometheus http://localhost:9090 --since 30d --until 2026-12-01T00:00:00Z

  # By flavor, with CPUs and memory
  kubectl trainjob usage --by flavor --all-resources

  # By queue and flavor, which have prices of their own
  kubectl trainjob usage --by queue,flavor

  # Of one cluster, where Prometheus has several
  kubectl trainjob usage --prometheus http://localhost:9090 --match cluster=eu-1

  # By user, for a spreadsheet
  kubectl trainjob usage --prometheus http://localhost:9090 --by user -o csv > bill.csv`

const longSince = "30d"

type options struct {
	flags   cluster.Flags
	streams genericiooptions.IOStreams

	since, until string
	by, output   string
	prometheus   prom.Flags
	userLabel    string
	allResources bool
	// all has -n not count.
	all bool
}

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: flags, streams: streams, by: byQueue}
	cmd := &cobra.Command{
		Use: "usage", Short: "Print the bill: GPU-hours held, used and lost, by queue, user or flavor",
		Long: long, Example: example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "the bill of all namespaces, as without -n")
	cmd.Flags().StringVar(&o.since, "since", "", "how far back, such as 12h, 30d or 4w; by default since the manager's ledger began, with --prometheus "+longSince)
	cmd.Flags().StringVar(&o.until, "until", "", "with --prometheus, the end of the time, such as 2026-12-01T00:00:00Z, from which --since reaches back; by default now")
	cmd.Flags().StringVar(&o.by, "by", o.by, "queue, user or flavor, or several, such as queue,flavor")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(splits, cobra.ShellCompDirectiveNoFileComp))
	o.prometheus.AddTo(cmd, "")
	cmd.Flags().StringVar(&o.userLabel, "user-label", "", "without --prometheus, the label of TrainJobs that says whose they are; the manager's configuration has it for its ledger")
	cmd.Flags().BoolVar(&o.allResources, "all-resources", false, "print CPUs, memory and the like, too, not GPUs and other devices alone")
	show.OutputFlag(cmd, &o.output, show.CSV, show.JSON, show.YAML)
	return cmd
}

func (o *options) run(ctx context.Context) error {
	now := time.Now()
	from, to, err := o.check(now)
	if err != nil {
		return err
	}
	bill := Bill{From: from, To: to, By: o.by}
	var totals []ledger.Total
	var v *view
	c, err := o.flags.Client()
	switch {
	case o.prometheus.URL != "":
		totals, v, err = o.ofPrometheus(ctx, c, err, &bill)
	case err == nil:
		totals, v, err = o.ofCluster(ctx, c, &bill)
	}
	if err != nil {
		return err
	}
	if !o.allResources {
		totals = slices.DeleteFunc(totals, func(t ledger.Total) bool { return !metrics.IsDevice(t.Resource) })
	}
	bill.sum(totals)
	if v != nil {
		bill.Hints = hints(v, now)
	}
	return o.print(bill)
}

// namespace is whose bill it is, empty for all.
func (o *options) namespace() string {
	if o.all {
		return ""
	}
	return *o.flags.Namespace
}

// ofPrometheus asks Prometheus. Hints alone need the cluster, and those who may not see it, or have
// none as err says, get none.
func (o *options) ofPrometheus(ctx context.Context, c client.Reader, err error, bill *Bill) ([]ledger.Total, *view, error) {
	var v *view
	if err == nil {
		v, err = readView(ctx, c, o.namespace())
	}
	if err != nil && exit.Code(err) != exit.Unseen {
		fmt.Fprintf(o.streams.ErrOut, "note: without hints on checkpoints: %v\n", cluster.Sentence(err))
	}
	asked, err := o.prometheus.Client()
	if err != nil {
		return nil, nil, err
	}
	bill.Source = fromPrometheus
	totals, notes, err := (&querier{asked, bill.From, bill.To, o.namespace()}).bill(ctx)
	bill.Notes = notes
	return totals, v, err
}

// ofCluster reads the manager's ledger or, where that is not to be had for what was asked, the Workloads alone.
func (o *options) ofCluster(ctx context.Context, c client.Reader, bill *Bill) ([]ledger.Total, *view, error) {
	// What Workloads do not tell any more has been saved before: so they are read after it, and tell what came since.
	saved, without := o.saved(ctx, c, bill.From)
	label, unknown := "", true
	if cfg, err := cluster.ManagerConfiguration(ctx, c); err == nil && cfg != nil {
		label, unknown = cfg.Metrics.UserLabel, false
	}
	v, err := readView(ctx, c, o.namespace())
	if err != nil {
		return nil, nil, err
	}
	if saved != nil && o.userLabel == "" && (!isBy(o.by, byUser) || label != "" || unknown) {
		v.userLabel, v.userUnknown = label, unknown
		bill.Source, bill.From = fromLedger, saved.Began
		bill.Notes = []string{fmt.Sprintf("this is all since %s, when the manager's ledger began; --prometheus has the bill of any time", saved.Began.UTC().Format(time.RFC3339))}
		totals := saved.Totals(v.readings(), func(uid types.UID) bool { return v.there[uid] }, bill.To)
		return slices.DeleteFunc(totals, func(t ledger.Total) bool { return o.namespace() != "" && t.Namespace != o.namespace() }), v, nil
	}
	switch byUsers := isBy(o.by, byUser) && o.userLabel == ""; {
	case byUsers && without != nil:
		return nil, nil, fmt.Errorf("--by user: %w; or name the label of TrainJobs that says whose they are with --user-label, or a Prometheus with --prometheus", without)
	case byUsers:
		return nil, nil, errors.New("--by user: name the label of TrainJobs that says whose they are with --user-label or in the manager's configuration (metrics.userLabel), or a Prometheus with --prometheus")
	}
	v.userLabel = o.userLabel
	bill.Source = fromWorkloads
	bill.Notes = []string{"this is only what the Workloads in the cluster tell now: jobs that are gone, and runs that were evicted, are missing, and what is not told is unknown, not 0; --prometheus has the whole bill"}
	if without != nil {
		bill.Notes = append(bill.Notes, without.Error())
	}
	// Of a label that is given, the ledger has nothing.
	bill.unseen = exit.Code(without) == exit.Unseen && o.userLabel == ""
	return ledger.Prove(v.readings(), bill.From, bill.To), v, nil
}

// saved reads the ledger, or says why there is none for what was asked.
func (o *options) saved(ctx context.Context, c client.Reader, from time.Time) (*ledger.Saved, error) {
	namespace, err := cluster.ManagerNamespace(ctx, c)
	if err != nil {
		return nil, err
	}
	saved, err := ledger.LoadSaved(ctx, c, namespace)
	name := fmt.Sprintf("ConfigMap %s/%s", namespace, ledger.ConfigMapName)
	switch {
	case apierrors.IsForbidden(err):
		return nil, exit.With(exit.Unseen, fmt.Errorf("you may not get %s, where the manager's ledger is, with the bill since it began: ask an admin for ClusterRole kueue-trainer-queues-viewer", name))
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no %s, where the manager's ledger would be", name)
	case err != nil:
		return nil, fmt.Errorf("the manager's ledger cannot be read: %w", err)
	case o.since != "" && from.After(saved.Began):
		return nil, fmt.Errorf("the manager's ledger has totals since %s, and not of a part of that time: without --since it has the bill", saved.Began.UTC().Format(time.RFC3339))
	}
	return saved, nil
}

func (o *options) check(now time.Time) (from, to time.Time, err error) {
	for split := range strings.SplitSeq(o.by, ",") {
		if !slices.Contains(splits, split) {
			return from, to, fmt.Errorf("--by %s: use queue, user or flavor, or several of them", o.by)
		}
	}
	if err := o.prometheus.Check(); err != nil {
		return from, to, err
	}
	if o.until != "" && o.prometheus.URL == "" {
		return from, to, errors.New("--until is for --prometheus: the ledger has what was used until now")
	}
	since, err := model.ParseDuration(cmp.Or(o.since, longSince))
	if err != nil || since <= 0 {
		return from, to, fmt.Errorf("--since %s: give a time such as 12h, 30d or 4w", o.since)
	}
	to = now
	if o.until != "" {
		if to, err = time.Parse(time.RFC3339, o.until); err != nil || to.After(now) {
			return from, to, fmt.Errorf("--until %s: give a time that is past, such as %s", o.until, now.UTC().Truncate(24*time.Hour).Format(time.RFC3339))
		}
	}
	return to.Add(-time.Duration(since)), to, nil
}

func (o *options) print(b Bill) error {
	for _, note := range b.Notes {
		fmt.Fprintln(o.streams.ErrOut, "note:", note)
	}
	var err error
	switch {
	case show.ForMachines(o.output):
		err = show.Encode(o.streams.Out, o.output, b)
	case o.output == show.CSV:
		err = printCSV(o.streams.Out, b)
	default:
		err = printTable(o.streams.Out, show.Painter(o.streams.Out), b)
	}
	if err == nil && b.unseen {
		return exit.With(exit.Unseen, errors.New("this is not the whole bill: you may not read the manager's ledger"))
	}
	return err
}
