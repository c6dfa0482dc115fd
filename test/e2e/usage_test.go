// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
)

var _ = It("The ledger of resource seconds says what the objects' own versions say, however often the manager is killed", Label("control"), Serial, long, func(ctx context.Context) {
	localOnly("this spec kills the manager")
	w := newPools(ctx, "16", "0")
	w.Make(ctx, kit.Priority(w.Name("low"), 1), kit.Priority(w.Name("high"), 100))
	DeferCleanup(func(ctx context.Context) { Expect(cluster.Repair(ctx, GinkgoWriter)).To(Succeed()) })
	book := w.record(ctx, workloadResource, trainJobResource)

	w.eventuallyCreate(ctx, w.Job("victim").GPUs("8").Nodes(2).Priority(w.Name("low")).
		PodAnnotations("example.com/churn", "localcluster/run-for", "20s", "node").Obj())
	// Times are in whole seconds: a run that ends in the second in which it began has lost nothing.
	Eventually(ctx, func(g Gomega) {
		wl := w.Workload(ctx, "victim")
		g.Expect(wl).NotTo(BeNil())
		ready := apimeta.FindStatusCondition(wl.Status.Conditions, kueue.WorkloadPodsReady)
		g.Expect(ready).NotTo(BeNil())
		g.Expect(ready.Status).To(Equal(metav1.ConditionTrue))
		g.Expect(time.Since(ready.LastTransitionTime.Time)).To(BeNumerically(">", 2*time.Second))
	}).Should(Succeed())
	w.eventuallyCreate(ctx, w.Job("urgent").GPUs("8").Priority(w.Name("high")).
		PodAnnotations("example.com/churn", "localcluster/run-for", "3s", "node").Obj())
	w.EventuallyCondition(ctx, "victim", kueue.WorkloadEvicted)

	const jobs = 10
	for i := range jobs {
		w.eventuallyCreate(ctx, w.churnJob(i))
		if i%3 != 2 {
			continue
		}
		// It comes back in the middle of a preemption, with jobs that ended meanwhile.
		select {
		// When it dies is what is random here; nothing waits for a condition.
		case <-time.After(rand.N(2 * time.Second)):
		case <-ctx.Done():
		}
		w.eventuallySaved(ctx)
		w.killManager(ctx)
	}
	gone := w.Job("gone").GPUs("8").Priority(w.Name("high")).Obj()
	w.eventuallyCreate(ctx, gone)
	w.EventuallyRuns(ctx, "gone", 1, onH100)
	uid := w.Workload(ctx, "gone").UID
	Expect(w.Delete(ctx, gone)).To(Succeed())
	w.EventuallyGone(ctx, gone)
	w.eventuallySaved(ctx, uid)
	for i := range jobs {
		w.eventuallyFinished(ctx, fmt.Sprintf("job-%d", i))
		if i%4 == 1 {
			w.eventuallySaved(ctx)
			w.killManager(ctx)
		}
	}
	w.eventuallyFinished(ctx, "urgent")
	w.eventuallyFinished(ctx, "victim")
	// By now what ended stands in the checkpoint alone.
	w.killManager(ctx)
	eventuallyWhole(ctx, book)

	want := map[string]float64{}
	vanished := 0
	for _, h := range truth(book) {
		h.seconds(want)
		if h.vanished {
			vanished++
		}
	}
	Expect(want).To(HaveKeyWithValue("lost", BeNumerically(">", 0)), "a run was evicted")
	Expect(vanished).To(Equal(1), "jobs that were deleted")
	Eventually(ctx, func(g Gomega) {
		got := w.accounted(ctx, g)
		for is, seconds := range want {
			// No object tells when a deleted one was gone.
			tolerance := 0.001
			if is == "stopping" {
				tolerance = 1.5
			}
			g.Expect(got[is]/8).To(BeNumerically("~", seconds, tolerance), "%s: %v, want %v", is, got, want)
		}
	}).Should(Succeed())
	AddReportEntry("seconds of 8 GPUs", want)
}, SpecTimeout(15*time.Minute))

// eventuallySaved waits until the manager has saved that runs end: of those that are evicted now, and of more Workloads.
// What a manager has heard of in its last seconds alone is lost with it.
func (w *site) eventuallySaved(ctx context.Context, more ...types.UID) {
	Eventually(ctx, func(g Gomega) {
		saved, err := ledger.LoadSaved(ctx, w, config.Namespace)
		g.Expect(err).NotTo(HaveOccurred())
		runs, ended := map[types.UID]bool{}, map[types.UID]bool{}
		for _, h := range saved.Open {
			ends := h.Spans[len(h.Spans)-1].Phase == metrics.PhaseStopping
			runs[h.UID], ended[h.UID] = !ends, ends
		}
		for _, c := range saved.Closed {
			ended[c.UID] = ended[c.UID] || !runs[c.UID]
		}
		workloads := world.All(ctx, g, w, &kueue.WorkloadList{}, client.InNamespace(w.Namespace))
		wanted := slices.Clone(more)
		for _, wl := range workloads.Items {
			if apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadEvicted) {
				wanted = append(wanted, wl.UID)
			}
		}
		for _, uid := range wanted {
			g.Expect(ended[uid]).To(BeTrue(), "Workload %s", uid)
		}
	}).Should(Succeed())
}

// killManager kills the manager and starts it again.
func (w *site) killManager(ctx context.Context) {
	Expect(cluster.Control(ctx, "kill", cluster.Manager(), GinkgoWriter)).To(Succeed())
	Expect(cluster.Control(ctx, "start", cluster.Manager(), GinkgoWriter)).To(Succeed())
}

// accounted returns the GPU seconds of the spec's ClusterQueue that the manager tells, by phase and
// by outcome.
func (w *site) accounted(ctx context.Context, g Gomega) map[string]float64 {
	seconds, err := world.LedgerSeconds(fetch(ctx, "metrics", "/metrics"),
		map[string]string{metrics.ClusterQueue: w.Name("gpus"), metrics.Resource: string(kit.GPU)})
	g.Expect(err).NotTo(HaveOccurred())
	return seconds
}
