// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/matchconditions"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

// every TrainJob is in the scope of the webhooks.
const every = "every"

var _ = Describe("The scope of the manager's webhooks", Serial, func() {
	BeforeEach(func() { externalOnly("the manager has to be the one who integrates TrainJobs") })

	It("is every TrainJob while a namespace has a LocalQueue that its TrainJobs get without asking", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.eventuallyInScope(ctx, matchconditions.Queued)
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
		w.eventuallyInScope(ctx, matchconditions.Queued)
	}, SpecTimeout(specTimeout))

	It("has TrainJobs queued late that were made beside such a queue while the manager was away", core, Label("control"), func(ctx context.Context) {
		localOnly("the spec stops the manager")
		w := newPools(ctx, "8", "0")
		w.eventuallyInScope(ctx, matchconditions.Queued)
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
		w.eventuallyInScope(ctx, matchconditions.Queued)
		own := admissionregistrationv1.MatchCondition{Name: "mine", Expression: "true"}
		const name = "kueue-trainer-mutating-webhook-configuration"
		w.changeWebhook(ctx, name, func(webhook *admissionregistrationv1.MutatingWebhook) {
			webhook.MatchConditions = []admissionregistrationv1.MatchCondition{own}
		})
		w.eventuallyInScope(ctx, matchconditions.Queued)
		mutating := get(ctx, w, &admissionregistrationv1.MutatingWebhookConfiguration{}, name)
		Expect(mutating.Webhooks[0].MatchConditions).To(ContainElement(own))
	}, SpecTimeout(specTimeout))
})

// eventuallyInScope waits until both webhook configurations have the same TrainJobs in scope:
// those with a queue, or every one.
func (w *site) eventuallyInScope(ctx context.Context, scope string) {
	Eventually(ctx, func() []string { return w.scope(ctx) }).Should(HaveEach(scope))
}

// scope returns which TrainJobs the manager's webhooks are asked about, by configuration.
func (w *site) scope(ctx context.Context) []string {
	mutating := get(ctx, w, &admissionregistrationv1.MutatingWebhookConfiguration{}, "kueue-trainer-mutating-webhook-configuration")
	validating := get(ctx, w, &admissionregistrationv1.ValidatingWebhookConfiguration{}, "kueue-trainer-validating-webhook-configuration")
	scopes := make([]string, 2)
	for i, conditions := range [][]admissionregistrationv1.MatchCondition{mutating.Webhooks[0].MatchConditions, validating.Webhooks[0].MatchConditions} {
		scopes[i] = every
		if slices.ContainsFunc(conditions, func(c admissionregistrationv1.MatchCondition) bool { return c.Name == matchconditions.Queued }) {
			scopes[i] = matchconditions.Queued
		}
	}
	return scopes
}
