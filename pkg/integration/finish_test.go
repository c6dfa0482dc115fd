// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
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
			ended := inttest.True(tc.condition, "")
			ended.LastTransitionTime = metav1.Now()
			stored.Status.Conditions = append(stored.Status.Conditions, ended)
			wl := inttest.WorkloadOf(stored, inttest.Admitted)
			if tc.ended {
				inttest.Is(kueue.WorkloadFinished, kueue.WorkloadFinishedReasonFailed)(wl)
			}
			r, _ := newReconciler(t, stored, wl)
			if tc.pod {
				expect.NoError(t, r.env.client.Create(t.Context(), inttest.PodOf("ns", "job")))
			}
			r.env.client = withStatus(r.env.client)
			// A write is not seen again before the next reconcile.
			for range 2 {
				expect.Must((&reconciler{env: r.env}).Reconcile(t.Context(), jobRequest))(t)
			}
			inttest.Reload(t, r.env.client, wl)
			expect.Same(t, "The Workload is finished", tc.wantFinished, apimeta.IsStatusConditionTrue(wl.Status.Conditions, kueue.WorkloadFinished))
			after := storedJob(t, r)
			failed := tc.condition == trainer.TrainJobFailed
			expect.That(t, after.Suspended() == failed, "The job is suspended: %t, want %t", after.Suspended(), failed)
			gated := r.env.Field.HoldsGate(&after.Spec)
			expect.That(t, !tc.wantGated || gated, "The job is at the gate: %t, want %t", gated, tc.wantGated)
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
