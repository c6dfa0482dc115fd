// SPDX-License-Identifier: Apache-2.0

package outlook

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/prom"
	"github.com/kueue-trainer/kueue-trainer/pkg/forecast"
	"github.com/kueue-trainer/kueue-trainer/pkg/kueuelib"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// Told is what a command is told of running times, beside what the cluster tells.
type Told struct {
	// Assume is how long a job runs of which nothing is known; zero for unknown.
	Assume time.Duration
	// Measured is how long jobs ran that ended in the last month; empty where no Prometheus is asked.
	Measured []forecast.Histogram
}

// Flags tell it.
type Flags struct {
	Told
	Prometheus prom.Flags
}

// AddTo adds the flags to a command that forecasts, or does so only as it says.
func (f *Flags) AddTo(cmd *cobra.Command, only string) {
	cmd.Flags().DurationVar(&f.Assume, "assume", 0, "forecast"+only+" as if jobs of which nothing is known ran for so long, such as 4h")
	f.Prometheus.AddTo(cmd, ": forecast"+only+" by how long jobs of the queue ran in the last 30 days, where too little is known of jobs more like one")
}

// Complete refuses what the flags cannot be, and asks the Prometheus that they name.
func (f *Flags) Complete(ctx context.Context, notes io.Writer) error {
	if f.Assume < 0 {
		return fmt.Errorf("--assume: %s is no time that a job runs", f.Assume)
	}
	if err := f.Prometheus.Check(); err != nil || f.Prometheus.URL == "" {
		return err
	}
	c, err := f.Prometheus.Client()
	if err != nil {
		return err
	}
	if f.Measured, err = measured(ctx, c, time.Now()); err == nil && len(f.Measured) == 0 {
		fmt.Fprintln(notes, "note: Prometheus has no running times of the last 30 days: check that it scrapes the manager")
	}
	return err
}

func measured(ctx context.Context, c *prom.Client, now time.Time) ([]forecast.Histogram, error) {
	if err := c.OneCluster(ctx, now.Add(-forecast.Month), now); err != nil {
		return nil, err
	}
	by := strings.Join([]string{model.BucketLabel, metrics.Namespace, metrics.LocalQueue}, ", ")
	buckets, err := prom.Ask[model.Vector](c.Query(ctx, c.Aggregated("sum", by, "increase", metrics.AdmittedUntilEnded.Name+"_bucket", forecast.Month), now))
	if err != nil {
		return nil, err
	}
	byQueue := map[string][]forecast.Bucket{}
	for _, b := range buckets {
		seconds, err := strconv.ParseFloat(string(b.Metric[model.BucketLabel]), 64)
		if err != nil {
			return nil, fmt.Errorf("Prometheus answers with a bucket up to %q", b.Metric[model.BucketLabel])
		}
		queue := ""
		if name := b.Metric[metrics.LocalQueue]; name != "" { // Else the manager puts queues together.
			queue = fmt.Sprintf("%s/%s", b.Metric[metrics.Namespace], name)
		}
		byQueue[queue] = append(byQueue[queue], forecast.Bucket{Seconds: seconds, Jobs: float64(b.Value)})
	}
	var all []forecast.Histogram
	for queue, buckets := range byQueue {
		slices.SortFunc(buckets, func(a, b forecast.Bucket) int { return cmp.Compare(a.Seconds, b.Seconds) })
		all = append(all, forecast.Histogram{Queue: queue, Buckets: buckets})
	}
	slices.SortFunc(all, func(a, b forecast.Histogram) int { return cmp.Compare(a.Queue, b.Queue) })
	return all, nil
}

// past is how long the Workloads ran that the cluster still has, and how long those have that run.
func (o *Outlook) past(jobs byUID) []forecast.Past {
	var all []forecast.Past
	since := o.known()
	for n := range o.Workloads {
		wl := &o.Workloads[n]
		s := o.subject(wl, jobs)
		if s.Service {
			continue
		}
		p := forecast.Past{Traits: s.Traits, Limit: s.Limit, Submitted: s.Submitted, Job: s.Job}
		started, stopped := kueuelib.Since(wl.Status.Conditions, kueue.WorkloadAdmitted), kueuelib.OverTime(wl)
		switch ran, ended := kueuelib.RanFor(wl); {
		case ended:
			p.Ran = forecast.Ran{For: ran, Ended: true}
		case kueuelib.IsFinished(wl):
			continue
		case stopped != nil: // It was stopped, and would have run longer.
			p.Ran = forecast.Ran{For: s.Limit}
			started = stopped.LastTransitionTime.Add(-s.Limit)
		case !kueuelib.IsAdmitted(wl):
			continue
		default:
			p.Ran = forecast.Ran{For: s.Running}
		}
		p.Seen = max(0, since(s.Queue).Sub(started)-time.Second)
		all = append(all, p)
	}
	return all
}

// known returns the function that tells since when all ends of a queue are known: Workloads that have ended are kept for
// some time only. A queue of which few are there is taken for like the others, and a few that are kept longer do not count.
func (o *Outlook) known() func(queue string) time.Time {
	const enough, all = 20, ""
	ends := map[string][]time.Time{}
	for n := range o.Workloads {
		if wl := &o.Workloads[n]; kueuelib.IsFinished(wl) {
			at := kueuelib.Since(wl.Status.Conditions, kueue.WorkloadFinished)
			ends[queueOf(wl)], ends[all] = append(ends[queueOf(wl)], at), append(ends[all], at)
		}
	}
	for _, of := range ends {
		slices.SortFunc(of, time.Time.Compare)
	}
	return func(queue string) time.Time {
		of := ends[queue]
		if len(of) < enough {
			of = ends[all]
		}
		if len(of) == 0 {
			return o.Now
		}
		return of[len(of)/enough]
	}
}

// complete returns the function that tells for how long all are known who came to a queue: since the oldest end that is
// known, or since the first came where none has ended. An hour is the least, or a few would be a flood.
func (o *Outlook) complete() func(queue string) time.Duration {
	known, first := o.known(), o.Now
	for n := range o.Workloads {
		if created := o.Workloads[n].CreationTimestamp.Time; created.Before(first) {
			first = created
		}
	}
	return func(queue string) time.Duration {
		since := known(queue)
		if !since.Before(o.Now) {
			since = first
		}
		return min(recent, max(time.Hour, o.Now.Sub(since)))
	}
}

// Complete is that of the queue of which the least is known.
func (o *Outlook) Complete() time.Duration {
	complete := o.complete()
	least := complete("")
	for n := range o.Workloads {
		least = min(least, complete(queueOf(&o.Workloads[n])))
	}
	return least
}
