// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

func TestEndOfAJob(t *testing.T) {
	tests := map[string]struct {
		condition string
		// pod is there when JobSet and Jobs are gone.
		pod bool
		// ended has the Workload finished already.
		ended                   bool
		wantFinished, wantGated bool
	}{
		"complete":                           {condition: trainer.TrainJobComplete, wantFinished: true},
		"complete, with a pod left":          {condition: trainer.TrainJobComplete, pod: true},
		"failed":                             {condition: trainer.TrainJobFailed, wantFinished: true, wantGated: true},
		"failed, with a pod left":            {condition: trainer.TrainJobFailed, pod: true},
		"failed long ago, and resumed since": {condition: trainer.TrainJobFailed, ended: true, wantFinished: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, _ := disagreeing(false, false, false, time.Now())
			stored.Spec.RuntimeRef.Name = "torch"
			stored.Status.Conditions = append(stored.Status.Conditions, metav1.Condition{Type: tc.condition, Status: metav1.ConditionTrue, LastTransitionTime: metav1.Now()})
			wl := inttest.WorkloadOf(stored.UID, true)
			wl.Namespace, wl.OwnerReferences[0].Name, wl.Spec.QueueName = "ns", "job", "q"
			wl.Status.Admission = &kueue.Admission{}
			if tc.ended {
				wl.Status.Conditions = append(wl.Status.Conditions, metav1.Condition{
					Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue, Reason: kueue.WorkloadFinishedReasonFailed})
			}
			objects := []client.Object{stored, wl}
			if tc.pod {
				objects = append(objects, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
					Namespace: "ns", Name: "left", Labels: map[string]string{jobsetapi.JobSetNameKey: "job"},
					OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "gone", UID: "gone", Controller: ptr.To(true)}},
				}, Spec: corev1.PodSpec{NodeName: "node"}})
			}
			r, _ := newReconciler(t, objects...)
			r.env.client = withStatus(r.env.client)
			// A write is not seen again before the next reconcile.
			for range 2 {
				if _, err := (&reconciler{env: r.env}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(stored)}); err != nil {
					t.Fatal(err)
				}
			}
			if err := r.env.client.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
				t.Fatal(err)
			}
			if finished := apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished); finished != tc.wantFinished {
				t.Errorf("The Workload is finished: %t, want %t", finished, tc.wantFinished)
			}
			var after trainjob.TrainJob
			if err := r.env.client.Get(t.Context(), client.ObjectKeyFromObject(stored), &after); err != nil {
				t.Fatal(err)
			}
			if failed := tc.condition == trainer.TrainJobFailed; after.Suspended() != failed {
				t.Errorf("The job is suspended: %t, want %t", after.Suspended(), failed)
			}
			if gated := r.env.Field.HoldsGate(&after.Spec); tc.wantGated && !gated {
				t.Errorf("The job is at the gate: %t, want %t", gated, tc.wantGated)
			}
		})
	}
}

// withStatus lets a status be patched; the fake API server of these tests has no subresources.
func withStatus(c client.Client) client.Client {
	return interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, obj client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
			return c.Patch(ctx, obj, p, client.FieldOwner("test"), client.ForceOwnership)
		},
	})
}
