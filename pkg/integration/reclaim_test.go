// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/test/kit/expect"
)

// Trainer tells of a Job that has succeeded also when it is on its way out, and JobSet runs it again then.
func TestReclaimablePodsAreOfJobsThatStay(t *testing.T) {
	given := []kueue.ReclaimablePod{{Name: "node", Count: 1}}
	cases := map[string]struct {
		change  func(*batchv1.Job)
		deleted bool
		given   []kueue.ReclaimablePod
		want    []kueue.ReclaimablePod
	}{
		"a child Job is complete":                {want: given},
		"it is complete, and on its way out":     {deleted: true},
		"it is gone, and another one runs":       {change: func(child *batchv1.Job) { child.Status.Conditions = nil }},
		"it is of somebody else's JobSet":        {change: func(child *batchv1.Job) { child.OwnerReferences[0].UID = "other" }},
		"what was given is given, whatever goes": {deleted: true, given: given, want: given},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			job := inttest.Job("a")
			job.Status.JobsStatus = []trainer.JobStatus{{Name: "node", Succeeded: ptr.To[int32](1)}}
			js := inttest.JobSetOf(job, false, jobsetapi.ReplicatedJob{Name: "node", Replicas: 1})
			child := &batchv1.Job{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: job.Namespace, Name: "llm-node-0", UID: "j", Finalizers: []string{metav1.FinalizerDeleteDependents},
					Labels:          map[string]string{jobsetapi.JobSetNameKey: js.Name, jobsetapi.ReplicatedJobNameKey: "node"},
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(js, jobsetapi.SchemeGroupVersion.WithKind("JobSet"))},
				},
				Status: batchv1.JobStatus{Conditions: []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}},
			}
			if tc.change != nil {
				tc.change(child)
			}
			r, _ := newReconciler(t, job, js, child, inttest.AdmittedOf("a", func(wl *kueue.Workload) { wl.Status.ReclaimablePods = tc.given }))
			if tc.deleted {
				expect.NoError(t, r.deps.client.Delete(t.Context(), child))
			}
			got, err := jobOf(t, r, job).ReclaimablePods(t.Context(), nil)
			expect.NoError(t, err)
			expect.Same(t, "Unexpected reclaimable pods", tc.want, got)
		})
	}
}
