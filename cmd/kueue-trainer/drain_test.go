// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/kueue-trainer/kueue-trainer/pkg/heap"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// A server that is to stop answers for a while, and every answer is the last of its connection.
func TestDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &servingUntilDone{}
		s := &drainingServer{Server: inner, gate: heap.NewGate(1, func() bool { return true })}
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
			inner, gate := &servingUntilDone{}, heap.NewGate(1, func() bool { return true })
			leave := expect.Must(gate.Pass(t.Context()))(t)
			defer leave()
			(&drainingServer{Server: inner, gate: gate}).Register("/", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
				t.Error("A request passed that has no place")
			}))
			answer, began := httptest.NewRecorder(), time.Now()
			inner.hook.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), http.MethodPost, tc.In, nil))
			expect.Same(t, "Unexpected time and answer", []any{tc.Want, http.StatusServiceUnavailable}, []any{time.Since(began), answer.Code})
		})
	})
}

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
