// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
)

// The manager signs the certificate of its metrics itself.
var anyCertificate = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // see above

// AskManager returns the status and the body of what the manager serves for a purpose, "metrics" or
// "health", to the bearer of a token, or to anybody without one.
func (c *Cluster) AskManager(ctx context.Context, purpose, path, token string) (status int, body string, err error) {
	address, err := c.Address(c.Manager(), purpose)
	if err != nil {
		return 0, "", err
	}
	scheme := "http"
	if purpose == "metrics" {
		scheme = "https"
	}
	return Ask(ctx, fmt.Sprintf("%s://%s%s", scheme, address, path), token)
}

// Ask is AskManager for one replica of a manager.
func Ask(ctx context.Context, url, token string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := anyCertificate.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = response.Body.Close() }()
	data, err := io.ReadAll(response.Body)
	return response.StatusCode, string(data), err
}

// LedgerSeconds adds up what a page of the manager's metrics says of the ledger, in seconds of a resource by phase and
// by outcome, over the series that have the labels of match. A manager that does not lead has none, which is an error.
func LedgerSeconds(page string, match map[string]string) (map[string]float64, error) {
	sums := map[string]float64{}
	for metric, by := range map[string]string{metrics.QuotaSeconds.Name: metrics.Phase, metrics.EndedSeconds.Name: metrics.Outcome} {
		err := EachSeries(page, metric, func(has labels.Set, value float64) {
			if labels.SelectorFromSet(match).Matches(has) {
				sums[has[by]] += value
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return sums, nil
}

// EachSeries hands each series of a metric to do, a histogram's with its count. To have none is an error.
func EachSeries(page, metric string, do func(has labels.Set, value float64)) error {
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		return err
	}
	family, served := families[metric]
	if !served {
		return fmt.Errorf("%s is not served: does this manager lead?", metric)
	}
	for _, series := range family.GetMetric() {
		has := labels.Set{}
		for _, label := range series.GetLabel() {
			has[label.GetName()] = label.GetValue()
		}
		do(has, series.GetCounter().GetValue()+series.GetGauge().GetValue()+float64(series.GetHistogram().GetSampleCount()))
	}
	return nil
}
