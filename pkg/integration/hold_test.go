// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/kueue-trainer/kueue-trainer/pkg/integration/internal/inttest"
	"github.com/kueue-trainer/kueue-trainer/pkg/trainjob"
)

func TestEnsureHeld(t *testing.T) {
	now := ptr.To(metav1.Now())
	cases := map[string]struct {
		job      func(*trainjob.TrainJob)
		workload func(*kueue.Workload)
		want     bool
	}{
		"a job that runs":          {want: true},
		"a job that is deleted":    {job: func(job *trainjob.TrainJob) { job.DeletionTimestamp = now }},
		"a job that nobody knows":  {job: func(job *trainjob.TrainJob) { job.UID = "" }},
		"another job of that name": {job: func(job *trainjob.TrainJob) { job.UID = "other" }},
		"a finished job": {job: func(job *trainjob.TrainJob) {
			job.Status.Conditions = []metav1.Condition{{Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue}}
		}},
		"a finished Workload": {workload: func(wl *kueue.Workload) {
			wl.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadFinished, Status: metav1.ConditionTrue}}
		}},
		"a Workload that is deleted": {workload: func(wl *kueue.Workload) {
			wl.DeletionTimestamp, wl.Finalizers = now, []string{"example.com/mine"}
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			trainJob := &trainjob.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "llm", UID: "a"}}
			wl := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
				Namespace: "team", Name: "wl", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(trainJob, trainjob.GVK)},
			}}
			if tc.job != nil {
				tc.job(trainJob)
			}
			if tc.workload != nil {
				tc.workload(wl)
			}
			j := &job{TrainJob: *trainJob}
			c := fake.NewClientBuilder().WithScheme(inttest.Scheme(t)).WithObjects(wl).Build()
			var list kueue.WorkloadList
			if err := c.List(t.Context(), &list); err != nil {
				t.Fatal(err)
			}
			if err := (&attempt{env: &environment{client: c}}).ensureHeld(t.Context(), j, list.Items); err != nil {
				t.Fatal(err)
			}
			if err := c.Get(t.Context(), client.ObjectKeyFromObject(wl), wl); err != nil {
				t.Fatal(err)
			}
			if held := controllerutil.ContainsFinalizer(wl, kueue.ResourceInUseFinalizerName); held != tc.want {
				t.Errorf("The Workload has the finalizer: %t, want %t", held, tc.want)
			}
		})
	}
}
