// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	. "github.com/onsi/gomega"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/record"
)

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
		a.open[name] = &holding{pods: podsOf(wl), reserved: reserved, outcome: "lost"}
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

// podsOf returns how many pods a Workload describes.
func podsOf(wl *kueue.Workload) float64 {
	sum := int32(0)
	for _, ps := range wl.Spec.PodSets {
		sum += ps.Count
	}
	return float64(sum)
}

func deletion(obj client.Object) time.Time {
	if at := obj.GetDeletionTimestamp(); at != nil {
		return at.Time
	}
	return time.Time{}
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
