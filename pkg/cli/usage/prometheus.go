// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	prometheus "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

const (
	// looks is how often a window is looked at.
	looks = 500
	// stale is how old a value may be that is taken for that of a moment: so long, no process may
	// lead, or be scraped.
	stale = 5 * time.Minute
	// before is the same for the value with which a window begins, unless the ledger began since.
	before = 24 * time.Hour
)

// ofLedger are the labels that a series of the ledger may have. Whatever else there is tells which
// process was scraped, by whom, and how; the ledger is one, whoever tells it.
var ofLedger = strings.Join([]string{
	metrics.ClusterQueue, metrics.Namespace, metrics.LocalQueue, metrics.Flavor, metrics.Resource,
	metrics.PriorityClass, metrics.User, metrics.Phase, metrics.Outcome,
}, ", ")

// querier asks a Prometheus.
type querier struct {
	api      prometheus.API
	from, to time.Time
	// match selects the series of one cluster; empty: all of them.
	match string
	// namespace is that of the LocalQueues to look at; empty: all of them.
	namespace string
}

// newQuerier returns one for a URL. The token is read from a file, or from nowhere.
func newQuerier(address, tokenFile string, match map[string]string, from, to time.Time, namespace string) (*querier, error) {
	server, err := url.Parse(address)
	if err != nil {
		// Its text has the URL, and that may have a password.
		return nil, errors.New("--prometheus: it is no URL")
	}
	transport := api.DefaultRoundTripper
	if tokenFile != "" {
		token, err := os.ReadFile(tokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		transport = withToken{transport, server, strings.TrimSpace(string(token))}
	}
	client, err := api.NewClient(api.Config{Address: address, RoundTripper: transport})
	if err != nil {
		return nil, fmt.Errorf("--prometheus %s: %w", server.Redacted(), err)
	}
	return &querier{api: prometheus.NewAPI(client), match: selector(match), from: from, to: to, namespace: namespace}, nil
}

// selector selects series by the values of labels; empty where there are none.
func selector(match map[string]string) string {
	if len(match) == 0 {
		return ""
	}
	var matchers []string
	for _, label := range slices.Sorted(maps.Keys(match)) {
		matchers = append(matchers, fmt.Sprintf("%s=%q", label, match[label]))
	}
	return "{" + strings.Join(matchers, ", ") + "}"
}

// withToken sends a token with every request to a server, and nowhere that it redirects to.
type withToken struct {
	http.RoundTripper
	server *url.URL
	token  string
}

// RoundTrip implements http.RoundTripper.
func (t withToken) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != t.server.Scheme || req.URL.Host != t.server.Host {
		return t.RoundTripper.RoundTrip(req)
	}
	req = req.Clone(req.Context())
	req.Header.Set("Authorization", "Bearer "+t.token)
	return t.RoundTripper.RoundTrip(req)
}

// errTogether is why there is no bill of a namespace.
var errTogether = errors.New("the manager puts LocalQueues together (metrics.localQueueLabels: false), so it has no bill of one namespace: leave -n out")

// errNoLedger is why there is no bill.
var errNoLedger = errors.New("it has no series of the ledger for this time: check that it scrapes the manager, and --since")

// bill returns what was used by phase and outcome, and what of it is not known.
func (q *querier) bill(ctx context.Context) ([]ledger.Total, []string, error) {
	if err := q.oneCluster(ctx); err != nil {
		return nil, nil, err
	}
	began, err := q.read(ctx, metrics.LedgerBegan().Name, before)
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
	epochs := epochs(values, known, q.from, q.to, stale)
	fresh := known || !time.UnixMilli(int64(minOf(values)*1000)).Before(q.from)
	var totals []ledger.Total
	for metric, label := range map[string]string{metrics.QuotaSeconds().Name: metrics.Phase, metrics.EndedSeconds().Name: metrics.Outcome} {
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
		// Prometheus calls namespace otherwise where the target has a label of that name, unless it
		// is told to honor labels.
		return fmt.Sprintf(`max by (%s) (label_replace(last_over_time(%s%s[%s]), %q, "$1", "exported_namespace", "(.+)"))`,
			ofLedger, metric, q.match, model.Duration(valid), metrics.Namespace)
	}
	first, err := ask[model.Vector](q.api.Query(ctx, query(before), q.from))
	if err != nil {
		return nil, err
	}
	for _, s := range first {
		value := float64(s.Value)
		of(s.Metric).before = &value
	}
	matrix, err := ask[model.Matrix](q.api.QueryRange(ctx, query(stale), prometheus.Range{Start: q.from, End: q.to, Step: step(q.from, q.to)}))
	if err != nil {
		return nil, err
	}
	for _, s := range matrix {
		of(s.Metric).within = points(s.Values)
	}
	return out, nil
}

// ask returns what Prometheus has answered.
func ask[T model.Value](value model.Value, _ prometheus.Warnings, err error) (answer T, _ error) {
	if err != nil {
		return answer, unanswered(err)
	}
	answer, ok := value.(T)
	if !ok {
		return answer, fmt.Errorf("Prometheus answers with a %s", value.Type())
	}
	return answer, nil
}

// step divides a window so that its end is the last look.
func step(from, to time.Time) time.Duration {
	return max(to.Sub(from)/looks, time.Second).Truncate(time.Millisecond)
}

func points(pairs []model.SamplePair) []sample {
	out := make([]sample, 0, len(pairs))
	for _, p := range pairs {
		out = append(out, sample{p.Timestamp.Time(), float64(p.Value)})
	}
	return out
}

// unanswered says why Prometheus gave no answer.
func unanswered(err error) error {
	if answer, ok := errors.AsType[*prometheus.Error](err); ok {
		return fmt.Errorf("Prometheus answers: %s", strings.TrimSpace(answer.Msg+" "+answer.Detail))
	}
	// Without the cause: it is no API server that cannot be reached.
	return errors.New("asking Prometheus: " + err.Error())
}
