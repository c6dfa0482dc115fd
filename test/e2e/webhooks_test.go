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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/certificates"
	"github.com/kueue-trainer/kueue-trainer/pkg/webhookconfig"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// every TrainJob is in the scope of the webhooks.
const every = "every"

var _ = Describe("The scope of the manager's webhooks", Label("external"), Serial, func() {
	It("is every TrainJob while a namespace has a LocalQueue that its TrainJobs get without asking", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.eventuallyInScope(ctx, webhookconfig.Queued)
		queue := kit.LocalQueue(w.Namespace, "default", w.Name("gpus"))
		Expect(w.Create(ctx, queue)).To(Succeed())
		w.eventuallyInScope(ctx, every)

		unnamed := w.Job("unnamed").GPUs("8").Obj()
		delete(unnamed.Labels, kit.QueueLabel)
		// The API server takes note of it a moment later.
		Eventually(ctx, func(g Gomega) {
			probe := unnamed.DeepCopy()
			g.Expect(w.Create(ctx, probe, client.DryRunAll)).To(Succeed())
			g.Expect(probe.Spec.Suspend).To(HaveValue(BeTrue()))
		}).Should(Succeed())
		w.Make(ctx, unnamed)
		w.EventuallyRuns(ctx, "unnamed", 1, onH100)
		Expect(w.Delete(ctx, unnamed)).To(Succeed())
		Expect(w.Delete(ctx, queue)).To(Succeed())
		w.eventuallyInScope(ctx, webhookconfig.Queued)
	}, SpecTimeout(specTimeout))

	It("has TrainJobs queued late that were made beside such a queue while the manager was away", core, Label("control"), func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.eventuallyInScope(ctx, webhookconfig.Queued)
		start := stopComponent(ctx, cluster.Manager())
		w.Make(ctx, kit.LocalQueue(w.Namespace, "default", w.Name("gpus")))
		// Without the webhook nothing tolerates GPU nodes, so this one asks for none.
		former := w.MakeRunning(ctx, kit.TrainJob(w.Namespace, "unnamed"), 1, nil)

		start(ctx)
		w.EventuallyCondition(ctx, "unnamed", kueue.WorkloadAdmitted)
		Expect(world.UIDs(w.EventuallyRuns(ctx, "unnamed", 1, nil))).NotTo(Equal(world.UIDs(former)), "it was stopped and admitted")
	}, SpecTimeout(specTimeout))

	It("is restored when somebody takes it out, beside conditions of others", func(ctx context.Context) {
		w := newWorld(ctx)
		w.eventuallyInScope(ctx, webhookconfig.Queued)
		own := admissionregistrationv1.MatchCondition{Name: "mine", Expression: "true"}
		const name = "kueue-trainer-mutating-webhook-configuration"
		w.changeWebhook(ctx, name, func(webhook *admissionregistrationv1.MutatingWebhook) {
			webhook.MatchConditions = []admissionregistrationv1.MatchCondition{own}
		})
		w.eventuallyInScope(ctx, webhookconfig.Queued)
		mutating := get(ctx, w, &admissionregistrationv1.MutatingWebhookConfiguration{}, name)
		Expect(mutating.Webhooks[0].MatchConditions).To(ContainElement(own))
	}, SpecTimeout(specTimeout))
})

// eventuallyInScope waits until both webhook configurations have TrainJobs with a queue in scope, or every one.
func (w *site) eventuallyInScope(ctx context.Context, scope string) {
	conditions := ContainElement(HaveField("Name", webhookconfig.Queued))
	if scope == every {
		conditions = Not(conditions)
	}
	have := HaveField("Webhooks", ContainElement(And(HaveField("Name", HavePrefix("queued-trainjobs-")), HaveField("MatchConditions", conditions))))
	w.EventuallyIs(ctx, &admissionregistrationv1.MutatingWebhookConfiguration{}, "kueue-trainer-mutating-webhook-configuration", have)
	w.EventuallyIs(ctx, &admissionregistrationv1.ValidatingWebhookConfiguration{}, "kueue-trainer-validating-webhook-configuration", have)
}

const webhookService = "webhooks.example.svc"

// Certificates of webhook configurations that match nothing, signed in this process.
var _ = Describe("The certificate that webhooks are served with", func() {
	var (
		w       *site
		replica *certificates.Certificates
	)

	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx)
		meta, none := metav1.ObjectMeta{Name: w.Name("certificates")}, new(admissionregistrationv1.SideEffectClassNone)
		clientConfig := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: w.Namespace, Name: "webhooks"}}
		w.Make(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Namespace, Name: "authority"}},
			&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{
				{Name: "one.example.com", ClientConfig: clientConfig, SideEffects: none, AdmissionReviewVersions: []string{"v1"}}}},
			&admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionregistrationv1.ValidatingWebhook{
				{Name: "two.example.com", ClientConfig: clientConfig, SideEffects: none, AdmissionReviewVersions: []string{"v1"}}}})
		replica = w.replica()
		Expect(replica.Await(ctx)).To(BeTrue())
	}, NodeTimeout(specTimeout))

	It("is trusted by both webhook configurations, also when somebody takes the authority out of one, and its key is nowhere but in the Secret", func(ctx context.Context) {
		Expect(w.trusts(ctx, replica)).To(Succeed())
		Expect(get(ctx, w, &corev1.Secret{}, "authority").Data).To(HaveLen(3))
		emptied := &admissionregistrationv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: w.Name("certificates")}}
		Expect(w.Patch(ctx, emptied, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`)))).To(Succeed())
		Eventually(ctx, func() error { return w.trusts(ctx, replica) }).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("is another one after a rotation, and is trusted at any moment", func(ctx context.Context) {
		second := w.replica()
		Expect(second.Await(ctx)).To(BeTrue())
		before := must(served(replica))

		w.PatchJSON(ctx, get(ctx, w, &corev1.Secret{}, "authority"), `{"data":null}`)
		Eventually(ctx, func(g Gomega) {
			for _, one := range []*certificates.Certificates{replica, second} {
				if err := w.trusts(ctx, one); err != nil {
					StopTrying("a certificate is served that nobody trusts").Wrap(err).Now()
				}
			}
			g.Expect(served(replica)).NotTo(Equal(before))
		}).WithPolling(10 * time.Millisecond).Should(Succeed())
	}, SpecTimeout(specTimeout))

	It("is the former one for as long as the next is not trusted", func(ctx context.Context) {
		before := must(served(replica))
		validating := get(ctx, w, &admissionregistrationv1.ValidatingWebhookConfiguration{}, w.Name("certificates"))
		Expect(w.Delete(ctx, validating)).To(Succeed())
		former := get(ctx, w, &corev1.Secret{}, "authority").Data["ca.crt"]
		w.PatchJSON(ctx, get(ctx, w, &corev1.Secret{}, "authority"), `{"data":null}`)
		Eventually(ctx, func() []byte { return get(ctx, w, &corev1.Secret{}, "authority").Data["ca.crt"] }).ShouldNot(Or(BeEmpty(), Equal(former)))
		Consistently(ctx, served).WithArguments(replica).Should(Equal(before))

		validating.ResourceVersion, validating.UID = "", ""
		w.Make(ctx, validating)
		Eventually(ctx, served).WithArguments(replica).ShouldNot(Equal(before))
		Expect(w.trusts(ctx, replica)).To(Succeed())
	}, SpecTimeout(specTimeout))
})

// replica runs one more process' certificates until the spec is over.
func (w *site) replica() *certificates.Certificates {
	mgr := must(ctrl.NewManager(cluster.Config, ctrl.Options{
		Scheme: cluster.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	}))
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

// served is the certificate that a replica serves with.
func served(replica *certificates.Certificates) ([]byte, error) {
	serving, err := replica.Get(nil)
	if err != nil {
		return nil, err
	}
	return serving.Certificate[0], nil
}

// trusts reports why the API server would not trust what a replica serves.
func (w *site) trusts(ctx context.Context, replica *certificates.Certificates) error {
	leaf := must(x509.ParseCertificate(must(served(replica))))
	mutating := get(ctx, w, &admissionregistrationv1.MutatingWebhookConfiguration{}, w.Name("certificates"))
	validating := get(ctx, w, &admissionregistrationv1.ValidatingWebhookConfiguration{}, w.Name("certificates"))
	for _, bundle := range [][]byte{mutating.Webhooks[0].ClientConfig.CABundle, validating.Webhooks[0].ClientConfig.CABundle} {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(bundle)
		if _, err := leaf.Verify(x509.VerifyOptions{DNSName: webhookService, Roots: roots}); err != nil {
			return err
		}
	}
	return nil
}
