// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/certificates"
	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/caches"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
)

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, kueue.AddToScheme, jobsetapi.AddToScheme, trainjob.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("building the scheme: %w", err)
		}
	}
	return scheme, nil
}

func managerOptions(cfg *managerconfig.Configuration, certs *certificates.Certificates) (ctrl.Options, error) {
	scheme, err := newScheme()
	if err != nil {
		return ctrl.Options{}, err
	}
	cached, err := caches.ByObject()
	if err != nil {
		return ctrl.Options{}, err
	}
	le := cfg.LeaderElection
	return ctrl.Options{
		Scheme: scheme,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         cached,
		},
		Metrics:                       metricsOptions(cfg),
		WebhookServer:                 &drainingServer{Server: webhook.NewServer(webhookOptions(cfg, certs))},
		HealthProbeBindAddress:        cfg.Health.HealthProbeBindAddress,
		ReadinessEndpointName:         cfg.Health.ReadinessEndpointName,
		LivenessEndpointName:          cfg.Health.LivenessEndpointName,
		PprofBindAddress:              cfg.PprofBindAddress,
		LeaderElection:                *le.LeaderElect,
		LeaderElectionResourceLock:    le.ResourceLock,
		LeaderElectionNamespace:       le.ResourceNamespace,
		LeaderElectionID:              le.ResourceName,
		LeaseDuration:                 &le.LeaseDuration.Duration,
		RenewDeadline:                 &le.RenewDeadline.Duration,
		RetryPeriod:                   &le.RetryPeriod.Duration,
		LeaderElectionReleaseOnCancel: true,
	}, nil
}

func metricsOptions(cfg *managerconfig.Configuration) metricsserver.Options {
	options := metricsserver.Options{BindAddress: cfg.Metrics.BindAddress}
	if *cfg.Metrics.SecureServing {
		options.SecureServing = true
		options.FilterProvider = filters.WithAuthenticationAndAuthorization
		options.TLSOpts = []func(*tls.Config){withoutHTTP2}
	}
	return options
}

func webhookOptions(cfg *managerconfig.Configuration, certs *certificates.Certificates) webhook.Options {
	options := webhook.Options{
		Host:    cfg.Webhook.Host,
		Port:    *cfg.Webhook.Port,
		CertDir: cfg.Webhook.CertDir,
		TLSOpts: []func(*tls.Config){withoutHTTP2},
	}
	if certs != nil {
		options.TLSOpts = append(options.TLSOpts, func(c *tls.Config) { c.GetCertificate = certs.Get })
	}
	return options
}

// withoutHTTP2 keeps the servers out of HTTP/2's stream-reset attacks.
func withoutHTTP2(c *tls.Config) {
	c.NextProtos = []string{"http/1.1"}
}

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
}

// addProbes makes ready mean: certificates and caches are there, webhooks are served,
// nobody else integrates TrainJobs, and the Trainer that is installed is one we know. The server tells names of failed checks, no more.
func addProbes(mgr ctrl.Manager, ready *readiness) error {
	if err := mgr.AddHealthzCheck("healthz", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	checks := map[string]func() healthz.Checker{
		"webhooks-served":           func() healthz.Checker { return mgr.GetWebhookServer().StartedChecker() },
		"in-tree-integration-off":   func() healthz.Checker { return ready.checks.InTreeOff },
		"in-tree-integration-known": func() healthz.Checker { return ready.checks.InTreeKnown },
		"trainer-generation-known":  func() healthz.Checker { return ready.checks.TrainerKnown },
	}
	for name, check := range checks {
		if err := mgr.AddReadyzCheck(name, ready.after(check)); err != nil {
			return fmt.Errorf("adding readiness check %s: %w", name, err)
		}
	}
	return nil
}

// after makes a check count once everything is set up.
func (r *readiness) after(check func() healthz.Checker) healthz.Checker {
	return func(req *http.Request) error {
		select {
		case <-r.setUp:
			return check()(req)
		default:
			return errors.New("still waiting for the serving certificate or for the caches")
		}
	}
}
