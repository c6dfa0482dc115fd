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
	"strings"
	"sync/atomic"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
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
	// paths leads to the endpoints of before.
	paths             http.ServeMux
	redirected, calls atomic.Int32
}

func newInterposer(h *harness) *interposer {
	i := &interposer{h: h}
	i.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i.calls.Add(1)
		i.paths.ServeHTTP(w, r)
	}))
	i.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	i.server.StartTLS()
	return i
}

// webhookOwner is whose webhooks are meant: by which configurations, and for which resource.
type webhookOwner struct{ name, mutating, validating, resource string }

func (o webhookOwner) String() string { return o.name }

// The integration's configurations are named like its manager.
var (
	ourWebhooks      = webhookOwner{"the integration", "MANAGER-mutating-webhook-configuration", "MANAGER-validating-webhook-configuration", "trainjobs"}
	trainersWebhooks = webhookOwner{"Trainer", "defaulter.trainer.kubeflow.org", "validator.trainer.kubeflow.org", "trainjobs"}
	jobSetsWebhooks  = webhookOwner{"JobSet", "jobset-mutating-webhook-configuration", "jobset-validating-webhook-configuration", "jobsets"}
)

// disturb makes the webhooks of an owner down or slow, and gives what puts them back.
func (i *interposer) disturb(ctx context.Context, owner webhookOwner, fault webhookFault) (restore func() error, err error) {
	i.calls.Store(0)
	mutating, validating := &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := i.get(ctx, owner, mutating, validating); err != nil {
		return nil, err
	}
	before, after := []client.Object{mutating.DeepCopy(), validating.DeepCopy()}, []client.Object{mutating, validating}
	// Kueue has webhooks for much else.
	concerns := func(r admissionregistrationv1.RuleWithOperations) bool {
		return slices.Contains(r.Resources, owner.resource)
	}
	redirect := func(rules []admissionregistrationv1.RuleWithOperations, config *admissionregistrationv1.WebhookClientConfig) {
		if slices.ContainsFunc(rules, concerns) {
			err = errors.Join(err, i.redirect(config, fault))
		}
	}
	for n := range mutating.Webhooks {
		redirect(mutating.Webhooks[n].Rules, &mutating.Webhooks[n].ClientConfig)
	}
	for n := range validating.Webhooks {
		redirect(validating.Webhooks[n].Rules, &validating.Webhooks[n].ClientConfig)
	}
	if err != nil {
		return nil, err
	}
	if err := i.change(ctx, before, after); err != nil {
		return nil, err
	}
	return func() error { return i.change(context.WithoutCancel(ctx), after, before) }, nil
}

// get reads the configurations of an owner; Trainer 2.1 has no mutating one, which stays empty.
func (i *interposer) get(ctx context.Context, owner webhookOwner, mutating, validating client.Object) error {
	key := func(name string) client.ObjectKey {
		return client.ObjectKey{Name: strings.Replace(name, "MANAGER", i.h.cluster.Manager(), 1)}
	}
	err := i.h.cluster.Client.Get(ctx, key(owner.mutating), mutating)
	if err != nil && (owner != trainersWebhooks || !apierrors.IsNotFound(err)) {
		return err
	}
	return i.h.cluster.Client.Get(ctx, key(owner.validating), validating)
}

// change writes the configurations that there are, whatever stood there in between.
func (i *interposer) change(ctx context.Context, from, to []client.Object) error {
	var err error
	for n, c := range to {
		if c.GetName() != "" {
			err = errors.Join(err, i.h.cluster.Client.Patch(ctx, c.DeepCopyObject().(client.Object), client.MergeFrom(from[n])))
		}
	}
	return err
}

// redirect has a webhook go by a path of its own, where it fares ill.
func (i *interposer) redirect(config *admissionregistrationv1.WebhookClientConfig, fault webhookFault) error {
	if config.URL == nil {
		return errors.New("the webhook has no URL")
	}
	target, err := url.Parse(*config.URL)
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host, r.Out.URL.Path = target.Scheme, target.Host, target.Path
		},
		Transport: insecure,
		ErrorLog:  i.server.Config.ErrorLog,
	}
	path := fmt.Sprintf("/%d", i.redirected.Add(1))
	i.paths.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		if fault == webhookDown {
			http.Error(w, "out of order", http.StatusServiceUnavailable)
			return
		}
		select {
		case <-time.After(webhookDelay):
			proxy.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	})
	config.URL = ptr.To(i.server.URL + path)
	config.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.server.Certificate().Raw})
	return nil
}
