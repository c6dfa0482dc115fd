// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/test/record"
)

// bookkeeper sees every version of the Workloads and TrainJobs of a namespace, and finds from them
// alone how long quota was held, and what for. It knows nothing of the manager's ledger.
type bookkeeper struct {
	*record.Recorder

	mu       sync.Mutex
	versions []record.Version
}

func (w *site) openBook(ctx context.Context) *bookkeeper {
	GinkgoHelper()
	api, err := dynamic.NewForConfig(cluster.Config)
	Expect(err).NotTo(HaveOccurred())
	var kinds []record.Kind
	for _, resource := range []schema.GroupVersionResource{
		{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: "workloads"},
		{Group: "trainer.kubeflow.org", Version: "v1alpha1", Resource: "trainjobs"},
	} {
		kinds = append(kinds, record.Kind{GroupVersionResource: resource, Namespace: w.Namespace})
	}
	b := &bookkeeper{}
	watching, stop := context.WithCancel(context.WithoutCancel(ctx))
	DeferCleanup(stop)
	b.Recorder, err = record.Start(watching, api, kinds, func(v record.Version) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.versions = append(b.versions, v)
	})
	Expect(err).NotTo(HaveOccurred())
	return b
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

// truth returns all holdings, which have to be over.
func (b *bookkeeper) truth() []*holding {
	GinkgoHelper()
	b.mu.Lock()
	defer b.mu.Unlock()
	all := accounts{open: map[string]*holding{}}
	for _, v := range record.InOrder(b.versions) {
		switch v.Object.GetKind() {
		case "TrainJob":
			h := all.open[v.Object.GetName()]
			h.stop(trueSince(v.Object, "Complete"), "useful")
			h.stop(trueSince(v.Object, "Failed"), "failed")
			h.stop(deletion(v.Object), "deleted")
		case "Workload":
			all.workload(v)
		}
	}
	Expect(all.open).To(BeEmpty(), "all quota is given back")
	return all.done
}

func (a *accounts) workload(v record.Version) {
	name := metav1.GetControllerOf(v.Object).Name
	reserved := trueSince(v.Object, kueue.WorkloadQuotaReserved)
	finished := trueSince(v.Object, kueue.WorkloadFinished)
	if a.open[name] == nil && !reserved.IsZero() && finished.IsZero() && !v.Deleted {
		a.open[name] = &holding{pods: podsOf(v.Object), reserved: reserved, outcome: "lost"}
	}
	h := a.open[name]
	if h == nil {
		return
	}
	if ready := trueSince(v.Object, kueue.WorkloadPodsReady); h.ran.IsZero() && !ready.Before(h.reserved) {
		h.ran = ready
	}
	h.stop(trueSince(v.Object, kueue.WorkloadEvicted), "lost")
	h.stop(deletion(v.Object), "deleted")
	switch {
	case !finished.IsZero():
		h.ended, h.outcome = finished, "failed"
		if becauseOf(v.Object, kueue.WorkloadFinished) == kueue.WorkloadFinishedReasonSucceeded {
			h.outcome = "useful"
		}
	case v.Deleted:
		h.ended, h.vanished = v.At, true
	case reserved.IsZero():
		h.ended, _ = storedCondition(v.Object, kueue.WorkloadQuotaReserved, "False")
	default:
		Expect(reserved).To(Equal(h.reserved), "no version is missing")
		return
	}
	a.done = append(a.done, h)
	delete(a.open, name)
}

// podsOf returns how many pods a Workload describes.
func podsOf(wl *unstructured.Unstructured) float64 {
	GinkgoHelper()
	podSets, _, err := unstructured.NestedSlice(wl.Object, "spec", "podSets")
	Expect(err).NotTo(HaveOccurred())
	sum := int64(0)
	for i := range podSets {
		count, _, err := unstructured.NestedInt64(podSets[i].(map[string]any), "count")
		Expect(err).NotTo(HaveOccurred())
		sum += count
	}
	return float64(sum)
}

func deletion(obj *unstructured.Unstructured) time.Time {
	if at := obj.GetDeletionTimestamp(); at != nil {
		return at.Time
	}
	return time.Time{}
}

// trueSince returns since when a condition is true, zero where it is not.
func trueSince(obj *unstructured.Unstructured, condition string) time.Time {
	at, _ := storedCondition(obj, condition, "True")
	return at
}

func becauseOf(obj *unstructured.Unstructured, condition string) string {
	_, reason := storedCondition(obj, condition, "True")
	return reason
}

// storedCondition returns since when a condition has a status, and why.
func storedCondition(obj *unstructured.Unstructured, condition, status string) (time.Time, string) {
	GinkgoHelper()
	conditions, _, _ := unstructured.NestedSlice(obj.Object, "status", "conditions")
	for _, c := range conditions {
		c, ok := c.(map[string]any)
		if !ok || c["type"] != condition || c["status"] != status {
			continue
		}
		at, err := time.Parse(time.RFC3339, c["lastTransitionTime"].(string))
		Expect(err).NotTo(HaveOccurred())
		return at, c["reason"].(string)
	}
	return time.Time{}, ""
}
