// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"

	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	managerconfig "github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration"
	"github.com/kueue-trainer/kueue-trainer/pkg/patch"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// The webhook configurations as config/webhook names them.
const (
	mutatingConfiguration   = "kueue-trainer-mutating-webhook-configuration"
	validatingConfiguration = "kueue-trainer-validating-webhook-configuration"
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

func managerOptions(cfg *managerconfig.Configuration) (ctrl.Options, error) {
	scheme, err := newScheme()
	if err != nil {
		return ctrl.Options{}, err
	}
	cached, err := cachedObjects()
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
		WebhookServer:                 webhook.NewServer(webhookOptions(cfg)),
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

// cachedObjects limits the caches to what the manager looks at: Jobs of JobSets, pods
// with the gate, the one CRD whose defaults PodSets get; of Workloads and JobSets, which
// no selector tells apart, the bare names of those that are not TrainJobs'.
func cachedObjects() (map[client.Object]cache.ByObject, error) {
	ofJobSets, err := labels.NewRequirement(jobsetapi.JobSetNameKey, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	return map[client.Object]cache.ByObject{
		&batchv1.Job{}:      {Label: labels.NewSelector().Add(*ofJobSets), Transform: integration.TrimJob},
		&jobsetapi.JobSet{}: {Transform: integration.TrimJobSet},
		&kueue.Workload{}:   {Transform: integration.TrimWorkload},
		&corev1.Pod{}:       {Label: labels.SelectorFromSet(labels.Set{patch.GatedLabel: "true"})},
		&apiextensionsv1.CustomResourceDefinition{}: {
			Field: fields.OneTermEqualSelector("metadata.name", integration.WorkloadCRD),
		},
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

func webhookOptions(cfg *managerconfig.Configuration) webhook.Options {
	return webhook.Options{
		Host:    cfg.Webhook.Host,
		Port:    *cfg.Webhook.Port,
		CertDir: cfg.Webhook.CertDir,
		TLSOpts: []func(*tls.Config){withoutHTTP2},
	}
}

// withoutHTTP2 keeps the servers out of HTTP/2's stream-reset attacks.
func withoutHTTP2(c *tls.Config) {
	c.NextProtos = []string{"http/1.1"}
}

// manageCertificates gives a channel that closes when serving certificates are there.
func manageCertificates(mgr ctrl.Manager, cfg *managerconfig.Configuration) (chan struct{}, error) {
	ready := make(chan struct{})
	if !*cfg.InternalCertManagement.Enable {
		close(ready)
		return ready, nil
	}
	service := *cfg.InternalCertManagement.WebhookServiceName
	err := rotator.AddRotator(mgr, &rotator.CertRotator{
		SecretKey:      types.NamespacedName{Namespace: cfg.Namespace, Name: *cfg.InternalCertManagement.WebhookSecretName},
		CertDir:        cfg.Webhook.CertDir,
		CAName:         "kueue-trainer-ca",
		CAOrganization: "kueue-trainer",
		DNSName:        fmt.Sprintf("%s.%s.svc", service, cfg.Namespace),
		IsReady:        ready,
		Webhooks: []rotator.WebhookInfo{
			{Type: rotator.Mutating, Name: mutatingConfiguration},
			{Type: rotator.Validating, Name: validatingConfiguration},
		},
		// Every replica serves webhooks, so every replica needs the files.
		RequireLeaderElection: false,
	})
	if err != nil {
		return nil, fmt.Errorf("setting up certificate rotation: %w", err)
	}
	return ready, nil
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
		"webhooks-served":          func() healthz.Checker { return mgr.GetWebhookServer().StartedChecker() },
		"in-tree-integration-off":  func() healthz.Checker { return ready.checks.InTreeOff },
		"trainer-generation-known": func() healthz.Checker { return ready.checks.TrainerKnown },
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
