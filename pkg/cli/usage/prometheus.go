// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
var ofLedger = strings.Join(append(slices.Clone(metrics.QuotaSeconds.Labels), metrics.Outcome), ", ")

type querier struct {
	*prom.Client
	from, to time.Time
	// namespace is that of the LocalQueues to look at; empty: all of them.
	namespace string
}

// bill returns what was used by phase and outcome, and what of it is not known.
func (q *querier) bill(ctx context.Context) ([]ledger.Total, []string, error) {
	if err := q.OneCluster(ctx, q.from, q.to); err != nil {
		return nil, nil, err
	}
	began, err := q.read(ctx, metrics.LedgerBegan.Name, before, 0)
	if err != nil {
		return nil, nil, err
	}
	w := windowOf(q.from, q.to, began)
	if len(w.began) == 0 {
		return nil, nil, errors.New("it has no series of the ledger for this time: check that it scrapes the manager, and --since")
	}
	// So long before the end all values are of one ledger.
	ofOne := w.to.Sub(w.began[len(w.began)-1]) - prom.Stale
	var totals []ledger.Total
	for metric, label := range map[string]model.LabelName{metrics.QuotaSeconds.Name: metrics.Phase, metrics.EndedSeconds.Name: metrics.Outcome} {
		all, err := q.read(ctx, metric, w.lookBack(), ofOne)
		if err != nil {
			return nil, nil, err
		}
		for _, s := range all {
			series := seriesOf(s.labels)
			used := s.used(&w)
			if used > 0 && series.LocalQueue == "" && q.namespace != "" {
				return nil, nil, errors.New("the manager puts LocalQueues together (metrics.localQueueLabels: false), so it has no bill of one namespace: leave -n out")
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

// read returns what Prometheus has of a metric, some time before the window and within. The last look may find nothing where
// nobody was scraped just then: the last value after the look before it is taken, if that is no older than last.
func (q *querier) read(ctx context.Context, metric string, before, last time.Duration) ([]*samples, error) {
	all := map[model.Fingerprint]*samples{}
	of := func(m model.Metric) *samples {
		id := m.Fingerprint()
		all[id] = cmp.Or(all[id], &samples{labels: m})
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
	if last = min(last, prom.Step(q.from, q.to)); last > prom.Stale {
		end, err := prom.Ask[model.Vector](q.Query(ctx, query(last), q.to))
		if err != nil {
			return nil, err
		}
		for _, s := range end {
			of(s.Metric).within = append(of(s.Metric).within, model.SamplePair{Timestamp: model.TimeFromUnixNano(q.to.UnixNano()), Value: s.Value})
		}
	}
	return slices.Collect(maps.Values(all)), nil
}

type samples struct {
	labels model.Metric
	// before is its last value before the window; nil where it has none.
	before *float64
	// within are its values within, in the order of time.
	within []model.SamplePair
}

// window is a time that is asked for, and what Prometheus knows of the ledger in it.
type window struct {
	from, to time.Time
	// began are when the ledger did, once or again after it was lost, in the order of time.
	began []time.Time
	// known is whether Prometheus knew the ledger before the window, and first since when it knows it within.
	known bool
	first time.Time
}

// windowOf reads the series whose values are when the ledger began, in seconds since 1970.
func windowOf(from, to time.Time, began []*samples) window {
	w := window{from: from, to: to, first: to}
	note := func(seconds float64) { w.began = append(w.began, time.UnixMilli(int64(seconds*1000))) }
	for _, s := range began {
		if s.before != nil {
			w.known, w.first = true, from
			note(*s.before)
		}
		for _, p := range s.within {
			note(float64(p.Value))
			if at := p.Timestamp.Time(); at.Before(w.first) {
				w.first = at
			}
		}
	}
	slices.SortFunc(w.began, time.Time.Compare)
	w.began = slices.CompactFunc(w.began, time.Time.Equal)
	return w
}

// fresh is whether what the ledger has at the first look was used in the window.
func (w *window) fresh() bool { return w.known || !w.began[0].Before(w.from) }

// before is how old a value may be that is taken for that with which a window begins, unless the ledger began since.
const before = 24 * time.Hour

// lookBack is how long before the window its beginning is looked for: not where a former ledger was still told,
// whose totals are others.
func (w *window) lookBack() time.Duration {
	back := before
	for _, at := range w.began {
		if since := w.from.Sub(at); since >= 0 {
			// A range of 0 is none.
			back = min(back, max(since, time.Millisecond))
		}
	}
	return back
}

// epoch is a time in which the ledger's counters only grow.
type epoch struct{ from, to time.Time }

// epochs splits the window where the ledger began again at 0. A value is valid until prom.Stale after it was
// read: so long, those of the former epoch may be taken for it, also where the ledger began just before the window.
func (w *window) epochs() []epoch {
	out := []epoch{{w.from, w.to}}
	for i, at := range w.began {
		valid := at.Add(prom.Stale)
		switch {
		case !at.After(w.from):
			if valid.After(w.from) {
				out[0].from = valid
			}
		case i > 0 || w.known:
			out[len(out)-1].to = at
			out = append(out, epoch{valid, w.to})
		}
	}
	return out
}

// used returns how much a counter grew in all epochs. A counter is the total of a ledger, whoever tells it: what counts is
// the difference, and where another process tells a moment later a bit less, that is no new beginning.
func (s *samples) used(w *window) float64 {
	sum, epochs := 0.0, w.epochs()
	for i, e := range epochs {
		base := 0.0
		if i == 0 {
			base = s.base(w)
		}
		top := base
		for _, p := range s.within {
			at := p.Timestamp.Time()
			if !at.Before(e.from) && (at.Before(e.to) || i == len(epochs)-1) {
				top = max(top, float64(p.Value))
			}
		}
		sum += top - base
	}
	return sum
}

// base is what the counter had when the window began. One that began later began at 0, unless the
// ledger itself was not known until first.
func (s *samples) base(w *window) float64 {
	switch {
	case s.before != nil:
		return *s.before
	case w.fresh() || len(s.within) == 0 || s.within[0].Timestamp.Time().After(w.first):
		return 0
	}
	return float64(s.within[0].Value)
}

func (w *window) notes() []string {
	var out []string
	if !w.fresh() && w.first.After(w.from) {
		out = append(out, fmt.Sprintf("Prometheus knows the ledger since %s only; what was used before is not in the bill", w.first.UTC().Format(time.RFC3339)))
	}
	for _, e := range w.epochs()[1:] {
		out = append(out, fmt.Sprintf("the ledger was lost and began again at 0 about %s; what was used just before may not be in the bill", e.from.UTC().Format(time.RFC3339)))
	}
	return out
}
