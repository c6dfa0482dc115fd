// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/jobevents"
	"github.com/kueue-trainer/kueue-trainer/pkg/integration/serving"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// Whoever was told that the manager stands aside is told again the next time it does.
func TestStandAsideIsToldEachTime(t *testing.T) {
	stored, _ := suspendedJob()
	r, recorder := newReconciler(t, stored)
	var reasons serving.Told
	for range 2 {
		for range 2 {
			expect.Must((&reconciler{env: r.env}).standAside(t.Context(), jobRequest, &reasons, jobevents.ReasonNotAlone, serving.InTreeRemedy))(t)
		}
		reasons.Drop(stored.UID)
	}
	expect.Same(t, "Unexpected number of events for two times", 2, len(recorder.Events))
}

// Nothing brings a TrainJob here again that is gone, and its Workload still has quota.
func TestStandAsideComesBackForWorkloadsLeft(t *testing.T) {
	job, left := inttest.Job("uid"), inttest.AdmittedOf("uid")
	for name, tc := range map[string]struct {
		there []client.Object
		again bool
	}{
		"a job that is there":          {there: []client.Object{job.DeepCopy(), left.DeepCopy()}},
		"one that is gone":             {},
		"and one that left a Workload": {there: []client.Object{left.DeepCopy()}, again: true},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := newReconciler(t, tc.there...)
			r.env.inTree = serving.NewInTree(nil, "ours", serving.NewTrainJobs(r.env.client))
			result, err := (&reconciler{env: r.env}).Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(job)})
			again := result.RequeueAfter > 0
			expect.That(t, err == nil && again == tc.again, "Comes again: %t (%v), want %t", again, err, tc.again)
		})
	}
}
