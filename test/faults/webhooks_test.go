// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// webhookFault is how webhooks fare for a while.
type webhookFault string

const (
	webhookDown webhookFault = "down"
	webhookSlow webhookFault = "slow"
)

// webhookDelay is how late a slow webhook answers; the API server waits for 10 s.
const webhookDelay = 2 * time.Second

// insecure reaches webhooks on loopback, whose certificates the API server verifies
// when nobody is in between.
var insecure = &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // see above

// interposer is an endpoint that webhook configurations are pointed at for a while.
type interposer struct {
	h      *harness
	server *httptest.Server

	mu    sync.Mutex
	fault webhookFault
	// targets are the endpoints of before; the first part of a path says which.
	targets []*httputil.ReverseProxy
	calls   int
}

func newInterposer(h *harness) *interposer {
	i := &interposer{h: h}
	i.server = httptest.NewUnstartedServer(http.HandlerFunc(i.serve))
	i.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	i.server.StartTLS()
	return i
}

func (i *interposer) serve(w http.ResponseWriter, r *http.Request) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	number, err := strconv.Atoi(first)
	i.mu.Lock()
	i.calls++
	fault, targets := i.fault, i.targets
	i.mu.Unlock()
	if err != nil || number >= len(targets) || fault == webhookDown {
		http.Error(w, "out of order", http.StatusServiceUnavailable)
		return
	}
	select {
	case <-time.After(webhookDelay):
	case <-r.Context().Done():
		return
	}
	r.URL.Path = "/" + rest
	targets[number].ServeHTTP(w, r)
}

// webhookOwner is whose webhooks are meant.
type webhookOwner string

const (
	ourWebhooks      webhookOwner = "the integration"
	trainersWebhooks webhookOwner = "Trainer"
	jobSetsWebhooks  webhookOwner = "JobSet"
)

// disturb makes the webhooks of an owner down or slow, and gives what puts them back.
func (i *interposer) disturb(ctx context.Context, owner webhookOwner, fault webhookFault) (restore func() error, err error) {
	i.mu.Lock()
	i.fault, i.targets, i.calls = fault, nil, 0
	i.mu.Unlock()
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := i.get(ctx, owner, mutating, validating); err != nil {
		return nil, err
	}
	putBack := []client.Object{mutating.DeepCopy(), validating.DeepCopy()}
	for n := range mutating.Webhooks {
		if w := &mutating.Webhooks[n]; concerns(w.Rules, owner) {
			err = errors.Join(err, i.redirect(&w.ClientConfig))
		}
	}
	for n := range validating.Webhooks {
		if w := &validating.Webhooks[n]; concerns(w.Rules, owner) {
			err = errors.Join(err, i.redirect(&w.ClientConfig))
		}
	}
	if err != nil {
		return nil, err
	}
	if err := i.put(ctx, mutating, validating); err != nil {
		return nil, err
	}
	return func() error { return i.put(context.WithoutCancel(ctx), putBack...) }, nil
}

// names of the configurations of an owner: mutating, validating.
func (i *interposer) names(owner webhookOwner) (mutating, validating string) {
	switch owner {
	case trainersWebhooks:
		return "defaulter.trainer.kubeflow.org", "validator.trainer.kubeflow.org"
	case jobSetsWebhooks:
		return "jobset-mutating-webhook-configuration", "jobset-validating-webhook-configuration"
	}
	return i.h.cluster.Manager() + "-mutating-webhook-configuration", i.h.cluster.Manager() + "-validating-webhook-configuration"
}

// get reads the configurations; Trainer 2.1 has no mutating one, which stays empty.
func (i *interposer) get(ctx context.Context, owner webhookOwner, mutating, validating client.Object) error {
	m, v := i.names(owner)
	err := i.h.cluster.Client.Get(ctx, client.ObjectKey{Name: m}, mutating)
	if err != nil && (owner != trainersWebhooks || !apierrors.IsNotFound(err)) {
		return err
	}
	return i.h.cluster.Client.Get(ctx, client.ObjectKey{Name: v}, validating)
}

// put writes the configurations that there are, whatever stood there in between.
func (i *interposer) put(ctx context.Context, configurations ...client.Object) error {
	for _, c := range configurations {
		if c.GetName() == "" {
			continue
		}
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			present := c.DeepCopyObject().(client.Object)
			if err := i.h.cluster.Client.Get(ctx, client.ObjectKeyFromObject(c), present); err != nil {
				return err
			}
			c.SetResourceVersion(present.GetResourceVersion())
			return i.h.cluster.Client.Update(ctx, c)
		})
		if err != nil {
			return fmt.Errorf("writing %s: %w", c.GetName(), err)
		}
	}
	return nil
}

// concerns reports whether a webhook is about what its owner makes of TrainJobs; Kueue
// has webhooks for much else.
func concerns(rules []admissionregistrationv1.RuleWithOperations, owner webhookOwner) bool {
	resource := "trainjobs"
	if owner == jobSetsWebhooks {
		resource = "jobsets"
	}
	return slices.ContainsFunc(rules, func(r admissionregistrationv1.RuleWithOperations) bool { return slices.Contains(r.Resources, resource) })
}

func (i *interposer) redirect(config *admissionregistrationv1.WebhookClientConfig) error {
	if config.URL == nil {
		return errors.New("the webhook has no URL")
	}
	target, err := url.Parse(*config.URL)
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = target.Scheme, target.Host },
		Transport: insecure,
		ErrorLog:  i.server.Config.ErrorLog,
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	address := fmt.Sprintf("%s/%d%s", i.server.URL, len(i.targets), target.Path)
	i.targets = append(i.targets, proxy)
	config.URL = &address
	config.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw})
	return nil
}

// called reports whether the API server has taken note of the redirection.
func (i *interposer) called() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.calls > 0
}
