// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"strings"
	"time"

	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/prom"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// before is how old a value may be that is taken for that with which a window begins, unless the ledger began since.
const before = 24 * time.Hour

// ofLedger are the labels that a series of the ledger may have. Whatever else there is tells which
// process was scraped, by whom, and how; the ledger is one, whoever tells it.
var ofLedger = strings.Join([]string{
	metrics.ClusterQueue, metrics.Namespace, metrics.LocalQueue, metrics.Flavor, metrics.Resource,
	metrics.PriorityClass, metrics.User, metrics.Phase, metrics.Outcome,
}, ", ")

// querier asks a Prometheus.
type querier struct {
	*prom.Client
	from, to time.Time
	// namespace is that of the LocalQueues to look at; empty: all of them.
	namespace string
}

// errTogether is why there is no bill of a namespace.
var errTogether = errors.New("the manager puts LocalQueues together (metrics.localQueueLabels: false), so it has no bill of one namespace: leave -n out")

// errNoLedger is why there is no bill.
var errNoLedger = errors.New("it has no series of the ledger for this time: check that it scrapes the manager, and --since")

// bill returns what was used by phase and outcome, and what of it is not known.
func (q *querier) bill(ctx context.Context) ([]ledger.Total, []string, error) {
	if err := q.OneCluster(ctx, q.from, q.to); err != nil {
		return nil, nil, err
	}
	began, err := q.read(ctx, metrics.LedgerBegan.Name, before)
	if err != nil {
		return nil, nil, err
	}
	var values []float64
	known, first := false, q.to
	for _, s := range began {
		if s.before != nil {
			known, first = true, q.from
			values = append(values, *s.before)
		}
		for _, p := range s.within {
			values = append(values, p.value)
			if p.at.Before(first) {
				first = p.at
			}
		}
	}
	if len(values) == 0 {
		return nil, nil, errNoLedger
	}
	epochs := epochs(values, known, q.from, q.to, prom.Stale)
	fresh := known || !time.UnixMilli(int64(minOf(values)*1000)).Before(q.from)
	var totals []ledger.Total
	for metric, label := range map[string]string{metrics.QuotaSeconds.Name: metrics.Phase, metrics.EndedSeconds.Name: metrics.Outcome} {
		all, err := q.read(ctx, metric, lookBack(values, q.from))
		if err != nil {
			return nil, nil, err
		}
		for _, s := range all {
			series := seriesOf(s.labels)
			used := s.used(epochs, fresh, first)
			if used > 0 && series.LocalQueue == "" && q.namespace != "" {
				return nil, nil, errTogether
			}
			if used > 0 && (q.namespace == "" || q.namespace == series.Namespace) {
				totals = append(totals, ledger.Total{Series: series, Is: string(s.labels[model.LabelName(label)]), Seconds: used})
			}
		}
	}
	return totals, notes(epochs, fresh, q.from, first), nil
}

// lookBack is how long before a window its beginning is looked for: not where a former ledger was still told,
// whose totals are others.
func lookBack(began []float64, from time.Time) time.Duration {
	back := before
	for _, seconds := range began {
		if since := from.Sub(time.UnixMilli(int64(seconds * 1000))); since >= 0 {
			// A range of 0 is none.
			back = min(back, max(since, time.Millisecond))
		}
	}
	return back
}

func minOf(values []float64) float64 {
	least := values[0]
	for _, v := range values {
		least = min(least, v)
	}
	return least
}

// seriesOf reads the labels of the ledger. Where LocalQueues are put together, label namespace is that
// of the manager's pods.
func seriesOf(labels model.Metric) ledger.Series {
	s := ledger.Series{
		ClusterQueue: string(labels[metrics.ClusterQueue]), Namespace: string(labels[metrics.Namespace]), LocalQueue: string(labels[metrics.LocalQueue]),
		Flavor: string(labels[metrics.Flavor]), Resource: string(labels[metrics.Resource]),
		PriorityClass: string(labels[metrics.PriorityClass]), User: string(labels[metrics.User]),
	}
	if s.LocalQueue == "" {
		s.Namespace = ""
	}
	return s
}

// labeled are the samples of a series.
type labeled struct {
	samples
	labels model.Metric
}

// read returns what Prometheus has of a metric, some time before the window and within.
func (q *querier) read(ctx context.Context, metric string, before time.Duration) (map[model.Fingerprint]*labeled, error) {
	out := map[model.Fingerprint]*labeled{}
	of := func(m model.Metric) *labeled {
		id := m.Fingerprint()
		if out[id] == nil {
			out[id] = &labeled{labels: m}
		}
		return out[id]
	}
	query := func(valid time.Duration) string {
		return q.Aggregated("max", ofLedger, "last_over_time", metric, valid)
	}
	first, err := prom.Ask[model.Vector](q.Query(ctx, query(before), q.from))
	if err != nil {
		return nil, err
	}
	for _, s := range first {
		value := float64(s.Value)
		of(s.Metric).before = &value
	}
	matrix, err := prom.Ask[model.Matrix](q.QueryRange(ctx, query(prom.Stale), prometheus.Range{Start: q.from, End: q.to, Step: prom.Step(q.from, q.to)}))
	if err != nil {
		return nil, err
	}
	for _, s := range matrix {
		of(s.Metric).within = points(s.Values)
	}
	return out, nil
}

func points(pairs []model.SamplePair) []sample {
	out := make([]sample, 0, len(pairs))
	for _, p := range pairs {
		out = append(out, sample{p.Timestamp.Time(), float64(p.Value)})
	}
	return out
}
