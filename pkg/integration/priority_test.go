// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

// What Kueue decided comes before what came earlier.
func TestDecidedFirst(t *testing.T) {
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(trainjob.GVK, apimeta.RESTScopeNamespace)
	workload := func(conditions ...metav1.Condition) *kueue.Workload {
		wl := inttest.WorkloadOf("uid", false)
		wl.Spec.Active, wl.Status.Conditions = ptr.To(true), conditions
		return wl
	}
	admitted := metav1.Condition{Type: kueue.WorkloadAdmitted, Status: metav1.ConditionTrue}
	evicted := metav1.Condition{Type: kueue.WorkloadEvicted, Status: metav1.ConditionTrue}
	deactivated := workload(admitted)
	deactivated.Spec.Active = ptr.To(false)
	ready := metav1.Condition{Type: kueue.WorkloadPodsReady, Status: metav1.ConditionTrue}
	tests := map[string]struct {
		before, after *kueue.Workload
		want          string
	}{
		"an admission":      {before: workload(), after: workload(admitted), want: "llm"},
		"an eviction":       {before: workload(admitted), after: workload(admitted, evicted), want: "llm"},
		"a deactivation":    {before: workload(admitted), after: deactivated, want: "llm"},
		"pods that are up":  {before: workload(admitted), after: workload(admitted, ready), want: "earlier"},
		"a pending message": {before: workload(), after: workload(ready), want: "earlier"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			queue := priorityqueue.New[reconcile.Request]("test")
			defer queue.ShutDown()
			queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: "earlier"}})
			tc.before.ResourceVersion, tc.after.ResourceVersion = "1", "2"
			ofOwner := handler.EnqueueRequestForOwner(inttest.Scheme(t), mapper, &trainjob.TrainJob{}, handler.OnlyControllerOwner())
			decidedFirst(ofOwner).Update(t.Context(), event.UpdateEvent{ObjectOld: tc.before, ObjectNew: tc.after}, queue)
			if got, _ := queue.Get(); got.Name != tc.want {
				t.Errorf("looked first at %s, want %s", got.Name, tc.want)
			}
		})
	}
}
