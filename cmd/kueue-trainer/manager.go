// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/kueue-trainer/kueue-trainer/pkg/certificates"
	"github.com/kueue-trainer/kueue-trainer/pkg/cli/installed"
	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/caches"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/version"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
)

func managerOptions(cfg *managerconfig.Configuration, config *rest.Config, certificate served, scarce func() bool) ctrl.Options {
	le := cfg.LeaderElection
	return ctrl.Options{
		Scheme: installed.Scheme(),
		Cache: cache.Options{
			DefaultTransform: caches.Compact,
			ByObject:         caches.ByObject(),
		},
		Metrics:                       metricsOptions(cfg),
		WebhookServer:                 newDrainingServer(webhook.NewServer(webhookOptions(cfg, certificate)), scarce),
		HealthProbeBindAddress:        cfg.Health.HealthProbeBindAddress,
		ReadinessEndpointName:         cfg.Health.ReadinessEndpointName,
		LivenessEndpointName:          cfg.Health.LivenessEndpointName,
		LeaderElection:                *le.LeaderElect,
		LeaderElectionConfig:          unlimited(config),
		LeaderElectionResourceLock:    le.ResourceLock,
		LeaderElectionNamespace:       le.ResourceNamespace,
		LeaderElectionID:              le.ResourceName,
		LeaseDuration:                 &le.LeaseDuration.Duration,
		RenewDeadline:                 &le.RenewDeadline.Duration,
		RetryPeriod:                   &le.RetryPeriod.Duration,
		LeaderElectionReleaseOnCancel: true,
	}
}

func metricsOptions(cfg *managerconfig.Configuration) metricsserver.Options {
	options := metricsserver.Options{BindAddress: cfg.Metrics.BindAddress}
	if *cfg.Metrics.SecureServing {
		options.SecureServing = true
		options.FilterProvider = authorized
		options.TLSOpts = []func(*tls.Config){withoutHTTP2}
	}
	return options
}

// authorized asks the API server about everybody who comes, at a rate of its own: else whoever sends
// tokens that are none would have the manager's requests wait.
func authorized(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
	own := rest.CopyConfig(config)
	own.RateLimiter, own.QPS, own.Burst = nil, 10, 20
	return filters.WithAuthenticationAndAuthorization(own, client)
}

func webhookOptions(cfg *managerconfig.Configuration, certificate served) webhook.Options {
	return webhook.Options{
		Host:    cfg.Webhook.Host,
		Port:    *cfg.Webhook.Port,
		TLSOpts: []func(*tls.Config){withoutHTTP2, func(c *tls.Config) { c.GetCertificate = certificate }},
	}
}

// withoutHTTP2 keeps the servers out of HTTP/2's stream-reset attacks.
func withoutHTTP2(c *tls.Config) { c.NextProtos = []string{"http/1.1"} }

// newCertificates returns the certificates that the manager makes for itself, or nil where
// somebody else brings them as files.
func newCertificates(cfg *managerconfig.Configuration) *certificates.Certificates {
	if !*cfg.InternalCertManagement.Enable {
		return nil
	}
	return certificates.New(certificates.Options{
		Secret:   types.NamespacedName{Namespace: cfg.Namespace, Name: *cfg.InternalCertManagement.WebhookSecretName},
		DNSNames: []string{fmt.Sprintf("%s.%s.svc", *cfg.InternalCertManagement.WebhookServiceName, cfg.Namespace)},
		Webhooks: webhookconfig.Installed,
	})
}

// readiness of the manager: checks count once setUp is closed.
type readiness struct {
	setUp  chan struct{}
	checks *integration.Checks
	// webhooks returns what fails while they are not served. To ask for it starts their server.
	webhooks func() healthz.Checker
}

type namedCheck struct {
	name    string
	checker healthz.Checker
}

// list makes ready mean: certificates and caches are there, webhooks are served, nobody else
// integrates TrainJobs, and the Trainer that is installed is one we know.
func (r *readiness) list() []namedCheck {
	return []namedCheck{
		{"webhooks-served", r.after(r.webhooks)},
		{"in-tree-integration-off", r.after(func() healthz.Checker { return r.checks.InTreeOff })},
		{"in-tree-integration-known", r.after(func() healthz.Checker { return r.checks.InTreeKnown })},
		{"trainer-generation-known", r.after(func() healthz.Checker { return r.checks.TrainerKnown })},
	}
}

// addProbes serves the checks. It tells anybody names of failed ones, no more; page tells why.
func addProbes(mgr ctrl.Manager, ready *readiness) error {
	if err := mgr.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	for _, check := range ready.list() {
		fails := func(req *http.Request) error {
			if check.checker(req) != nil {
				return errors.New("see /debug/health")
			}
			return nil
		}
		if err := mgr.AddReadyzCheck(check.name, fails); err != nil {
			return fmt.Errorf("adding readiness check %s: %w", check.name, err)
		}
	}
	return nil
}

// checkLasts is how long one result of a check will do: anybody may ask, and each time would be a
// connection to the webhooks.
const checkLasts = 500 * time.Millisecond

// after makes a check count once everything is set up.
func (r *readiness) after(check func() healthz.Checker) healthz.Checker {
	var mu sync.Mutex
	var checked time.Time
	var result error
	return func(req *http.Request) error {
		if !isClosed(r.setUp) {
			return errors.New("still waiting for the serving certificate or for the caches")
		}
		mu.Lock()
		defer mu.Unlock()
		if time.Since(checked) >= checkLasts {
			result = check()(req)
			checked = time.Now()
		}
		return result
	}
}

// served returns the certificate that the webhooks are served with now.
type served func(*tls.ClientHelloInfo) (*tls.Certificate, error)

// servingCertificate returns where the serving certificate comes from: from certs or, where that is
// nil, from files that somebody else brings, which the watcher follows.
func servingCertificate(cfg *managerconfig.Configuration, certs *certificates.Certificates) (served, *certwatcher.CertWatcher, error) {
	if certs != nil {
		return certs.Get, nil, nil
	}
	dir := cfg.Webhook.CertDir
	files, err := certwatcher.New(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"))
	if err != nil {
		return nil, nil, fmt.Errorf("reading the serving certificate of the webhooks in %s: %w", dir, err)
	}
	return files.GetCertificate, files, nil
}

// newRecorder returns what records the metrics of this process, which are served with those of
// controller-runtime.
func newRecorder(cfg *managerconfig.Configuration, certificate served) *metrics.Recorder {
	recorder := metrics.NewRecorder(ctrlmetrics.Registry, metrics.QueueLabels{LocalQueues: *cfg.Metrics.LocalQueueLabels})
	build := version.Get()
	recorder.Register(metrics.NewScraped(func(tell metrics.Tell) {
		tell(metrics.BuildInfo, 1, build.Version, build.Revision, build.Go)
		if serving, err := certificate(nil); err == nil {
			tell(metrics.CertificateExpiry, float64(serving.Leaf.NotAfter.Unix()))
		}
	}, metrics.BuildInfo, metrics.CertificateExpiry))
	return recorder
}

// addDebugPages serves what an admin looks at when something is wrong, beside the metrics and for
// whom the API server lets get these URLs. Where it is not asked who they are, there are none.
func addDebugPages(mgr ctrl.Manager, cfg *managerconfig.Configuration, ready *readiness) error {
	if !*cfg.Metrics.SecureServing {
		return nil
	}
	pages := map[string]http.HandlerFunc{"/debug/health": ready.page(mgr.Elected())}
	if cfg.Metrics.Pprof {
		pages["/debug/pprof/"] = pprof.Index
		pages["/debug/pprof/cmdline"] = pprof.Cmdline
		pages["/debug/pprof/profile"] = pprof.Profile
		pages["/debug/pprof/symbol"] = pprof.Symbol
		pages["/debug/pprof/trace"] = pprof.Trace
	}
	for path, page := range pages {
		if err := mgr.AddMetricsServerExtraHandler(path, page); err != nil {
			return fmt.Errorf("adding page %s: %w", path, err)
		}
	}
	return nil
}

// page tells all checks with their reasons, which probes do not tell, and what this replica goes by.
func (r *readiness) page(leads <-chan struct{}) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		var out strings.Builder
		failed := false
		for _, check := range r.list() {
			if err := check.checker(req); err != nil {
				failed = true
				fmt.Fprintf(&out, "[-]%s failed: %v\n", check.name, err)
			} else {
				fmt.Fprintf(&out, "[+]%s ok\n", check.name)
			}
		}
		fmt.Fprintf(&out, "\nversion: %s\n", version.Get())
		fmt.Fprintf(&out, "leader: %t\n", isClosed(leads))
		if isClosed(r.setUp) {
			for _, fact := range r.checks.Facts() {
				fmt.Fprintln(&out, fact)
			}
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if failed {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = fmt.Fprint(w, out.String())
	}
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}
