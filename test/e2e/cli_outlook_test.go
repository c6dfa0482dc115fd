// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/cli/explain"
)

var _ = Describe("Forecasts of kubectl trainjob", func() {
	It("tell when a waiting TrainJob starts, what if, and without whom it would start now", core, func(ctx context.Context) {
		w := newPools(ctx, "8", "0")
		w.MakeRunning(ctx, w.Job("runs").GPUs("8"), 1, onH100)
		w.MakePending(ctx, w.Job("waits").GPUs("8"))
		w.eventuallyLaterThan(ctx, "waits")
		// Of what is like another one that waits, Kueue says nothing.
		w.Make(ctx, w.Job("last").GPUs("8").Obj())
		w.eventuallyListed(ctx, "last", explain.Waiting)
		w.MakePending(ctx, w.Job("too-big").Nodes(2).GPUs("8"))
		// Whatever else the cluster has seen of running times, what a trainer says of its own job comes first.
		w.reportsRemaining(ctx, "runs", time.Hour)

		By("explain and list say it alike")
		Eventually(ctx, func(g Gomega) {
			e := w.explained(ctx, g, "waits")
			g.Expect(e.Start).NotTo(BeNil())
			g.Expect(e.Start.P50).To(HaveValue(BeNumerically("~", time.Hour.Seconds(), 300)))
			g.Expect(e.Start.After).To(Equal(w.Namespace + "/runs"))
			g.Expect(said(ctx, g, "explain", "waits", "-n", w.Namespace)).To(MatchRegexp(`Forecast: starts in about \S+ (h|min).*after %s/runs ends`, w.Namespace))
			g.Expect(said(ctx, g, "explain", "too-big", "-n", w.Namespace)).To(ContainSubstring("does not start before somebody changes something"))
			g.Expect(said(ctx, g, "list", "-n", w.Namespace, "-o", "wide")).To(MatchRegexp(`(?s)STARTS.*waits .*~?\d+ (h|min)`))
		}).Should(Succeed())

		By("simulate plays it with twice the quota, and changes nothing")
		Eventually(ctx, func(g Gomega) {
			table := said(ctx, g, "simulate", "-n", w.Namespace, "--arrivals", "none", "--horizon", "12h", "--set-quota", w.Name("gpus")+"/"+w.Name("h100")+"/nvidia.com/gpu=16")
			g.Expect(table).To(MatchRegexp(`%s/queue .* 3 → `, w.Namespace))
			g.Expect(said(ctx, g, "simulate", "--for", w.Namespace+"/waits", "--now")).To(MatchRegexp(`1 +%s/runs `, w.Namespace))
		}).Should(Succeed())
		Expect(w.TrainJob(ctx, "runs").Status.Conditions).NotTo(ContainElement(HaveField("Type", trainer.TrainJobComplete)))

		By("shares shows who has what, and who is next")
		Expect(said(ctx, Default, "shares", "-n", w.Namespace)).To(And(
			MatchRegexp(`%s +%s +nvidia.com/gpu +8 +8 +0 +0`, w.Name("gpus"), w.Name("h100")),
			MatchRegexp(`(?s)PLACE.*\n\d+ +%[1]s/waits .*\n\d+ +%[1]s/last `, w.Namespace)))
		Expect(refused(ctx, 1, "simulate", "--set-quota", w.Name("gpus")+"/no-such/nvidia.com/gpu=16")).To(ContainSubstring("has no quota of nvidia.com/gpu in flavor no-such"))
	}, SpecTimeout(specTimeout))
})

// reportsRemaining has the trainer of a job say how long it will run.
func (w *site) reportsRemaining(ctx context.Context, name string, remaining time.Duration) {
	job := w.TrainJob(ctx, name)
	before := job.DeepCopy()
	job.Status.TrainerStatus = &trainer.TrainerStatus{EstimatedRemainingSeconds: ptr.To(int32(remaining.Seconds())), LastUpdatedTime: metav1.Now()}
	Expect(w.Status().Patch(ctx, job, client.MergeFrom(before))).To(Succeed())
}
