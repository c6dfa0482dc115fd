// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
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
	kinds := runtime.NewSchemeBuilder(clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, kueue.AddToScheme, jobsetapi.AddToScheme, trainjob.AddToScheme)
	if err := kinds.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("building the scheme: %w", err)
	}
	return scheme, nil
}

func managerOptions(cfg *managerconfig.Configuration, config *rest.Config, certificate served, scarce func() bool) (ctrl.Options, error) {
	scheme, err := newScheme()
	if err != nil {
		return ctrl.Options{}, err
	}
	le := cfg.LeaderElection
	return ctrl.Options{
		Scheme: scheme,
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
	}, nil
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
