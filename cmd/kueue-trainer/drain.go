// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/kueue-trainer/kueue-trainer/pkg/heap"
)

// drainPeriod is how long webhooks are answered after the manager was told to stop: kube-proxy sends requests here until it
// has heard of that, and changes its rules once a second.
const drainPeriod = 2 * time.Second

// longestPatience is the longest timeout that a webhook may have.
const longestPatience = 30 * time.Second

// drainingServer closes the API server's connections before it stops, each with an answer. A
// server that just stops closes those that are idle, also in the moment in which the API server
// sends a request: that request fails, and with it somebody's write.
type drainingServer struct {
	webhook.Server
	// gate is for every request.
	gate     *heap.Gate
	stopping atomic.Bool
}

// Register implements webhook.Server.
func (s *drainingServer) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if s.stopping.Load() {
			w.Header().Set("Connection", "close")
		}
		ctx, cancel := context.WithTimeout(req.Context(), patienceOf(req))
		defer cancel()
		leave, err := s.gate.Pass(ctx)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		defer leave()
		hook.ServeHTTP(w, req)
	}))
}

// patienceOf returns how long somebody waits for an answer, which the API server says in the URL: a
// connection that it has given up is not seen to be closed before the body is read.
func patienceOf(req *http.Request) time.Duration {
	patience, err := time.ParseDuration(req.URL.Query().Get("timeout"))
	if err != nil || patience <= 0 {
		return longestPatience
	}
	return min(patience, longestPatience)
}

// Start implements manager.Runnable.
func (s *drainingServer) Start(ctx context.Context) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	go func() {
		select {
		case <-serving.Done():
			return
		case <-ctx.Done():
		}
		s.stopping.Store(true)
		select {
		case <-serving.Done():
		case <-time.After(drainPeriod):
		}
		stop()
	}()
	return s.Server.Start(serving)
}
