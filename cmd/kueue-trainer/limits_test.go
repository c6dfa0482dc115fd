// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// What thousands of jobs are told at once would have the leader lose it, and the next one, which tells all of it again.
func TestTheLeaseWaitsBehindNoOtherRequest(t *testing.T) {
	cfg := &managerconfig.Configuration{}
	managerconfig.Default(cfg)
	config := &rest.Config{}
	limit(config, cfg)
	expect.That(t, config.RateLimiter != nil, "Requests are not limited")
	options := expect.Must(managerOptions(cfg, config, nil, nil))(t)
	lease := options.LeaderElectionConfig
	expect.That(t, lease.RateLimiter == nil && lease.QPS < 0, "The lease waits for %v, %v requests a second", lease.RateLimiter, lease.QPS)
}

// Anybody may send tokens, and has the API server asked about each.
func TestNoRequestWaitsBehindTokens(t *testing.T) {
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	cfg := &managerconfig.Configuration{}
	managerconfig.Default(cfg)
	config := &rest.Config{Host: server.URL, RateLimiter: &requests{RateLimiter: flowcontrol.NewFakeAlwaysRateLimiter()}}
	filter := expect.Must(metricsOptions(cfg).FilterProvider(config, server.Client()))(t)
	handler := expect.Must(filter(logr.Discard(), http.NotFoundHandler()))(t)
	for _, token := range []string{"one", "another"} {
		req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", http.NoBody)
		req.Header.Set("Authorization", "Bearer "+token)
		handler.ServeHTTP(httptest.NewRecorder(), req)
	}
	expect.Same(t, "Unexpected requests about tokens", 2, asked)
	expect.Same(t, "Unexpected requests among the manager's", 0, config.RateLimiter.(*requests).waited)
}

// requests counts those that wait.
type requests struct {
	flowcontrol.RateLimiter
	waited int
}

func (r *requests) Wait(context.Context) error {
	r.waited++
	return nil
}
