// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration"
	"github.com/kueue-trainer/kueue-trainer/pkg/version"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// extraPages is a manager that is asked for nothing but pages and probes.
type extraPages struct {
	ctrl.Manager
	paths  []string
	checks map[string]healthz.Checker
}

func (m *extraPages) AddHealthzCheck(string, healthz.Checker) error { return nil }

func (m *extraPages) AddReadyzCheck(name string, check healthz.Checker) error {
	m.checks[name] = check
	return nil
}

func (m *extraPages) Elected() <-chan struct{} { return nil }

func (m *extraPages) AddMetricsServerExtraHandler(path string, _ http.Handler) error {
	m.paths = append(m.paths, path)
	return nil
}

func TestDebugPages(t *testing.T) {
	type row struct {
		secure, pprof bool
		want          []string
	}
	expect.Rows(t, map[string]row{
		"it is asked who comes": {secure: true, want: []string{"/debug/health"}},
		"profiles": {secure: true, pprof: true, want: []string{
			"/debug/health", "/debug/pprof/", "/debug/pprof/cmdline", "/debug/pprof/profile", "/debug/pprof/symbol", "/debug/pprof/trace",
		}},
		"nobody is asked": {},
	}, func(t *testing.T, tc row) {
		cfg := &managerconfig.Configuration{Metrics: managerconfig.Metrics{SecureServing: &tc.secure, Pprof: tc.pprof}}
		mgr := &extraPages{}
		expect.NoError(t, addDebugPages(mgr, cfg, &readiness{}))
		slices.Sort(mgr.paths)
		expect.Same(t, "Unexpected pages", tc.want, mgr.paths)
	})
}

// Anybody may ask the probes, and as often as he likes.
func TestProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		ready := &readiness{setUp: make(chan struct{}), webhooks: func() healthz.Checker {
			return func(*http.Request) error {
				dials++
				return errors.New("10.0.0.7:9443 refused the connection")
			}
		}}
		close(ready.setUp)
		mgr := &extraPages{checks: map[string]healthz.Checker{}}
		expect.NoError(t, addProbes(mgr, ready))
		for i := range 3 {
			for range 100 {
				expect.Same(t, "Unexpected reason", "see /debug/health", expect.Text(mgr.checks["webhooks-served"](nil)))
			}
			expect.Same(t, "Unexpected connections", i+1, dials)
			expect.Pass(time.Second)
		}
	})
}

func TestHealthPage(t *testing.T) {
	ok := func(*http.Request) error { return nil }
	twice := func(*http.Request) error { return errors.New("two integrations for TrainJobs") }
	build := "\nversion: " + version.Get().String() + "\n"
	const waits = " failed: still waiting for the serving certificate or for the caches\n"
	type row struct {
		setUp, leads bool
		inTreeOff    healthz.Checker
		wantCode     int
		want         string
	}
	expect.Rows(t, map[string]row{
		"it starts": {
			inTreeOff: ok, wantCode: http.StatusServiceUnavailable,
			want: "[-]webhooks-served" + waits + "[-]in-tree-integration-off" + waits + "[-]in-tree-integration-known" + waits + "[-]trainer-generation-known" + waits +
				build + "leader: false\n",
		},
		"it is ready": {
			setUp: true, leads: true, inTreeOff: ok, wantCode: http.StatusOK,
			want: "[+]webhooks-served ok\n[+]in-tree-integration-off ok\n[+]in-tree-integration-known ok\n[+]trainer-generation-known ok\n" +
				build + "leader: true\nTrainer: 2.3\n",
		},
		"it stands aside": {
			setUp: true, inTreeOff: twice, wantCode: http.StatusServiceUnavailable,
			want: "[+]webhooks-served ok\n[-]in-tree-integration-off failed: two integrations for TrainJobs\n[+]in-tree-integration-known ok\n[+]trainer-generation-known ok\n" +
				build + "leader: false\nTrainer: 2.3\n",
		},
	}, func(t *testing.T, tc row) {
		ready := &readiness{setUp: make(chan struct{}), webhooks: func() healthz.Checker { return ok }}
		if tc.setUp {
			ready.checks = &integration.Checks{InTreeOff: tc.inTreeOff, InTreeKnown: ok, TrainerKnown: ok, Facts: func() []string { return []string{"Trainer: 2.3"} }}
			close(ready.setUp)
		}
		leads := make(chan struct{})
		if tc.leads {
			close(leads)
		}
		answer := httptest.NewRecorder()
		ready.page(leads)(answer, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/debug/health", http.NoBody))
		expect.Same(t, "Unexpected status", tc.wantCode, answer.Code)
		expect.Same(t, "Unexpected page", tc.want, answer.Body.String())
	})
}
