// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/constants"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
)

var _ = Describe("A TrainJob whose admission is gated by others", func() {
	var w *world

	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx)
		w.pools(ctx, "8", "0")
	})

	It("is admitted when the last of them lets it go", core, func(ctx context.Context) {
		job := w.job("llm").GPUs("8").Obj()
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, constants.AdmissionGatedByAnnotation, "example.com/budget,example.com/data")
		w.make(ctx, job)
		w.eventuallyGatedBy(ctx, "llm", "example.com/budget,example.com/data")
		w.gatedBy(ctx, "llm", "example.com/data")
		w.eventuallyGatedBy(ctx, "llm", "example.com/data")
		w.eventuallyAtTheGate(ctx, "llm")
		Expect(w.pods(ctx, "llm")).To(BeEmpty())
		w.gatedBy(ctx, "llm", "")
		w.eventuallyRuns(ctx, "llm", 1, onH100)
	}, SpecTimeout(specTimeout))

	It("cannot be gated by anybody else later", func(ctx context.Context) {
		w.make(ctx, w.job("llm").GPUs("8").Obj())
		Expect(w.tryUpdate(ctx, "llm", func(t *trainer.TrainJob) {
			metav1.SetMetaDataAnnotation(&t.ObjectMeta, constants.AdmissionGatedByAnnotation, "example.com/budget")
		})).To(MatchError(ContainSubstring("cannot add admission gate after creation")))
	}, SpecTimeout(specTimeout))
})

// gatedBy says what still gates the admission of a TrainJob.
func (w *world) gatedBy(ctx context.Context, job, gates string) {
	GinkgoHelper()
	w.update(ctx, job, func(t *trainer.TrainJob) {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, constants.AdmissionGatedByAnnotation, gates)
	})
}

// eventuallyGatedBy waits until a TrainJob's Workload says what gates its admission.
func (w *world) eventuallyGatedBy(ctx context.Context, job, gates string) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		wl := w.workload(ctx, job)
		g.Expect(wl).NotTo(BeNil())
		g.Expect(wl.Annotations).To(HaveKeyWithValue(constants.AdmissionGatedByAnnotation, gates))
		g.Expect(wl.Status.Conditions).To(ContainElement(And(
			HaveField("Type", kueue.WorkloadQuotaReserved), HaveField("Status", metav1.ConditionFalse), HaveField("Reason", kueue.WorkloadAdmissionGated))))
	}).Should(Succeed())
}

// Concurrent admission is alpha: it takes a feature gate, and a restart of Kueue.
var _ = Describe("With concurrent admission", Label("control"), Serial, Ordered, ContinueOnFailure, func() {
	var w *world

	BeforeAll(func(ctx context.Context) {
		localOnly("the specs of this group change Kueue's configuration")
		restartKueueWith(ctx, map[string]any{"featureGates": map[string]any{"ConcurrentAdmission": true, "VisibilityOnDemand": false}}, "kueue")
	})

	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx)
		queue := kit.MakeClusterQueue(w.name("gpus"), kit.Quota{Flavor: w.name("h100"), GPUs: "0"}, kit.Quota{Flavor: w.name("a100"), GPUs: "8"})
		queue.Spec.ConcurrentAdmissionPolicy = &kueue.ConcurrentAdmissionPolicy{
			Migration: kueue.ConcurrentAdmissionMigration{Mode: kueue.ConcurrentAdmissionTryPreferredFlavors}}
		w.make(ctx,
			w.flavor("h100", onH100), w.flavor("a100", onA100), queue,
			kit.MakeLocalQueue(w.namespace, "queue", w.name("gpus")))
	})

	It("a TrainJob starts on the flavor that has quota, and moves to the one it prefers when that has", func(ctx context.Context) {
		w.make(ctx, w.job("llm").GPUs("8").Obj())
		w.eventuallyRuns(ctx, "llm", 1, onA100)
		w.setQuota(ctx, w.name("gpus"), "8")
		pod := w.eventuallyRunsOn(ctx, "llm", onH100)
		Expect(pod.Spec.NodeSelector).To(Equal(onH100))
		w.finish(ctx, "llm", "succeeded")
		w.eventuallyCondition(ctx, "llm", kueue.WorkloadFinished)
	}, SpecTimeout(specTimeout))
})

// eventuallyRunsOn waits until a TrainJob's one pod runs on another kind of node than before.
func (w *world) eventuallyRunsOn(ctx context.Context, job string, nodeLabels map[string]string) corev1.Pod {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		pods := w.pods(ctx, job)
		g.Expect(pods).To(HaveLen(1))
		var node corev1.Node
		g.Expect(w.Get(ctx, client.ObjectKey{Name: pods[0].Spec.NodeName}, &node)).To(Succeed())
		for key, value := range nodeLabels {
			g.Expect(node.Labels).To(HaveKeyWithValue(key, value))
		}
	}).Should(Succeed())
	return w.eventuallyRuns(ctx, job, 1, nodeLabels)[0]
}
