// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/x509"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/kueue-trainer/kueue-trainer/pkg/certificates"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
)

const webhookService = "webhooks.example.svc"

// Certificates of webhook configurations that match nothing, signed in this process.
var _ = Describe("The certificate that webhooks are served with", func() {
	var (
		w       *site
		replica *certificates.Certificates
	)

	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx)
		clientConfig := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: w.Namespace, Name: "webhooks"}}
		w.Make(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "authority"}},
			&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: w.Name("certificates")}, Webhooks: []admissionregistrationv1.MutatingWebhook{{
				Name: "one.example.com", ClientConfig: clientConfig, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}}}},
			&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: w.Name("certificates")}, Webhooks: []admissionregistrationv1.ValidatingWebhook{{
				Name: "two.example.com", ClientConfig: clientConfig, SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}}}})
		replica = w.replica()
		Expect(replica.Await(ctx)).To(BeTrue())
	}, NodeTimeout(specTimeout))

	It("is trusted by both webhook configurations, and its key is nowhere but in the Secret", func(ctx context.Context) {
		Expect(w.trusts(ctx, replica)).To(Succeed())
		Expect(get(ctx, w, &corev1.Secret{}, "authority").Data).To(HaveLen(3))
	}, SpecTimeout(specTimeout))

	It("is another one after a rotation, and is trusted at any moment", func(ctx context.Context) {
		second := w.replica()
		Expect(second.Await(ctx)).To(BeTrue())
		before := must(replica.Get(nil))

		w.PatchJSON(ctx, get(ctx, w, &corev1.Secret{}, "authority"), `{"data":null}`)
		Eventually(ctx, func(g Gomega) {
			for _, one := range []*certificates.Certificates{replica, second} {
				if err := w.trusts(ctx, one); err != nil {
					StopTrying("a certificate is served that nobody trusts").Wrap(err).Now()
				}
			}
			after, err := replica.Get(nil)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(after.Certificate[0]).NotTo(Equal(before.Certificate[0]))
		}).WithPolling(10 * time.Millisecond).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("is the former one for as long as the next is not trusted", func(ctx context.Context) {
		before := must(replica.Get(nil))
		serves := func() ([]byte, error) {
			serving, err := replica.Get(nil)
			if err != nil {
				return nil, err
			}
			return serving.Certificate[0], nil
		}
		validating := get(ctx, w, &admissionregistrationv1.ValidatingWebhookConfiguration{}, w.Name("certificates"))
		Expect(w.Delete(ctx, validating)).To(Succeed())
		former := get(ctx, w, &corev1.Secret{}, "authority").Data["ca.crt"]
		w.PatchJSON(ctx, get(ctx, w, &corev1.Secret{}, "authority"), `{"data":null}`)
		Eventually(ctx, func() []byte { return get(ctx, w, &corev1.Secret{}, "authority").Data["ca.crt"] }).ShouldNot(Or(BeEmpty(), Equal(former)))
		Consistently(ctx, serves).Should(Equal(before.Certificate[0]))

		validating.ResourceVersion, validating.UID = "", ""
		w.Make(ctx, validating)
		Eventually(ctx, serves).ShouldNot(Equal(before.Certificate[0]))
		Expect(w.trusts(ctx, replica)).To(Succeed())
	}, SpecTimeout(specTimeout))

	It("is trusted again when somebody takes the authority out of a configuration", func(ctx context.Context) {
		emptied := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: w.Name("certificates")}}
		Expect(w.Patch(ctx, emptied, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`)))).To(Succeed())
		Eventually(ctx, func() error { return w.trusts(ctx, replica) }).Should(Succeed())
	}, SpecTimeout(specTimeout))
})

// replica runs one more process' certificates until the spec is over.
func (w *site) replica() *certificates.Certificates {
	mgr, err := ctrl.NewManager(cluster.Config, ctrl.Options{
		Scheme: cluster.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)},
	})
	Expect(err).NotTo(HaveOccurred())
	replica := certificates.New(certificates.Options{
		Secret:   client.ObjectKey{Namespace: w.Namespace, Name: "authority"},
		DNSNames: []string{webhookService},
		Webhooks: webhookconfig.Names{Mutating: w.Name("certificates"), Validating: w.Name("certificates")},
	})
	Expect(replica.AddTo(mgr)).To(Succeed())
	running, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- mgr.Start(running) }()
	DeferCleanup(func() {
		stop()
		Eventually(stopped).Should(Receive(BeNil()))
	})
	return replica
}

// trusts reports why the API server would not trust what a replica serves.
func (w *site) trusts(ctx context.Context, replica *certificates.Certificates) error {
	serving, err := replica.Get(nil)
	if err != nil {
		return err
	}
	leaf, err := x509.ParseCertificate(serving.Certificate[0])
	if err != nil {
		return err
	}
	var mutating admissionregistrationv1.MutatingWebhookConfiguration
	var validating admissionregistrationv1.ValidatingWebhookConfiguration
	if err := w.Get(ctx, client.ObjectKey{Name: w.Name("certificates")}, &mutating); err != nil {
		return err
	}
	if err := w.Get(ctx, client.ObjectKey{Name: w.Name("certificates")}, &validating); err != nil {
		return err
	}
	for _, bundle := range [][]byte{mutating.Webhooks[0].ClientConfig.CABundle, validating.Webhooks[0].ClientConfig.CABundle} {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(bundle)
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: webhookService, Roots: roots}); err != nil {
			return err
		}
	}
	return nil
}
