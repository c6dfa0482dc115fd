// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"

	"github.com/onsi/ginkgo/v2/types"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// ControlledCheck gives the world's ClusterQueue an admission check whose controller the test is, and
// returns its name.
func (w *World) ControlledCheck(ctx context.Context) string {
	types.MarkAsHelper()
	check := w.MakeCheck(ctx)
	w.ActivateCheck(ctx, check)
	w.DemandCheck(ctx, check.Name)
	return check.Name
}

// MakeCheck makes an admission check whose controller the test is.
func (w *World) MakeCheck(ctx context.Context) *kueue.AdmissionCheck {
	types.MarkAsHelper()
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: w.Name("site")}}
	check.Spec.ControllerName = "example.com/site"
	w.Make(ctx, check)
	return check
}

// ActivateCheck says that the controller of an admission check is there.
func (w *World) ActivateCheck(ctx context.Context, check *kueue.AdmissionCheck) {
	types.MarkAsHelper()
	w.ChangeStatus(ctx, check, func() {
		check.Status.Conditions = []metav1.Condition{
			{Type: kueue.AdmissionCheckActive, Status: metav1.ConditionTrue, Reason: "Active", LastTransitionTime: metav1.Now()}}
	})
}

// DemandCheck has the world's ClusterQueue admit nothing without an admission check.
func (w *World) DemandCheck(ctx context.Context, check string) {
	types.MarkAsHelper()
	w.EditQueue(ctx, w.Name("gpus"), func(cq *kueue.ClusterQueue) {
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{
			AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: kueue.AdmissionCheckReference(check)}}}
	})
}

// SetCheck says what an admission check says of a TrainJob's Workload that holds quota.
func (w *World) SetCheck(ctx context.Context, job, check string, state kueue.CheckState, message string, updates ...kueue.PodSetUpdate) {
	types.MarkAsHelper()
	w.g.Eventually(ctx, func(g gomega.Gomega) {
		wl := w.Workload(ctx, job)
		g.Expect(wl).NotTo(gomega.BeNil())
		g.Expect(wl.Status.Admission).NotTo(gomega.BeNil())
		g.Expect(wl.Status.AdmissionChecks).To(gomega.ConsistOf(gomega.HaveField("State", kueue.CheckStatePending)))
		answer := &wl.Status.AdmissionChecks[0]
		answer.State, answer.Message, answer.PodSetUpdates = state, message, updates
		g.Expect(w.Status().Update(ctx, wl)).To(gomega.Succeed())
	}).Should(gomega.Succeed())
}
