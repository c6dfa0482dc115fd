// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/config"
	"github.com/kueue-trainer/kueue-trainer/pkg/ledger"
	"github.com/kueue-trainer/kueue-trainer/pkg/metrics"
	"github.com/kueue-trainer/kueue-trainer/test/kit"
	"github.com/kueue-trainer/kueue-trainer/test/kit/world"
	"github.com/kueue-trainer/kueue-trainer/test/record"
)

var _ = It("The ledger of resource seconds says what the objects' own versions say, however often the manager is killed", Label("control"), Serial, long, func(ctx context.Context) {
	w := newPools(ctx, "16", "0")
	w.Make(ctx, kit.Priority(w.Name("low"), 1), kit.Priority(w.Name("high"), 100))
	DeferCleanup(repair)
	book := w.record(ctx, workloadResource, trainJobResource)

	w.eventuallyCreate(ctx, w.Job("victim").GPUs("8").Nodes(2).Priority(w.Name("low")).
		PodAnnotations("example.com/churn", "localcluster/run-for", "20s", "node").Obj())
	ready := trueSince(w.EventuallyCondition(ctx, "victim", kueue.WorkloadPodsReady).Status.Conditions, kueue.WorkloadPodsReady)
	// Times are in whole seconds: a run that ends in the second in which it began has lost nothing.
	Eventually(ctx, time.Now).Should(BeTemporally(">", ready.Add(2*time.Second)))
	w.eventuallyCreate(ctx, w.Job("urgent").GPUs("8").Priority(w.Name("high")).PodAnnotations("example.com/churn", "localcluster/run-for", "3s", "node").Obj())
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
		killManager(ctx)
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
			killManager(ctx)
		}
	}
	w.eventuallyFinished(ctx, "urgent")
	w.eventuallyFinished(ctx, "victim")
	// By now what ended stands in the checkpoint alone.
	killManager(ctx)
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
		got, err := world.LedgerSeconds(fetch(ctx, "metrics", "/metrics"),
			map[string]string{metrics.ClusterQueue: w.Name("gpus"), metrics.Resource: string(kit.GPU)})
		g.Expect(err).NotTo(HaveOccurred())
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

func killManager(ctx context.Context) {
	control(ctx, "kill", cluster.Manager())
	control(ctx, "start", cluster.Manager())
}

// holding is quota of one TrainJob from its reservation until it was given back.
type holding struct {
	// pods is how many pods it is for, of 8 GPUs each.
	pods                          float64
	reserved, ran, stopped, ended time.Time
	outcome                       string
	// vanished is set where no object tells the end.
	vanished bool
}

// stop notes what ends the run; what came first counts.
func (h *holding) stop(at time.Time, outcome string) {
	if h != nil && !at.IsZero() && (h.stopped.IsZero() || at.Before(h.stopped)) {
		h.stopped, h.outcome = at, outcome
	}
}

// seconds adds the phases of a holding, and the outcome of its run.
func (h *holding) seconds(sums map[string]float64) {
	stopped := earliest(h.stopped, h.ended)
	ran := earliest(h.ran, stopped)
	sums["waiting"] += h.pods * ran.Sub(h.reserved).Seconds()
	sums["running"] += h.pods * stopped.Sub(ran).Seconds()
	sums["stopping"] += h.pods * h.ended.Sub(stopped).Seconds()
	sums[h.outcome] += h.pods * stopped.Sub(ran).Seconds()
}

// earliest returns the earlier of a time, which may be unset, and a limit.
func earliest(at, limit time.Time) time.Time {
	if at.IsZero() || at.After(limit) {
		return limit
	}
	return at
}

// accounts are the holdings of TrainJobs by name, as versions tell of them one after the other.
type accounts struct {
	open map[string]*holding
	done []*holding
}

// truth finds from the versions of Workloads and TrainJobs alone how long quota was held, and what for. It knows nothing
// of the manager's ledger. All holdings have to be over.
func truth(book *record.Recorder) []*holding {
	all := accounts{open: map[string]*holding{}}
	for _, v := range book.Versions() {
		switch v.Object.GetKind() {
		case "TrainJob":
			job := read[trainer.TrainJob](v.Object)
			h := all.open[job.Name]
			h.stop(trueSince(job.Status.Conditions, trainer.TrainJobComplete), "useful")
			h.stop(trueSince(job.Status.Conditions, trainer.TrainJobFailed), "failed")
			h.stop(deletion(job), "deleted")
		case "Workload":
			all.workload(v)
		}
	}
	Expect(all.open).To(BeEmpty(), "all quota is given back")
	return all.done
}

func (a *accounts) workload(v record.Version) {
	wl := read[kueue.Workload](v.Object)
	name, conditions := metav1.GetControllerOf(wl).Name, wl.Status.Conditions
	reserved := trueSince(conditions, kueue.WorkloadQuotaReserved)
	finished := trueSince(conditions, kueue.WorkloadFinished)
	if a.open[name] == nil && !reserved.IsZero() && finished.IsZero() && !v.Deleted {
		a.open[name] = &holding{reserved: reserved, outcome: "lost"}
		for _, ps := range wl.Spec.PodSets {
			a.open[name].pods += float64(ps.Count)
		}
	}
	h := a.open[name]
	if h == nil {
		return
	}
	if ready := trueSince(conditions, kueue.WorkloadPodsReady); h.ran.IsZero() && !ready.Before(h.reserved) {
		h.ran = ready
	}
	h.stop(trueSince(conditions, kueue.WorkloadEvicted), "lost")
	h.stop(deletion(wl), "deleted")
	switch {
	case !finished.IsZero():
		h.ended, h.outcome = finished, "failed"
		if apimeta.FindStatusCondition(conditions, kueue.WorkloadFinished).Reason == kueue.WorkloadFinishedReasonSucceeded {
			h.outcome = "useful"
		}
	case v.Deleted:
		h.ended, h.vanished = v.At, true
	case reserved.IsZero():
		h.ended = heldSince(conditions, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	default:
		Expect(reserved).To(Equal(h.reserved), "no version is missing")
		return
	}
	a.done = append(a.done, h)
	delete(a.open, name)
}

func deletion(obj client.Object) time.Time {
	return ptr.Deref(obj.GetDeletionTimestamp(), metav1.Time{}).Time
}

// trueSince returns since when a condition is true, zero where it is not.
func trueSince(conditions []metav1.Condition, name string) time.Time {
	return heldSince(conditions, name, metav1.ConditionTrue)
}

// heldSince returns since when a condition has a status, zero where it has another.
func heldSince(conditions []metav1.Condition, name string, status metav1.ConditionStatus) time.Time {
	if c := apimeta.FindStatusCondition(conditions, name); c != nil && c.Status == status {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}
