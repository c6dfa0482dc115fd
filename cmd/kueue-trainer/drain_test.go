// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// A server that is to stop answers for a while, and every answer is the last of its connection.
func TestDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &servingUntilDone{}
		s := newDrainingServer(inner, func() bool { return true })
		s.Register("/", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		closes := func() bool {
			answer := httptest.NewRecorder()
			inner.hook.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
			return answer.Header().Get("Connection") == "close"
		}
		ctx, stop := context.WithCancel(t.Context())
		began := time.Now()
		ended := make(chan time.Duration)
		go func() {
			err := s.Start(ctx)
			expect.That(t, err == nil, "%v", err)
			ended <- time.Since(began)
		}()
		synctest.Wait()
		expect.That(t, !closes(), "A connection is closed before the server is to stop")
		stop()
		synctest.Wait()
		expect.That(t, closes(), "A connection stays open though the server is about to stop")
		expect.Same(t, "Unexpected time until it stopped", drainPeriod, <-ended)
	})
}

// While memory is scarce, a request that nobody waits for any more leaves its place in line.
func TestPatience(t *testing.T) {
	expect.Rows(t, map[string]expect.Row[string, time.Duration]{
		"the API server says how long it waits":  {In: "/?timeout=10s", Want: 10 * time.Second},
		"nobody says it":                         {In: "/", Want: longestPatience},
		"somebody else than the API server asks": {In: "/?timeout=9000h", Want: longestPatience},
		"it is no time":                          {In: "/?timeout=soon", Want: longestPatience},
	}, func(t *testing.T, tc expect.Row[string, time.Duration]) {
		synctest.Test(t, func(t *testing.T) {
			inner := &servingUntilDone{}
			s := newDrainingServer(inner, func() bool { return true })
			for range webhooksAtATime {
				defer expect.Must(s.gate.Pass(t.Context()))(t)()
			}
			s.Register("/", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Error("A request passed that has no place")
			}))
			answer, began := httptest.NewRecorder(), time.Now()
			inner.hook.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, tc.In, nil))
			expect.Same(t, "Unexpected time and answer", []any{tc.Want, http.StatusServiceUnavailable}, []any{time.Since(began), answer.Code})
		})
	})
}

// Whoever sends half a request, or does not read its answer, keeps nobody out and is not served for ever.
func TestStalledRequests(t *testing.T) {
	post := func(header string) string {
		return "POST /?timeout=10s HTTP/1.1\r\nHost: manager\r\n" + header + "\r\n\r\n"
	}
	const apiServer, pod = "10.0.0.1", "10.1.0.1"
	type row struct {
		stalled string
		// from is who stalls; a pod where it is left out.
		from string
		many int
		// wait is how long the API server waits.
		wait time.Duration
	}
	expect.Rows(t, map[string]row{
		"small bodies do not come":         {stalled: post("Content-Length: 100"), many: 100},
		"large bodies do not come":         {stalled: post("Content-Length: 7000000"), many: 10},
		"nobody knows how much comes":      {stalled: post("Transfer-Encoding: chunked"), many: 10},
		"the API server's own do not come": {stalled: post("Transfer-Encoding: chunked"), from: apiServer, many: 2, wait: bodyWithin},
		"the answer is not read":           {stalled: post("Content-Length: 0"), many: webhooksAtATime, wait: 10 * time.Second},
	}, func(t *testing.T, tc row) {
		synctest.Test(t, func(t *testing.T) {
			inner := webhook.NewServer(webhook.Options{})
			newDrainingServer(inner, func() bool { return true }).Register("/", http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				_, _ = w.Write(make([]byte, 1<<20))
			}))
			listener := make(pipes)
			server := &http.Server{Handler: inner.WebhookMux(), ReadHeaderTimeout: time.Minute}
			go func() { _ = server.Serve(listener) }()
			defer expect.Pass(time.Second)
			defer server.Close()
			for range tc.many {
				conn := listener.dial(cmp.Or(tc.from, pod))
				defer conn.Close()
				expect.Must(io.WriteString(conn, tc.stalled))(t)
			}
			synctest.Wait()
			dials, began := 0, time.Now()
			client := &http.Client{Transport: &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
				dials++
				return listener.dial(apiServer), nil
			}}}
			defer client.CloseIdleConnections()
			ask := func(size int, want time.Duration) {
				t.Helper()
				req := expect.Must(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://manager/?timeout=1m", bytes.NewReader(make([]byte, size))))(t)
				res, err := client.Do(req)
				expect.NoError(t, err)
				defer res.Body.Close()
				expect.Must(io.Copy(io.Discard, res.Body))(t)
				expect.Same(t, "Unexpected time and answer", []any{want, http.StatusOK}, []any{time.Since(began), res.StatusCode})
			}
			ask(100, tc.wait)
			ask(1<<20, tc.wait)
			// The API server goes on with its connection.
			expect.Pass(time.Minute)
			ask(100, tc.wait+time.Minute)
			expect.Same(t, "Unexpected connections", 1, dials)
		})
	})
}

// pipes is a network without sockets, so that time does not pass in it.
type pipes chan net.Conn

func (p pipes) dial(from string) net.Conn {
	client, server := net.Pipe()
	p <- pipe{server, from}
	return client
}

// pipe is a connection of somebody.
type pipe struct {
	net.Conn
	from string
}

func (p pipe) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(p.from), Port: 40000} }

func (p pipes) Accept() (net.Conn, error) {
	conn, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return conn, nil
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// servingUntilDone is a server without a network.
type servingUntilDone struct {
	webhook.Server
	hook http.Handler
}

func (s *servingUntilDone) Register(_ string, hook http.Handler) { s.hook = hook }

func (s *servingUntilDone) Start(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
