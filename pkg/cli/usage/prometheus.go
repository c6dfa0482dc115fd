// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/prom"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

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
	w := windowOf(q.from, q.to, began)
	if len(w.began) == 0 {
		return nil, nil, errNoLedger
	}
	var totals []ledger.Total
	for metric, label := range map[string]model.LabelName{metrics.QuotaSeconds.Name: metrics.Phase, metrics.EndedSeconds.Name: metrics.Outcome} {
		all, err := q.read(ctx, metric, w.lookBack())
		if err != nil {
			return nil, nil, err
		}
		for _, s := range all {
			series := seriesOf(s.labels)
			used := s.used(&w)
			if used > 0 && series.LocalQueue == "" && q.namespace != "" {
				return nil, nil, errTogether
			}
			if used > 0 && (q.namespace == "" || q.namespace == series.Namespace) {
				totals = append(totals, ledger.Total{Series: series, Is: string(s.labels[label]), Seconds: used})
			}
		}
	}
	return totals, w.notes(), nil
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

// read returns what Prometheus has of a metric, some time before the window and within.
func (q *querier) read(ctx context.Context, metric string, before time.Duration) ([]*samples, error) {
	all := map[model.Fingerprint]*samples{}
	of := func(m model.Metric) *samples {
		id := m.Fingerprint()
		if all[id] == nil {
			all[id] = &samples{labels: m}
		}
		return all[id]
	}
	query := func(valid time.Duration) string {
		return q.Aggregated("max", ofLedger, "last_over_time", metric, valid)
	}
	first, err := prom.Ask[model.Vector](q.Query(ctx, query(before), q.from))
	if err != nil {
		return nil, err
	}
	for _, s := range first {
		of(s.Metric).before = (*float64)(&s.Value)
	}
	matrix, err := prom.Ask[model.Matrix](q.QueryRange(ctx, query(prom.Stale), prometheus.Range{Start: q.from, End: q.to, Step: prom.Step(q.from, q.to)}))
	if err != nil {
		return nil, err
	}
	for _, s := range matrix {
		of(s.Metric).within = s.Values
	}
	return slices.Collect(maps.Values(all)), nil
}
