// SPDX-License-Identifier: Apache-2.0

// Package prom asks a Prometheus, or what speaks its API, for what it has scraped off the manager.
package prom

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
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

const (
	// Stale is how old a value may be that is taken for that of a moment: so long, no process may lead, or be scraped.
	Stale = 5 * time.Minute
	// looks is how often a window is looked at.
	looks = 500
	// patience is how long one answer may take: Prometheus itself gives a query up after two minutes.
	patience = 150 * time.Second
)

// Flags name a Prometheus.
type Flags struct {
	// URL is empty where none is asked.
	URL string
	// TokenFile has the bearer token; empty: there is none.
	TokenFile string
	// Match are labels of the series of one cluster; none: of all series.
	Match map[string]string
}

// AddTo adds the flags to a command. The purpose says what the Prometheus is asked for, or nothing.
func (f *Flags) AddTo(cmd *cobra.Command, purpose string) {
	cmd.Flags().StringVar(&f.URL, "prometheus", "", "URL of a Prometheus, or of what speaks its API, that scrapes the manager"+purpose)
	cmd.Flags().StringVar(&f.TokenFile, "token-file", "", "file with the bearer token for --prometheus")
	cmd.Flags().StringToStringVar(&f.Match, "match", nil, "labels of the series of this cluster, such as cluster=eu-1, where --prometheus has several clusters")
}

// Check refuses what the flags cannot be.
func (f *Flags) Check() error {
	if f.TokenFile != "" && f.URL == "" {
		return errors.New("--token-file is for --prometheus")
	}
	if len(f.Match) > 0 && f.URL == "" {
		return errors.New("--match is for --prometheus")
	}
	for label, value := range f.Match {
		if !model.LegacyValidation.IsValidLabelName(label) {
			return fmt.Errorf("--match %s=%s: %q is no name of a label", label, value, label)
		}
	}
	return nil
}

// Client asks a Prometheus.
type Client struct {
	prometheus.API
	// match selects the series of one cluster; empty: all of them.
	match string
}

// Client returns one for the flags.
func (f *Flags) Client() (*Client, error) { return f.client(patience) }

func (f *Flags) client(patience time.Duration) (*Client, error) {
	server, err := url.Parse(f.URL)
	if err != nil {
		// Its text has the URL, and that may have a password.
		return nil, errors.New("--prometheus: it is no URL")
	}
	transport := api.DefaultRoundTripper
	if f.TokenFile != "" {
		token, err := os.ReadFile(f.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("--token-file: %w", err)
		}
		transport = withToken{transport, server, strings.TrimSpace(string(token))}
	}
	client, err := api.NewClient(api.Config{Address: f.URL, Client: &http.Client{Transport: transport, Timeout: patience}})
	if err != nil {
		return nil, fmt.Errorf("--prometheus %s: %w", server.Redacted(), err)
	}
	return &Client{API: prometheus.NewAPI(client), match: selector(f.Match)}, nil
}

func selector(match map[string]string) string {
	labels := model.LabelSet{}
	for name, value := range match {
		labels[model.LabelName(name)] = model.LabelValue(value)
	}
	if len(labels) == 0 {
		return ""
	}
	return labels.String()
}

// Aggregated is the query for what a function tells of the series of a metric within a time, aggregated by labels.
func (c *Client) Aggregated(aggregate, by, function, metric string, within time.Duration) string {
	// Prometheus calls namespace otherwise where the target has a label of that name, unless it is told to honor labels.
	return fmt.Sprintf(`%s by (%s) (label_replace(%s(%s%s[%s]), %q, "$1", "exported_namespace", "(.+)"))`,
		aggregate, by, function, metric, c.match, model.Duration(within), metrics.Namespace)
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

// Ask returns what Prometheus has answered.
func Ask[T model.Value](value model.Value, _ prometheus.Warnings, err error) (answer T, _ error) {
	if refused, ok := errors.AsType[*prometheus.Error](err); ok {
		return answer, fmt.Errorf("Prometheus answers: %s", strings.TrimSpace(refused.Msg+" "+refused.Detail))
	}
	if err != nil {
		// Without the cause: it is no API server that cannot be reached.
		return answer, errors.New("asking Prometheus: " + err.Error())
	}
	answer, ok := value.(T)
	if !ok {
		return answer, fmt.Errorf("Prometheus answers with a %s", value.Type())
	}
	return answer, nil
}

// Step divides a window so that its end is the last look.
func Step(from, to time.Time) time.Duration {
	return max(to.Sub(from)/looks, time.Second).Truncate(time.Millisecond)
}

// ofTarget are labels by which the replicas of one cluster differ, or by which its manager differs
// once it is installed again: they do not tell clusters apart.
var ofTarget = []model.LabelName{
	model.MetricNameLabel, model.InstanceLabel, model.JobLabel,
	"pod", "container", "endpoint", "service", "namespace", "node",
}

// sideBySide is the time in which ledgers that began at different times have to be told to be those of
// several clusters: what is told of one that was lost ends after Stale.
const sideBySide = 30 * time.Minute

// OneCluster returns an error where Prometheus has the ledgers of several clusters in a window: their
// series have the same names, and a bill or a forecast would mix them.
func (c *Client) OneCluster(ctx context.Context, from, to time.Time) error {
	series := metrics.LedgerBegan.Name + c.match
	from = to.Add(-max(to.Sub(from), sideBySide))
	count := fmt.Sprintf(`count(count_values("began", last_over_time(%s[%s])))`, series, model.Duration(Stale))
	ledgers, err := Ask[model.Matrix](c.QueryRange(ctx, count, prometheus.Range{Start: from, End: to, Step: max(Step(from, to), Stale)}))
	if err != nil || !several(ledgers) {
		return err
	}
	began, err := Ask[model.Vector](c.Query(ctx, fmt.Sprintf("last_over_time(%s[%s])", series, model.Duration(to.Sub(from))), to))
	if err != nil {
		return err
	}
	label, values := clusterLabel(began)
	if label == "" {
		return errors.New("it has the ledgers of several clusters, and no label tells them apart")
	}
	return fmt.Errorf("it has the ledgers of several clusters, with label %s %q: choose one with --match %s=%s",
		label, values, label, values[len(values)-1])
}

// several reports whether there was more than one ledger at two looks in a row, by their count.
func several(ledgers model.Matrix) bool {
	for _, series := range ledgers {
		for i, look := range series.Values {
			if i > 0 && look.Value > 1 && series.Values[i-1].Value > 1 {
				return true
			}
		}
	}
	return false
}

// clusterLabel returns a label by which ledgers that began at different times differ, and its values;
// empty where there is none. Every cluster has a ledger with a beginning of its own, whichever
// replicas of Prometheus tell it. Clusters of which only some have the label differ by it, too.
func clusterLabel(began model.Vector) (string, []string) {
	labels := sets.New[model.LabelName]()
	for _, sample := range began {
		labels = labels.Union(sets.KeySet(sample.Metric))
	}
	// In their order, so that the same is said every time.
	for _, label := range sets.List(labels.Delete(ofTarget...)) {
		ledgers, of := sets.New[model.SampleValue](), map[string]sets.Set[model.SampleValue]{}
		for _, sample := range began {
			value := string(sample.Metric[label])
			ledgers.Insert(sample.Value)
			of[value] = of[value].Union(sets.New(sample.Value))
		}
		ofAll := func(some sets.Set[model.SampleValue]) bool { return len(some) == len(ledgers) }
		if !slices.ContainsFunc(slices.Collect(maps.Values(of)), ofAll) {
			return string(label), slices.Sorted(maps.Keys(of))
		}
	}
	return "", nil
}
