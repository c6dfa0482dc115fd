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
)

// A server that is to stop answers for a while, and every answer is the last of its connection.
func TestDraining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &servingUntilDone{}
		s := &drainingServer{Server: inner}
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
			if err := s.Start(ctx); err != nil {
				t.Error(err)
			}
			ended <- time.Since(began)
		}()
		synctest.Wait()
		if closes() {
			t.Error("A connection is closed before the server is to stop")
		}
		stop()
		synctest.Wait()
		if !closes() {
			t.Error("A connection stays open though the server is about to stop")
		}
		if after := <-ended; after != drainPeriod {
			t.Errorf("Stopped after %s, want %s", after, drainPeriod)
		}
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
