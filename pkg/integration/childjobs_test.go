// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

func TestEnsureReplaced(t *testing.T) {
	tests := map[string]struct {
		suspended bool
		unqueued  bool
		ended     bool
		before    *batchv1.PodReplacementPolicy
		want      batchv1.PodReplacementPolicy
	}{
		"a Job that was made since the start":   {before: ptr.To(batchv1.TerminatingOrFailed), want: batchv1.Failed},
		"one that says nothing":                 {want: batchv1.Failed},
		"one that has ended":                    {ended: true},
		"one of a suspended TrainJob":           {suspended: true},
		"one of a TrainJob that is not Kueue's": {unqueued: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			stored, _ := disagreeing(tc.suspended, false, false, time.Now())
			if tc.unqueued {
				stored.Labels = nil
			}
			js := inttest.JobSetOf(stored, false)
			child := doneJob(js)
			child.Status, child.Spec.PodReplacementPolicy = batchv1.JobStatus{}, tc.before
			child.Labels[jobsetapi.ReplicatedJobNameKey] = "download"
			if tc.ended {
				child.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: "True"}}
			}
			r, _ := newReconciler(t, stored, js, child)
			expect.NoError(t, r.ensureReplaced(t.Context(), jobOf(r, stored)))
			written := child.ResourceVersion
			inttest.Reload(t, r.env.client, child)
			expect.Same(t, "Unexpected podReplacementPolicy", tc.want, ptr.Deref(child.Spec.PodReplacementPolicy, ""))
			expect.That(t, (child.ResourceVersion != written) == (tc.want != ""), "The Job is written: %t", child.ResourceVersion != written)

			expect.NoError(t, r.ensureReplaced(t.Context(), jobOf(r, stored)))
			again := child.ResourceVersion
			inttest.Reload(t, r.env.client, child)
			expect.Same(t, "It is written again", again, child.ResourceVersion)
		})
	}
}
