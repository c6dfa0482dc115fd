// SPDX-License-Identifier: Apache-2.0

// Package certificates serves the manager's webhooks by an authority of their own: its key is
// in a Secret, every replica signs a certificate for itself in memory, and the webhook
// configurations are told to trust the authority. Nothing is written to a file.
package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	servertls "github.com/cert-manager/cert-manager/pkg/server/tls"
	"github.com/cert-manager/cert-manager/pkg/server/tls/authority"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/kueue-trainer/kueue-trainer/pkg/logging"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
)

const (
	authorityName = "kueue-trainer-ca"

	// checkSoon is how long to wait for a certificate of the authority of now.
	checkSoon = 200 * time.Millisecond

	// checkLater is how often to look for a certificate that was renewed, or is of another authority.
	checkLater = 10 * time.Second
)

var _ manager.LeaderElectionRunnable = (*Certificates)(nil)

// Options say where the authority is kept, and for whom it signs.
type Options struct {
	// Secret keeps the authority. It has to exist; its data is filled.
	Secret types.NamespacedName
	// DNSNames are those that the API server reaches the webhooks by.
	DNSNames []string
	// Webhooks are the configurations that have to trust it.
	Webhooks webhookconfig.Names
}

// Certificates are those that this process serves with.
type Certificates struct {
	options Options
	// serving is the last certificate that the webhook configurations trust; nil at first.
	serving atomic.Pointer[tls.Certificate]
	ready   chan struct{}
	once    sync.Once

	source *servertls.DynamicSource
	client client.Client
	live   client.Reader
}

// New returns Certificates that serve nothing before they are added to a manager that runs.
func New(options Options) *Certificates {
	return &Certificates{options: options, ready: make(chan struct{})}
}

// Await returns when there is a certificate that the API server trusts, and false if ctx
// ends before. There is nothing to wait for where somebody else brings the files, and c is nil.
func (c *Certificates) Await(ctx context.Context) bool {
	if c == nil {
		return true
	}
	select {
	case <-c.ready:
		return true
	case <-ctx.Done():
		return false
	}
}

// Get is tls.Config's GetCertificate.
func (c *Certificates) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if serving := c.serving.Load(); serving != nil {
		return serving, nil
	}
	return nil, errors.New("no certificate yet that the webhook configurations trust")
}

// AddTo adds the certificates to a manager; each replica has its own.
func (c *Certificates) AddTo(mgr ctrl.Manager) error {
	signer := &authority.DynamicAuthority{
		SecretNamespace: c.options.Secret.Namespace, SecretName: c.options.Secret.Name,
		CommonName: authorityName, RESTConfig: rest.CopyConfig(mgr.GetConfig()),
	}
	c.source = &servertls.DynamicSource{DNSNames: c.options.DNSNames, Authority: signer, RetryInterval: checkSoon}
	c.client, c.live = mgr.GetClient(), mgr.GetAPIReader()

	if err := mgr.Add(c); err != nil {
		return err
	}
	one := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: c.options.Secret}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("certificates").
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, one).
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, one).
		WithOptions(controller.Options{
			NeedLeaderElection: ptr.To(false), LogConstructor: logging.ForController(mgr.GetLogger(), "certificates", "secret"),
		}).
		Complete(c)
}

// Start implements manager.Runnable: it signs serving certificates until ctx ends.
func (c *Certificates) Start(ctx context.Context) error {
	if err := c.source.Start(ctrl.LoggerInto(ctx, ctrl.Log.WithName("certificates"))); ctx.Err() == nil {
		return fmt.Errorf("signing serving certificates: %w", err)
	}
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves webhooks.
func (c *Certificates) NeedLeaderElection() bool { return false }

// Reconcile has the webhook configurations trust the authority, and serves a new certificate
// only then.
func (c *Certificates) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var secret corev1.Secret
	if err := c.live.Get(ctx, c.options.Secret, &secret); err != nil {
		return reconcile.Result{}, fmt.Errorf("reading Secret %s of the serving certificates: %w", c.options.Secret, err)
	}
	ca := secret.Data["ca.crt"]
	if len(ca) == 0 {
		return reconcile.Result{RequeueAfter: checkSoon}, nil
	}
	served, trusted := c.serving.Load(), true
	err := c.options.Webhooks.Change(ctx, c.client, func(w webhookconfig.Webhook) {
		w.ClientConfig.CABundle = withAuthority(w.ClientConfig.CABundle, ca, time.Now())
		// Whoever fears that others know the key takes the authority out.
		trusted = trusted && (served == nil || signedBy(served, w.ClientConfig.CABundle))
	})
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("telling the API server whom to trust: %w", err)
	}
	signed, err := c.source.GetCertificate(nil)
	if err != nil || !signedBy(signed, ca) {
		// It is on its way.
		return reconcile.Result{RequeueAfter: checkSoon}, nil
	}
	if wait := settling(served, signed, trusted, time.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if before := c.serving.Swap(signed); before != signed {
		ctrl.LoggerFrom(ctx).Info("Began to serve with another certificate", "notAfter", signed.Leaf.NotAfter)
	}
	c.once.Do(func() { close(c.ready) })
	return reconcile.Result{RequeueAfter: checkLater}, nil
}

// settleFor is how old a certificate has to be to take the place of one that is good: it is valid from now on by the clock
// of this node, and the API servers' may be behind; so may be what they know of whom to trust.
const settleFor = time.Minute

// settling returns for how long the certificate that is served goes on being so, beside a newer one.
func settling(served, signed *tls.Certificate, trusted bool, now time.Time) time.Duration {
	if served == nil || served == signed || !trusted || served.Leaf.NotAfter.Before(now.Add(settleFor)) {
		return 0
	}
	return max(0, signed.Leaf.NotBefore.Add(settleFor).Sub(now))
}

// withAuthority returns a bundle of PEM blocks that has ca, and none that is no certificate or
// has expired. Former authorities stay until they expire: other replicas may serve by them.
func withAuthority(bundle, ca []byte, now time.Time) []byte {
	var out []byte
	seen := map[string]bool{}
	for block, rest := pem.Decode(slices.Concat(bundle, []byte("\n"), ca)); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil || now.After(certificate.NotAfter) || seen[string(block.Bytes)] {
			continue
		}
		seen[string(block.Bytes)] = true
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: block.Bytes})...)
	}
	return out
}

func signedBy(serving *tls.Certificate, ca []byte) bool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	_, err := serving.Leaf.Verify(x509.VerifyOptions{Roots: roots})
	return err == nil
}
