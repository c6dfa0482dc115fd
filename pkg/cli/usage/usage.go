// SPDX-License-Identifier: Apache-2.0

// Package usage is the command that prints who used how much: the bill.
//
// usage.go is the command, bill.go what it prints, print.go prints it. prometheus.go asks Prometheus
// for the ledger, clusters.go whether it has that of one cluster only, epochs.go reads what it has.
// held.go reads off the Workloads of the cluster what those tell, hints.go finds jobs that lose more
// than they need to.
package usage

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/cluster"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/exit"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/show"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
)

const long = `Print who used how much of the quotas: the bill.

HELD is what TrainJobs held of their quotas, whether pods used it or not. It is split by what
they did with it: WAITING until all pods were ready, RUNNING, and STOPPING until the last pod
was gone. USEFUL, LOST, FAILED and DELETED are the running hours of runs that ended in the time:
in success, by an eviction, in failure, and because somebody deleted the job. Amounts are hours:
GPU-hours, with --all-resources core-hours and GiB-hours, too.

With --prometheus the bill comes from the ledger that the manager keeps, as Prometheus has
scraped it. Without, it is only what the Workloads that are in the cluster now tell: jobs that
are gone, and former runs of jobs that were evicted, are missing.

Exit codes: 0 this is the bill, 1 there is no answer, 4 you may not see what the answer takes.`

const example = `  # What do the Workloads of the cluster tell of the last day?
  kubectl trainjob usage --since 24h

  # The bill of the last 30 days by queue
  kubectl trainjob usage --prometheus http://localhost:9090 --since 30d

  # By flavor, with CPUs and memory
  kubectl trainjob usage --by flavor --all-resources

  # Of one cluster, where Prometheus has several
  kubectl trainjob usage --prometheus http://localhost:9090 --match cluster=eu-1

  # By user, for a spreadsheet
  kubectl trainjob usage --prometheus http://localhost:9090 --by user -o csv > bill.csv`

const csvFormat = "csv"

type options struct {
	flags   cluster.Flags
	streams genericiooptions.IOStreams

	since, by, output     string
	prometheus, tokenFile string
	match                 map[string]string
	userLabel             string
	allResources          bool
}

// NewCommand returns the command.
func NewCommand(flags cluster.Flags, streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{flags: flags, streams: streams}
	cmd := &cobra.Command{
		Use:     "usage",
		Short:   "Print the bill: GPU-hours held, used and lost, by queue, user or flavor",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&o.since, "since", "30d", "how far back, such as 12h, 30d or 4w")
	cmd.Flags().StringVar(&o.by, "by", byQueue, "queue, user or flavor")
	cmd.Flags().StringVar(&o.prometheus, "prometheus", "", "URL of a Prometheus, or of what speaks its API, that scrapes the manager")
	cmd.Flags().StringVar(&o.tokenFile, "token-file", "", "file with the bearer token for it")
	cmd.Flags().StringToStringVar(&o.match, "match", nil, "labels of the series of this cluster, such as cluster=eu-1, where that Prometheus has several clusters")
	cmd.Flags().StringVar(&o.userLabel, "user-label", "", "without --prometheus, the label of TrainJobs that says whose they are")
	cmd.Flags().BoolVar(&o.allResources, "all-resources", false, "print CPUs, memory and the like, too, not GPUs and other devices alone")
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "csv, json, yaml or jsonpath=TEMPLATE")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{byQueue, byUser, byFlavor}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{csvFormat, show.JSON, show.YAML}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (o *options) run(ctx context.Context) error {
	since, err := o.check()
	if err != nil {
		return err
	}
	now := time.Now()
	bill := Bill{From: now.Add(-since), To: now, By: o.by}
	var totals []ledger.Total
	c, err := o.cluster(ctx, o.prometheus == "")
	if err != nil {
		return err
	}
	if o.prometheus == "" {
		bill.Source = "cluster"
		totals, bill.Notes = c.bill(bill.From, now)
	} else {
		bill.Source = "prometheus"
		q, err := newQuerier(o.prometheus, o.tokenFile, o.match, bill.From, now, *o.flags.Namespace)
		if err != nil {
			return err
		}
		if totals, bill.Notes, err = q.bill(ctx); err != nil {
			return err
		}
	}
	if !o.allResources {
		totals = slices.DeleteFunc(totals, func(t ledger.Total) bool { return !device(t.Resource) })
	}
	bill.Lines = lines(totals, o.by)
	if c != nil {
		bill.Hints = hints(c, now)
	}
	return o.print(bill)
}

// check reads the flags.
func (o *options) check() (time.Duration, error) {
	if err := show.KnownFormat(o.output, csvFormat, show.JSON, show.YAML); err != nil {
		return 0, err
	}
	if !slices.Contains([]string{byQueue, byUser, byFlavor}, o.by) {
		return 0, fmt.Errorf("--by %s: use queue, user or flavor", o.by)
	}
	if o.by == byUser && o.prometheus == "" && o.userLabel == "" {
		return 0, errors.New("--by user: name the label of TrainJobs that says whose they are with --user-label, or a Prometheus with --prometheus")
	}
	if o.tokenFile != "" && o.prometheus == "" {
		return 0, errors.New("--token-file is for --prometheus")
	}
	if len(o.match) > 0 && o.prometheus == "" {
		return 0, errors.New("--match is for --prometheus")
	}
	for label := range o.match {
		if !model.LegacyValidation.IsValidLabelName(label) {
			return 0, fmt.Errorf("--match %s=%s: %q is no name of a label", label, o.match[label], label)
		}
	}
	since, err := model.ParseDuration(o.since)
	if err != nil || since <= 0 {
		return 0, fmt.Errorf("--since %s: give a time such as 12h, 30d or 4w", o.since)
	}
	return time.Duration(since), nil
}

// cluster reads the cluster. Where the bill comes from elsewhere, hints alone need it, and those
// who may not see it, or have none, get none.
func (o *options) cluster(ctx context.Context, needed bool) (*view, error) {
	c, err := o.flags.Client()
	if err == nil {
		var v *view
		if v, err = readView(ctx, c, *o.flags.Namespace, o.userLabel); err == nil {
			return v, nil
		}
	}
	if needed {
		return nil, err
	}
	if exit.Code(err) != exit.Unseen {
		fmt.Fprintf(o.streams.ErrOut, "note: without hints on checkpoints: %v\n", cluster.Sentence(err))
	}
	return nil, nil
}

func (o *options) print(b Bill) error {
	for _, note := range b.Notes {
		fmt.Fprintln(o.streams.ErrOut, "note:", note)
	}
	switch {
	case show.ForMachines(o.output):
		return show.Encode(o.streams.Out, o.output, b)
	case o.output == csvFormat:
		return printCSV(o.streams.Out, b)
	}
	return printTable(o.streams.Out, show.Painter(o.streams.Out), b)
}
