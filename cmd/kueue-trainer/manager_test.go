// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
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

// What thousands of jobs are told at once would have the leader lose it, and the next one, which tells all of it again.
func TestTheLeaseWaitsBehindNoOtherRequest(t *testing.T) {
	cfg := &managerconfig.Configuration{}
	managerconfig.Default(cfg)
	config := &rest.Config{}
	limit(config, cfg)
	expect.That(t, config.RateLimiter != nil, "Requests are not limited")
	lease := managerOptions(cfg, config, nil, nil).LeaderElectionConfig
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

const (
	here   = "github.com/kueue-trainer/kueue-trainer/"
	runner = "k8s.io/cli-runtime/pkg/"
)

// shared are packages of the plugin that uninstall is made of, which this binary brings as well.
var shared = map[string]bool{
	here + "pkg/cli/handback": true, here + "pkg/cli/installed": true, here + "pkg/cli/uninstall": true, runner + "genericiooptions": true,
}

// pluginOnly are the beginnings of what only the plugin needs.
var pluginOnly = []string{
	here + "pkg/cli/", here + "pkg/forecast", here + "pkg/kueuelib/scheduler", here + "pkg/patch/convert",
	here + "pkg/patch/provenance", here + "pkg/patch/rules", here + "pkg/releases", runner, "sigs.k8s.io/kustomize/", "k8s.io/kubectl/",
}

func TestLinksNothingOfThePluginAlone(t *testing.T) {
	list := exec.Command("go", "list", "-deps", ".")
	found := strings.Fields(string(expect.Must(list.Output())(t)))
	expect.Need(t, len(found) > 1000, "Only %d packages are linked: this looks at something else than the manager", len(found))
	for _, path := range found {
		for _, beginning := range pluginOnly {
			expect.That(t, shared[path] || !strings.HasPrefix(path, beginning), "The manager links %s, which only the plugin needs", path)
		}
	}
}
