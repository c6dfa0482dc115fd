// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
)

var _ = Describe("A new TrainJob whose JobSet is late waits for it", Label("control"), Serial, func() {
	var w *site

	// late makes job "late", whose JobSet does not come before it is let through.
	late := func(ctx context.Context, setting string) (letThrough func()) {
		GinkgoHelper()
		localOnly("the specs of this group change the manager's configuration")
		w = newPools(ctx, "8", "0")
		w.configureManager(ctx, setting)
		_, letThrough = w.holdJobSets(ctx, admissionregistrationv1.Create, func(*admissionv1.AdmissionRequest) bool { return true })
		w.Make(ctx, w.Job("late").GPUs("8").Obj())
		return letThrough
	}

	It("not at all with waitForJobSet: 0s", func(ctx context.Context) {
		letThrough := late(ctx, "waitForJobSet: 0s")
		w.EventuallyCondition(ctx, "late", kueue.WorkloadAdmitted)
		letThrough()
		w.EventuallyRuns(ctx, "late", 1, onH100)
		Expect(w.EventNotes(ctx, "TrainJob", "late", "NotPrepared")).To(BeEmpty(), "nothing was late")
	}, SpecTimeout(specTimeout))

	It("for longer than explain is patient with waitForJobSet: 1h", long, func(ctx context.Context) {
		letThrough := late(ctx, "waitForJobSet: 1h")
		Expect(w.eventuallyExplained(ctx, "late", explain.Unqueued, "AwaitsJobSet").State.Message).To(ContainSubstring("after 1h0m0s"))
		// After 30 s the API server gives the webhook up.
		Consistently(ctx, func(g Gomega) string { return w.explained(ctx, g, "late").State.Reason }).
			WithTimeout(17 * time.Second).WithPolling(time.Second).Should(Equal("AwaitsJobSet"))
		letThrough()
		w.EventuallyRuns(ctx, "late", 1, onH100)
	}, SpecTimeout(specTimeout))
})
