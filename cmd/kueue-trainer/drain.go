// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
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
	// bytesPerSender is how much of bodies is taken from one address at a time, and bodyWithin how long one may take: any pod
	// can send them, and many at once would not fit into memory, or keep the API server's out.
	bytesPerSender = 2 * largestBody
	bodyWithin     = 2 * time.Second
)

// drainingServer closes the API server's connections before it stops, each with an answer. A
// server that just stops closes those that are idle, also in the moment in which the API server
// sends a request: that request fails, and with it somebody's write.
type drainingServer struct {
	webhook.Server
	// gate is for every request.
	gate     *heap.Gate
	senders  senders
	stopping atomic.Bool
}

func newDrainingServer(server webhook.Server, scarce func() bool) *drainingServer {
	return &drainingServer{Server: server, gate: heap.NewGate(webhooksAtATime, scarce), senders: senders{of: map[string]*sender{}}}
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
		_ = control.SetWriteDeadline(until)
		if err := s.serve(ctx, control, hook, w, req); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}))
}

// serve has a request pass the gate with all of its body: whoever does not send it keeps nobody else out.
func (s *drainingServer) serve(ctx context.Context, control *http.ResponseController, hook http.Handler, w http.ResponseWriter, req *http.Request) error {
	size := req.ContentLength
	if size < 0 || size > largestBody {
		size = largestBody
	}
	taken, err := s.senders.take(ctx, req.RemoteAddr, size)
	if err != nil {
		return err
	}
	defer taken()
	_ = control.SetReadDeadline(time.Now().Add(bodyWithin))
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

// senders bound what is taken from each address at a time.
type senders struct {
	mu sync.Mutex
	of map[string]*sender
}

type sender struct {
	*semaphore.Weighted
	requests int
}

// take waits until so many bytes of an address are taken, and returns how to give them back.
func (s *senders) take(ctx context.Context, address string, bytes int64) (back func(), err error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	s.mu.Lock()
	from := s.of[host]
	if from == nil {
		from = &sender{Weighted: semaphore.NewWeighted(bytesPerSender)}
		s.of[host] = from
	}
	from.requests++
	s.mu.Unlock()
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if from.requests--; from.requests == 0 {
			delete(s.of, host)
		}
	}
	if err := from.Acquire(ctx, bytes); err != nil {
		leave()
		return nil, err
	}
	return func() {
		from.Release(bytes)
		leave()
	}, nil
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
