// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// What Kueue decided comes before what came earlier.
func TestDecidedFirst(t *testing.T) {
	workload := func(conditions ...metav1.Condition) *kueue.Workload {
		return &kueue.Workload{
			ObjectMeta: metav1.ObjectMeta{Name: "wl"},
			Spec:       kueue.WorkloadSpec{Active: ptr.To(true)},
			Status:     kueue.WorkloadStatus{Conditions: conditions},
		}
	}
	admitted := metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue}
	evicted := metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue}
	ready := metav1.Condition{Type: kueue.WorkloadPodsReady, Status: metav1.ConditionTrue}
	tests := map[string]struct {
		before, after *kueue.Workload
		want          string
	}{
		"an admission":      {before: workload(), after: workload(admitted), want: "wl"},
		"an eviction":       {before: workload(admitted), after: workload(admitted, evicted), want: "wl"},
		"pods that are up":  {before: workload(admitted), after: workload(admitted, ready), want: "earlier"},
		"a pending message": {before: workload(), after: workload(ready), want: "earlier"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			queue := priorityqueue.New[reconcile.Request]("test")
			defer queue.ShutDown()
			queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: "earlier"}})
			tc.before.ResourceVersion, tc.after.ResourceVersion = "1", "2"
			decidedFirst(&handler.EnqueueRequestForObject{}).Update(t.Context(), event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}, queue)
			if got, _ := queue.Get(); got.Name != tc.want {
				t.Errorf("looked first at %s, want %s", got.Name, tc.want)
			}
		})
	}
}
