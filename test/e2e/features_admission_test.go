// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/constants"

	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = Describe("A TrainJob whose admission is gated by others", func() {
	It("is admitted when the last of them lets it go, and gated by nobody else later", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		job := w.Job("llm").GPUs("8").Obj()
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, constants.AdmissionGatedByAnnotation, "example.com/budget,example.com/data")
		w.Make(ctx, job)
		w.eventuallyGatedBy(ctx, "llm", "example.com/budget,example.com/data")
		Expect(w.gatedBy(ctx, "llm", "example.com/data")).To(Succeed())
		w.eventuallyGatedBy(ctx, "llm", "example.com/data")
		w.EventuallyAtTheGate(ctx, "llm")
		Expect(w.Pods(ctx, "llm")).To(BeEmpty())
		Expect(w.gatedBy(ctx, "llm", "")).To(Succeed())
		Expect(w.gatedBy(ctx, "llm", "example.com/late")).To(MatchError(ContainSubstring("cannot add admission gate after creation")))
		w.EventuallyRuns(ctx, "llm", 1, onH100)
	}, SpecTimeout(specTimeout))
})

func (w *site) gatedBy(ctx context.Context, job, gates string) error {
	return w.TryEdit(ctx, job, func(t *trainer.TrainJob) {
		metav1.SetMetaDataAnnotation(&t.ObjectMeta, constants.AdmissionGatedByAnnotation, gates)
	})
}

func (w *site) eventuallyGatedBy(ctx context.Context, job, gates string) {
	w.EventuallyWorkload(ctx, job,
		HaveField("Annotations", HaveKeyWithValue(constants.AdmissionGatedByAnnotation, gates)),
		world.Condition(kueue.WorkloadQuotaReserved, metav1.ConditionFalse, kueue.WorkloadAdmissionGated))
}

// Concurrent admission is alpha: it takes a feature gate, and a restart of Kueue.
var _ = Describe("With concurrent admission", Label("control"), Serial, Ordered, ContinueOnFailure, func() {
	var w *site

	BeforeAll(func(ctx context.Context) {
		restartKueueWith(ctx, map[string]any{"featureGates": map[string]any{"ConcurrentAdmission": true, "VisibilityOnDemand": false}}, "kueue")
	})

	BeforeEach(func(ctx context.Context) {
		w = newWorld(ctx)
		queue := kit.ClusterQueue(w.Name("gpus"), kit.Quota{Flavor: w.Name("h100"), GPUs: "0"}, kit.Quota{Flavor: w.Name("a100"), GPUs: "8"})
		queue.Spec.ConcurrentAdmissionPolicy = &kueue.ConcurrentAdmissionPolicy{
			Migration: kueue.ConcurrentAdmissionMigration{Mode: kueue.ConcurrentAdmissionTryPreferredFlavors}}
		w.Make(ctx,
			w.Flavor("h100", onH100), w.Flavor("a100", onA100), queue,
			w.LocalQueue())
	})

	It("a TrainJob starts on the flavor that has quota, and moves to the one it prefers when that has", func(ctx context.Context) {
		w.MakeRunning(ctx, w.Job("llm").GPUs("8"), 1, onA100)
		w.SetQuota(ctx, w.Name("gpus"), "8")
		Eventually(ctx, w.Pods).WithArguments(ctx, "llm").Should(ConsistOf(HaveField("Spec.NodeSelector", onH100)))
		w.EventuallyRuns(ctx, "llm", 1, onH100)
		w.Succeed(ctx, "llm")
	}, SpecTimeout(specTimeout))
})
