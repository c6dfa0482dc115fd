// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/pprof"
	"path/filepath"
	"strings"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kueue-trainer/kueue-trainer/pkg/certificates"
	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/pkg/version"
)

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
