// SPDX-License-Identifier: Apache-2.0

package prom

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestTokenStaysWithItsServer(t *testing.T) {
	got := ""
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Authorization") }))
	t.Cleanup(other.Close)
	sent := ""
	first := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent = r.Header.Get("Authorization")
		http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(first.Close)
	token := filepath.Join(t.TempDir(), "token")
	expect.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	flags := Flags{URL: first.URL, TokenFile: token}
	_, err := Ask[model.Vector](expect.Must(flags.Client())(t).Query(t.Context(), "up", time.Now()))
	expect.That(t, err != nil, "Nothing is taken for an answer")
	expect.Same(t, "Unexpected tokens of the server, and of that which it redirects to", []string{"Bearer secret", ""}, []string{sent, got})
}

func TestPrometheusThatNeverAnswersIsGivenUp(t *testing.T) {
	over := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	t.Cleanup(silent.Close)
	t.Cleanup(func() { close(over) })
	flags := Flags{URL: silent.URL}
	_, err := Ask[model.Vector](expect.Must(flags.client(50*time.Millisecond))(t).Query(t.Context(), "up", time.Now()))
	expect.Says(t, err, "Client.Timeout exceeded")
}

func TestPrometheusDoesNotTellPasswords(t *testing.T) {
	for _, address := range []string{"http://ann:secret@host:port", "http://ann:secret@%"} {
		_, err := (&Flags{URL: address}).Client()
		expect.That(t, err != nil && !strings.Contains(err.Error(), "secret"), "Client() = %v, want an error without the password", err)
	}
}

func began(at model.SampleValue, labels ...string) *model.Sample {
	metric := model.Metric{}
	for i := 0; i < len(labels); i += 2 {
		metric[model.LabelName(labels[i])] = model.LabelValue(labels[i+1])
	}
	return &model.Sample{Metric: metric, Value: at}
}

func TestClusterLabel(t *testing.T) {
	type row struct {
		began model.Vector
		label string
		want  []string
	}
	expect.Rows(t, map[string]row{
		"nothing is there":                  {},
		"one cluster, whose leader changed": {began: model.Vector{began(100, "cluster", "a", "pod", "1", "instance", "1"), began(100, "cluster", "a", "pod", "2", "instance", "2")}},
		"one cluster, whose ledger began again in another installation": {began: model.Vector{
			began(100, "cluster", "a", "pod", "1", "namespace", "x", "job", "x"),
			began(200, "cluster", "a", "pod", "2", "namespace", "y", "job", "y"),
		}},
		"one cluster that two Prometheus scrape": {began: model.Vector{began(100, "prometheus_replica", "a"), began(100, "prometheus_replica", "b")}},
		"the same, when the ledger began again": {began: model.Vector{
			began(100, "prometheus_replica", "a"), began(100, "prometheus_replica", "b"), began(200, "prometheus_replica", "a"),
			began(200, "prometheus_replica", "b"),
		}},
		"two clusters": {began: model.Vector{began(100, "cluster", "b", "pod", "1"), began(200, "cluster", "a", "pod", "2")}, label: "cluster", want: []string{"a", "b"}},
		"two clusters, of which one has no label": {began: model.Vector{began(100, "pod", "1"), began(200, "cluster", "a", "pod", "2")},
			label: "cluster", want: []string{"", "a"}},
		"two clusters, the ledger of one began again": {began: model.Vector{
			began(100, "environment", "prod", "cluster", "b"), began(300, "environment", "prod", "cluster", "b"),
			began(200, "environment", "prod", "cluster", "a"),
		}, label: "cluster", want: []string{"a", "b"}},
	}, func(t *testing.T, tc row) {
		label, values := clusterLabel(tc.began)
		expect.Same(t, "Unexpected label", tc.label, label)
		expect.Same(t, "Unexpected values", tc.want, values)
	})
}

func TestSeveral(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[[]model.SampleValue, bool]{
		"nothing is there":           {},
		"one":                        {In: []model.SampleValue{1, 1, 1}},
		"one that began again":       {In: []model.SampleValue{1, 2, 1}},
		"two":                        {In: []model.SampleValue{2, 2, 2}, Want: true},
		"two, of which one is gone":  {In: []model.SampleValue{2, 2, 1}, Want: true},
		"one that began again twice": {In: []model.SampleValue{2, 1, 2, 1}},
	}, func(t *testing.T, tc expect.Row[[]model.SampleValue, bool]) {
		series := &model.SampleStream{}
		for _, count := range tc.In {
			series.Values = append(series.Values, model.SamplePair{Value: count})
		}
		expect.Same(t, "Unexpected answer", tc.Want, several(model.Matrix{series}))
	})
}
