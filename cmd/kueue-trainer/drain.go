// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
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

const (
	// webhooksAtATime is how many requests are answered at a time while memory is scarce.
	webhooksAtATime = 2
	// largestBody is the largest that controller-runtime reads.
	largestBody = 7 << 20
	// smallBody is more than nearly all requests have. Any pod can send larger ones, and many at once would not fit into
	// memory: largeAtATime are taken, those among them that do not say how long they are.
	smallBody    = 256 << 10
	largeAtATime = 4
)

// drainingServer closes the API server's connections before it stops, each with an answer. A
// server that just stops closes those that are idle, also in the moment in which the API server
// sends a request: that request fails, and with it somebody's write.
type drainingServer struct {
	webhook.Server
	// gate is for every request, large for those with a large body.
	gate, large *heap.Gate
	stopping    atomic.Bool
}

func newDrainingServer(server webhook.Server, scarce func() bool) *drainingServer {
	return &drainingServer{
		Server: server,
		gate:   heap.NewGate(webhooksAtATime, scarce),
		large:  heap.NewGate(largeAtATime, func() bool { return true }),
	}
}

// Register implements webhook.Server.
func (s *drainingServer) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if s.stopping.Load() {
			w.Header().Set("Connection", "close")
		}
		until := time.Now().Add(patienceOf(req))
		ctx, cancel := context.WithDeadline(req.Context(), until)
		defer cancel()
		// Of this request alone: net/http takes them back.
		control := http.NewResponseController(w)
		_, _ = control.SetReadDeadline(until), control.SetWriteDeadline(until)
		if err := s.serve(ctx, hook, w, req); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}))
}

// serve has a request pass the gate with all of its body: whoever does not send it keeps nobody out.
func (s *drainingServer) serve(ctx context.Context, hook http.Handler, w http.ResponseWriter, req *http.Request) error {
	if req.ContentLength < 0 || req.ContentLength > smallBody {
		leave, err := s.large.Pass(ctx)
		if err != nil {
			return err
		}
		defer leave()
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, largestBody))
	if err != nil {
		return fmt.Errorf("reading the request: %w", err)
	}
	leave, err := s.gate.Pass(ctx)
	if err != nil {
		return err
	}
	defer leave()
	req.Body = io.NopCloser(bytes.NewReader(body))
	hook.ServeHTTP(w, req)
	return nil
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
